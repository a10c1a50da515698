"""Heterogeneous training as cases: workers of different speed train one model until its loss is small enough.

One iteration is a training from the initial weights to the target loss, so its time is the time to loss. The workers
are processes of their own, which live as long as the case; a case has them on the CPUs that it is measured on. What
they do besides is in the case's own signals. Whether updates and merges are right is no matter of time: `check`
repeats one of each in this process, alone, where equal seeds give equal weights.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import nn

from perfguard.errors import MeasurementError
from perfguard.hetero.algorithms import kinds_of, limits_of, make_policy
from perfguard.hetero.child.crew import Given, device_of, share, work
from perfguard.hetero.child.data import open_examples, prepare
from perfguard.hetero.child.models import build_model, loss_sum
from perfguard.hetero.child.processes import Processes
from perfguard.hetero.child.workers import Hogwild, LocalModel, Replica
from perfguard.hetero.coordinator import Coordinator, Happening, RangeReturned
from perfguard.hetero.driving import Drive, Listener, wait_until_ready
from perfguard.hetero.messages import (
    Evaluate,
    ExecuteWork,
    FromWorker,
    Range,
    Report,
    ScheduleWork,
    Task,
    ToWorker,
    WorkerLost,
)
from perfguard.hetero.planning import places, plan_of
from perfguard.records.training import DataConfig, Device, Ending, GroupConfig, Kind, ModelConfig, TrainingConfig

_READY_S = 120.0
_TICKETS = 1_000_000  # More than the ranges of one training
_PROCESS_CLOCK = 2
"""CPU clock of a whole process, in what the kernel calls its identity. Source: clock_getcpuclockid(3)."""
_DISTURBANCE = 1e-3  # What other workers add to each shared weight while a replica trains; weights are near 0.1


def covtype(*, algorithm: str) -> Training:
    """Dense rows, 7 classes."""
    return Training("covtype", algorithm)


def w8a(*, algorithm: str) -> Training:
    """Sparse rows, 2 classes of unequal size."""
    return Training("w8a", algorithm)


_GOALS = {"covtype": (0.05, 0.9), "w8a": (0.5, 0.1)}
"""Learning rate and target loss by shape: about 15 epochs."""


def _config(source: str, algorithm: str) -> TrainingConfig:
    return TrainingConfig(
        data=DataConfig(source=source, examples=2048),
        groups={
            "cpu": GroupConfig(kind=Kind.HOGWILD, batch=64, minimum=32, maximum=256, updates=2),
            "large": GroupConfig(kind=Kind.REPLICA, batch=128, minimum=64, maximum=512, device=Device.AUTO),
        },
        learning_rate=_GOALS[source][0],
        reference_batch=64,
        model=ModelConfig(width=128),
        algorithm=algorithm,
        epochs=200,
        target_loss=_GOALS[source][1],
        loss_batch=1024,
        patience_s=1.0,
    )


class Training:
    """Trainings from equal weights to a target loss; each call is one."""

    def __init__(self, source: str, algorithm: str) -> None:
        with torch.random.fork_rng(devices=()):  # only the first one of a process makes the crew
            self._crew = _crew_of(source, algorithm)
        shape = self._crew.examples.shape
        self._first = build_model(self._crew.config.model, shape)
        self._loss = Hogwild(self._first, self._crew.examples, loss_sum(shape)).evaluate(_all(shape.examples)).loss
        self._done = _Sums()

    def __call__(self) -> float:
        """Train; gives the loss before the first update, since that after the last one depends on who was faster."""
        self._crew.train(list(self._first.parameters()), self._done)
        return self._loss / self._crew.examples.shape.examples

    def signals(self) -> dict[str, float]:
        """What the workers did in one training, of those since the last call of this."""
        done, self._done = self._done, _Sums()
        return done.signals(self._crew) if done.trainings else {}

    def check(self) -> dict[str, float]:
        """Norms of what one update of each kind changes, made alone."""
        return self._crew.check(self._first)


@dataclass(slots=True)
class _Sums:
    """What trainings came to, by worker and group."""

    trainings: int = 0
    wall_s: float = 0.0
    epochs: int = 0
    returned: Counter[str] = field(default_factory=Counter)  # Ranges, by worker
    updates: Counter[str] = field(default_factory=Counter)  # By group
    cpu_s: float = 0.0  # Of all workers
    busy_s: dict[tuple[str, Task], float] = field(default_factory=lambda: defaultdict(float))  # By worker, to the end
    examples: Counter[tuple[str, Task]] = field(default_factory=Counter)
    transfer_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    ranges: Counter[str] = field(default_factory=Counter)

    def add(self, part: Range, report: Report) -> None:
        """A worker has finished a range."""
        key = (report.worker, part.task)
        self.busy_s[key] += report.busy_s
        self.examples[key] += part.size
        self.transfer_s[report.worker] += report.transfer_s
        self.ranges[report.worker] += 1

    def signals(self, crew: _Crew) -> dict[str, float]:
        """By name; causes before what follows from them."""
        found: dict[str, float] = {}
        for place in crew.places:
            name = f"{place.name} ({crew.device_name(place.group)})"
            found[f"returned_ranges of {name}"] = self.returned[place.name] / self.trainings
            for task in Task:
                key = (place.name, task)
                if self.examples[key]:
                    found[f"{task.value}_s of {name}"] = self.busy_s[key] / self.examples[key]
            if self.transfer_s[place.name]:
                found[f"transfer_s of {name}"] = self.transfer_s[place.name] / self.ranges[place.name]
        found["epochs"] = self.epochs / self.trainings
        updates = max(1, sum(self.updates.values()))
        groups = Counter(place.group for place in crew.places)
        for group, workers in groups.items():
            busy_s = sum(
                seconds for (worker, _), seconds in self.busy_s.items() if crew.group_of[worker] == group
            ) + sum(seconds for worker, seconds in self.transfer_s.items() if crew.group_of[worker] == group)
            found[f"idle_share of {group}"] = max(0.0, 1.0 - busy_s / (self.wall_s * workers))
            if len(groups) > 1:
                found[f"update_share of {group}"] = self.updates[group] / updates
        found["update_s"] = self.wall_s / updates
        found["cpu_s"] = self.cpu_s / self.trainings
        return found


class _Crew:
    """Workers that train one model again and again."""

    def __init__(self, config: TrainingConfig, cpus: Sequence[int]) -> None:
        self.config, self._folder = config, Path(tempfile.mkdtemp(prefix="perfguard-hetero-"))
        data = prepare(config.data, self._folder)
        self.examples = open_examples(data)
        self._model = build_model(config.model, self.examples.shape)
        share(self._model)
        self.places = places(config, cpus)
        self.group_of = {place.name: place.group for place in self.places}
        self._devices = {name: device_of(config.groups[name]) for name in set(self.group_of.values())}
        self._processes = Processes(self.places, work, Given(config, self._devices, self._model, data))
        atexit.register(self._close)
        self._run, self._orders = 0, dict[str, Range]()
        ready = wait_until_ready(self._processes, list(self.group_of), timeout_s=_READY_S, clock=time.monotonic)
        self._ready: dict[str, FromWorker] = {message.worker: message for message in ready}
        self._sums = _Sums()

    def _close(self) -> None:
        self._processes.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def device_name(self, group: str) -> str:
        """What a group computes on."""
        return torch.cuda.get_device_name() if self._devices[group] is Device.CUDA else "CPU"

    @torch.no_grad()
    def train(self, first: Sequence[torch.Tensor], sums: _Sums) -> None:
        """One training from these weights; what it comes to is added to the sums.

        Raises:
            MeasurementError: No worker is left.
        """
        self._run, self._sums = self._run + 1, sums
        for shared, weights in zip(self._model.parameters(), first, strict=True):
            shared.copy_(weights)
        config, used = self.config, kinds_of(self.config.algorithm)
        limits = {name: limits_of(group) for name, group in config.groups.items() if group.kind in used}
        plan = plan_of(config, self.places, self.examples.shape.examples, self._devices)
        coordinator = Coordinator(plan, make_policy(config, limits))
        cpu_s, began = self._cpu_s(), time.perf_counter()
        listener = Listener(happened=self._happened, used=lambda _at_s, _groups: None)
        ending = Drive(coordinator, self, lambda: time.perf_counter() - began, listener).run(list(self._ready.values()))
        sums.wall_s += time.perf_counter() - began
        sums.cpu_s += self._cpu_s() - cpu_s
        if ending is Ending.NO_WORKERS:
            reasons = dict.fromkeys(lost.reason for lost in self._ready.values() if isinstance(lost, WorkerLost))
            raise MeasurementError(f"all workers are lost: {'; '.join(reasons)}")
        sums.trainings += 1
        sums.epochs += coordinator.epoch
        sums.updates.update(coordinator.updates)

    def _happened(self, happening: Happening) -> None:
        if isinstance(happening, RangeReturned):
            self._sums.returned[happening.worker] += 1

    def _cpu_s(self) -> float:
        pids = [self._processes.pid_of(name) for name, said in self._ready.items() if isinstance(said, ScheduleWork)]
        return sum(time.clock_gettime((~pid << 3) | _PROCESS_CLOCK) for pid in pids)

    # The transport of one training: tickets carry its number, and no worker is told to stop at its end

    def receive(self, timeout_s: float) -> Sequence[FromWorker]:
        """Messages of this training; answers to orders of an earlier one are none."""
        found = []
        for message in self._processes.receive(timeout_s):
            heard = message
            if isinstance(message, Report):
                run, ticket = divmod(message.ticket, _TICKETS)
                if run != self._run:
                    continue
                heard = replace(message, ticket=ticket)
                self._sums.add(self._orders[message.worker], message)
            elif isinstance(message, WorkerLost):
                self._ready[message.worker] = message
            found.append(heard)
        return found

    def send(self, worker: str, order: ToWorker) -> None:
        """Hand an order to a worker."""
        if isinstance(order, (ExecuteWork, Evaluate)):
            part = self._orders[worker] = replace(order.range, ticket=self._run * _TICKETS + order.range.ticket)
            self._processes.send(worker, replace(order, range=part))

    def check(self, first: nn.Module) -> dict[str, float]:
        """Norms of what one range of each kind of worker changes, from these weights on."""
        found, config, shape = {}, self.config, self.examples.shape
        for name, group in config.groups.items():
            if group.kind not in kinds_of(config.algorithm):
                continue
            model, sums = build_model(config.model, shape), loss_sum(shape)
            model.load_state_dict(first.state_dict())
            others = [parameter.detach() for parameter in first.parameters()]
            worker: Hogwild | Replica = Hogwild(model, self.examples, sums)
            if group.kind is Kind.REPLICA:
                device = torch.device("cuda" if self._devices[name] is Device.CUDA else "cpu")
                copy = build_model(config.model, shape)
                shared = _Disturbed(list(model.parameters()), group.merge, device)
                others = [weights + _DISTURBANCE for weights in others]
                worker = Replica(shared, copy, self.examples, sums, device=device, speed=group.speed)
            part = Range(ticket=0, task=Task.TRAIN, start=0, stop=group.batch)
            worker.train(part, group.updates, config.learning_rate)
            what = "merge" if group.kind is Kind.REPLICA else "update"
            changes = [after.detach() - before for after, before in zip(model.parameters(), others, strict=True)]
            total = torch.cat([change.flatten() for change in changes]).double().norm()
            found[f"{what} of {name} ({self.device_name(name)})"] = float(total)
        return found


class _Disturbed(LocalModel):
    """A shared model that other workers change while a replica trains."""

    def push(self, own: Sequence[torch.Tensor], pulled: Sequence[torch.Tensor]) -> None:
        """Merge into weights that are no longer those that the replica had copied."""
        for shared in self._shared:
            shared.add_(_DISTURBANCE)
        super().push(own, pulled)


@functools.cache
def _crew_of(source: str, algorithm: str) -> _Crew:
    return _Crew(_config(source, algorithm), sorted(os.sched_getaffinity(0)))


def _all(examples: int) -> Range:
    return Range(ticket=0, task=Task.LOSS, start=0, stop=examples)
