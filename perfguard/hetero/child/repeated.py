"""One training repeated from equal weights by the same workers, for benchmarks.

A call trains from the initial weights to the target loss, so its time is the time to loss; what the workers did
meanwhile is in its signals. A wrong update or merge need not change any time: `check` repeats one of each in this
process, alone, where equal seeds give equal weights.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import torch
from msgspec import structs
from torch import nn

from perfguard.errors import MeasurementError
from perfguard.hetero.algorithms import make_policy
from perfguard.hetero.child.data import open_examples, prepare
from perfguard.hetero.child.local import READY_S, Given, device_of, device_text, reasons_of, share, torch_device, work
from perfguard.hetero.child.models import build_model, loss_sum
from perfguard.hetero.child.processes import Processes
from perfguard.hetero.child.workers import Hogwild, LocalModel, RangeWorker, Replica
from perfguard.hetero.coordinator import Coordinator
from perfguard.hetero.driving import Drive, Listener, wait_until_ready
from perfguard.hetero.happenings import Happening, RangeReturned
from perfguard.hetero.messages import FromWorker, Range, Report, ScheduleWork, Stop, Task, ToWorker, WorkerLost
from perfguard.hetero.planning import places, plan_of
from perfguard.records.training import Ending, Kind, TrainingConfig

_TICKETS = 1_000_000  # More than the ranges of one training
_PROCESS_CLOCK = 2
"""CPU clock of a whole process, in what the kernel calls its identity. Source: clock_getcpuclockid(3)."""
_DISTURBANCE = 1e-3  # What other workers add to each shared weight while a replica trains; weights are near 0.1


class RepeatedTraining:
    """Trainings from equal weights to a target loss; each call is one."""

    def __init__(self, make_pool: Callable[[], WorkerPool]) -> None:
        """The initial weights come from torch's generator, which making the pool leaves as it is."""
        with torch.random.fork_rng(devices=()):
            self._pool = make_pool()
        shape = self._pool.examples.shape
        self._first = build_model(self._pool.config.model, shape)
        everything = Range(ticket=0, task=Task.LOSS, start=0, stop=shape.examples)
        whole = Hogwild(self._first, self._pool.examples, loss_sum(shape)).evaluate(everything)
        self._loss = whole.loss / shape.examples
        self._sums = _Sums()

    def __call__(self) -> float:
        """Train; gives the loss before the first update, since that after the last one depends on who was faster."""
        self._pool.train(list(self._first.parameters()), self._sums)
        return self._loss

    def signals(self) -> dict[str, float]:
        """What the workers did in one training, of those since the last call of this."""
        sums, self._sums = self._sums, _Sums()
        return self._pool.signals(sums) if sums.trainings else {}

    def check(self) -> dict[str, float]:
        """Norms of what one update of each kind changes, made alone."""
        return self._pool.check(self._first)


@dataclass(slots=True)
class _Sums:
    """What several trainings came to."""

    trainings: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0  # Of all workers
    epochs: int = 0
    updates: Counter[str] = field(default_factory=Counter)  # By group
    ranges: Counter[str] = field(default_factory=Counter)  # By worker; so are the following
    late_s: dict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # With a range that was handed to others
    transfer_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    busy_s: dict[tuple[str, Task], float] = field(default_factory=lambda: defaultdict(float))
    examples: Counter[tuple[str, Task]] = field(default_factory=Counter)

    def add(self, part: Range, report: Report) -> None:
        """A worker has finished a range."""
        self.ranges[report.worker] += 1
        self.transfer_s[report.worker] += report.transfer_s
        self.busy_s[report.worker, part.task] += report.busy_s
        self.examples[report.worker, part.task] += part.size


class WorkerPool:
    """Workers that train one model again and again; they end with this process."""

    def __init__(self, config: TrainingConfig, cpus: Sequence[int]) -> None:
        self.config, self._folder = config, Path(tempfile.mkdtemp(prefix="perfguard-hetero-"))
        data = prepare(config.data, self._folder)
        self.examples = open_examples(data)
        self._model = build_model(config.model, self.examples.shape)
        share(self._model)
        self._places = places(config, cpus)
        self._groups = {name: config.groups[name] for name in dict.fromkeys(place.group for place in self._places)}
        self._devices = {name: device_of(group) for name, group in self._groups.items()}
        self._processes = Processes(self._places, work, Given(config, self._devices, self._model, data))
        atexit.register(self._close)
        names = [place.name for place in self._places]
        ready = wait_until_ready(self._processes, names, timeout_s=READY_S, clock=time.monotonic)
        self._ready: dict[str, FromWorker] = {message.worker: message for message in ready}
        self._number, self._sums = 0, _Sums()
        self._ordered: dict[str, Range] = {}
        self._sent: dict[str, float] = {}  # When each worker got its range
        self._late: dict[str, float] = {}  # The same of those whose range was handed to others

    def _close(self) -> None:
        self._processes.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @torch.no_grad()
    def train(self, first: Sequence[torch.Tensor], sums: _Sums) -> None:
        """One training from these weights; what it comes to is added to the sums.

        Raises:
            MeasurementError: No worker is left.
        """
        self._number, self._sums = self._number + 1, sums
        for shared, weights in zip(self._model.parameters(), first, strict=True):
            shared.copy_(weights)
        plan = plan_of(self.config, self._places, self.examples.shape.examples, self._devices)
        coordinator = Coordinator(plan, make_policy(self.config, plan.limits))
        cpu_s, began = self._cpu_s(), time.perf_counter()
        listener = Listener(happened=self._happened, used=lambda _at_s, _groups: None)
        ending = Drive(coordinator, self, lambda: time.perf_counter() - began, listener).run(list(self._ready.values()))
        wall_s = time.perf_counter() - began
        for worker in tuple(self._late):
            self._answered(worker)
        sums.wall_s += wall_s
        sums.cpu_s += self._cpu_s() - cpu_s
        if ending is Ending.NO_WORKERS:
            raise MeasurementError(f"all workers are lost: {reasons_of(self._ready.values())}")
        sums.trainings += 1
        sums.epochs += coordinator.epoch
        sums.updates.update(coordinator.updates)

    def _happened(self, happening: Happening) -> None:
        if isinstance(happening, RangeReturned):
            self._late[happening.worker] = self._sent[happening.worker]

    def _answered(self, worker: str) -> None:
        """A worker is late no longer, or the training has ended."""
        if (since := self._late.pop(worker, None)) is not None:
            self._sums.late_s[worker] += time.perf_counter() - since

    def _cpu_s(self) -> float:
        pids = [self._processes.pid_of(name) for name, said in self._ready.items() if isinstance(said, ScheduleWork)]
        return sum(time.clock_gettime((~pid << 3) | _PROCESS_CLOCK) for pid in pids)

    # A transport: tickets also hold the number of the training, so that late answers to an earlier one are known

    def receive(self, timeout_s: float) -> Sequence[FromWorker]:
        """Messages of this training."""
        found = []
        for message in self._processes.receive(timeout_s):
            heard = message
            if isinstance(message, Report):
                number, ticket = divmod(message.ticket, _TICKETS)
                if number != self._number:
                    continue
                heard = structs.replace(message, ticket=ticket)
                self._sums.add(self._ordered[message.worker], message)
                self._answered(message.worker)
            elif isinstance(message, WorkerLost):
                self._ready[message.worker] = message
            found.append(heard)
        return found

    def send(self, worker: str, order: ToWorker) -> None:
        """Hand an order to a worker, but no stop: another training follows."""
        if not isinstance(order, Stop):
            part = self._ordered[worker] = replace(order.range, ticket=self._number * _TICKETS + order.range.ticket)
            self._sent[worker] = time.perf_counter()
            self._processes.send(worker, structs.replace(order, range=part))

    def signals(self, sums: _Sums) -> dict[str, float]:
        """Of one training, by name; causes come before what follows from them."""
        found: dict[str, float] = {}
        for place in self._places:
            worker, name = place.name, f"{place.name} ({self._device_text(place.group)})"
            found[f"late_share of {name}"] = sums.late_s[worker] / sums.wall_s
            for task in Task:
                if examples := sums.examples[worker, task]:
                    found[f"{task.value}_s of {name}"] = sums.busy_s[worker, task] / examples
            if transfer_s := sums.transfer_s[worker]:
                found[f"transfer_s of {name}"] = transfer_s / sums.ranges[worker]
        found["epochs"] = sums.epochs / sums.trainings
        found |= self._shares(sums)
        found["update_s"] = sums.wall_s / max(1, sums.updates.total())
        found["cpu_s"] = sums.cpu_s / sums.trainings
        return found

    def _shares(self, sums: _Sums) -> Mapping[str, float]:
        found = {}
        for group in self._groups:
            workers = [place.name for place in self._places if place.group == group]
            busy_s = sum(sums.transfer_s[worker] + sums.busy_s[worker, task] for worker in workers for task in Task)
            found[f"idle_share of {group}"] = max(0.0, 1.0 - busy_s / (sums.wall_s * len(workers)))
            if len(self._groups) > 1:
                found[f"update_share of {group}"] = sums.updates[group] / max(1, sums.updates.total())
        return found

    def check(self, first: nn.Module) -> dict[str, float]:
        """Norms of what one range of each kind of worker changes, from these weights on."""
        found, shape = {}, self.examples.shape
        for name, group in self._groups.items():
            model, sums = build_model(self.config.model, shape), loss_sum(shape)
            model.load_state_dict(first.state_dict())
            before = [parameter.detach() for parameter in first.parameters()]
            what, worker = "update", cast("RangeWorker", Hogwild(model, self.examples, sums))
            if group.kind is Kind.REPLICA:
                device = torch_device(self._devices[name])
                shared = _Disturbed(list(model.parameters()), group.merge, device)
                copy = build_model(self.config.model, shape)
                before = [weights + _DISTURBANCE for weights in before]
                what, worker = "merge", Replica(shared, copy, self.examples, sums, device=device, speed=group.speed)
            part = Range(ticket=0, task=Task.TRAIN, start=0, stop=group.batch)
            worker.train(part, group.updates, self.config.learning_rate)
            changes = [(after.detach() - old).flatten() for after, old in zip(model.parameters(), before, strict=True)]
            found[f"{what} of {name} ({self._device_text(name)})"] = float(torch.cat(changes).double().norm())
        return found

    def _device_text(self, group: str) -> str:
        return device_text(self._groups[group], self._devices[group])


class _Disturbed(LocalModel):
    """A shared model that other workers change while a replica trains."""

    def push(self, own: Sequence[torch.Tensor], pulled: Sequence[torch.Tensor]) -> None:
        """Merge into weights that are no longer those that the replica had copied."""
        for shared in self._shared:
            shared.add_(_DISTURBANCE)
        super().push(own, pulled)
