"""The coordinator: a state machine that hands out examples, counts updates and survives its workers.

Messages and the time go in, messages to workers and events come out; it waits for nothing and starts nothing. So the
same coordinator serves processes, other hosts and the simulator, and a recorded run can be replayed.

An epoch has two phases, timed apart: all examples are handed out once for training, then once for the loss. Ranges are
contiguous and come from one index; how long each is, a policy decides when it is asked for.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from perfguard.errors import UsageError
from perfguard.hetero.happenings import BatchChanged, EpochEnded, Happening, RangeReturned, RunEnded, WorkerGone
from perfguard.hetero.messages import (
    Evaluate,
    ExecuteWork,
    FromWorker,
    Range,
    Report,
    ScheduleWork,
    Stop,
    Task,
    ToWorker,
    WorkerLost,
)
from perfguard.hetero.plan import TrainingPlan
from perfguard.hetero.policies import BatchPolicy
from perfguard.records.training import Counters, Ending, Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of a run at the end of an epoch."""

    epoch: int
    at_s: float
    trained_s: float
    updates: Mapping[str, int]
    batches: Mapping[str, int]
    counters: Mapping[str, Counters]


_SILENT = "no answer in time"


@dataclass(slots=True)
class _Outstanding:
    range: Range
    since_s: float
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Reaction:
    """What follows from a message or from the time."""

    orders: tuple[tuple[str, ToWorker], ...] = ()  # By worker, in order
    happenings: tuple[Happening, ...] = ()


@dataclass(slots=True)
class Coordinator:
    """State of one run; `now_s` is the time since it began, and never goes back."""

    plan: TrainingPlan
    policy: BatchPolicy
    counters: dict[str, Counters] = field(init=False)
    start: Snapshot | None = None  # An earlier run that this one goes on from
    epoch: int = 0  # Epochs of training that have ended
    ending: Ending | None = None
    _task: Task = Task.LOSS  # The loss before the first update is the run's first
    _groups: dict[str, str] = field(init=False)
    _evaluators: frozenset[str] = field(init=False)  # Workers that compute losses
    _updates: dict[str, int] = field(init=False)
    _batches: dict[str, int] = field(default_factory=dict)
    _idle: dict[str, None] = field(default_factory=dict)  # In the order in which they became so
    _lost: set[str] = field(default_factory=set)
    _outstanding: dict[str, _Outstanding] = field(default_factory=dict)
    _returned: deque[tuple[int, int]] = field(default_factory=deque)
    _next: int = 0
    _tickets: int = 0
    _loss: float = 0.0
    _best_s: dict[tuple[str, Task], float] = field(default_factory=dict)  # Seconds of an example, by group
    _phase_began_s: float = 0.0
    _train_s: float = 0.0
    _trained_s: float = 0.0

    def __post_init__(self) -> None:
        self.counters = {member.name: Counters() for member in self.plan.members}
        self._groups = {member.name: member.group for member in self.plan.members}
        self._evaluators = frozenset(member.name for member in self.plan.members if member.makes_losses)
        self._updates = dict.fromkeys(sorted(set(self._groups.values())), 0)
        if self.start is not None:
            self._go_on_from(self.start)

    def _go_on_from(self, start: Snapshot) -> None:
        """Begin with the training phase after a snapshot. Workers that it does not know begin at zero."""
        self.epoch, self._trained_s, self._task = start.epoch, start.trained_s, Task.TRAIN
        self._phase_began_s = start.at_s
        self._updates |= {group: count for group, count in start.updates.items() if group in self._updates}
        self.counters |= {name: replace(known) for name, known in start.counters.items() if name in self.counters}
        self.policy.resume(start.batches, self._updates)

    def snapshot(self, now_s: float) -> Snapshot:
        """What a later run needs to go on from here; of use where an epoch has just ended."""
        return Snapshot(
            epoch=self.epoch,
            at_s=now_s,
            trained_s=self._trained_s,
            updates=dict(self._updates),
            batches=dict(self._batches),
            counters={name: replace(known) for name, known in self.counters.items()},
        )

    def order_of(self, worker: str) -> tuple[Range, float] | None:
        """The range that a worker has, and since when."""
        held = self._outstanding.get(worker)
        return None if held is None else (held.range, held.since_s)

    def group_of(self, worker: str) -> str:
        """The group of a worker."""
        return self._groups[worker]

    @property
    def batches(self) -> Mapping[str, int]:
        """Examples of each group's last range."""
        return self._batches

    @property
    def workers_left(self) -> Mapping[str, int]:
        """Workers that are not lost, by group."""
        return Counter(group for name, group in self._groups.items() if name not in self._lost)

    def trained_s(self, now_s: float) -> float:
        """Seconds of training so far, without losses."""
        return self._trained_s + (now_s - self._phase_began_s if self._task is Task.TRAIN else 0.0)

    @property
    def updates(self) -> Mapping[str, int]:
        """Updates by group since the run began."""
        return self._updates

    def receive(self, message: FromWorker, now_s: float) -> Reaction:
        """React to what a worker says; messages of workers that are lost change nothing."""
        if message.worker not in self._groups:
            raise UsageError(f"{message.worker!r} is no worker of this run")
        if self.ending is not None or message.worker in self._lost:
            return Reaction()
        out = _Collected()
        if isinstance(message, ScheduleWork):
            if message.worker not in self._outstanding:
                self._idle[message.worker] = None
        elif isinstance(message, WorkerLost):
            self._lose(message, now_s, out)
        else:
            self._take(message, now_s, out)
        self._go_on(now_s, out)
        return out.reaction()

    def tick(self, now_s: float) -> Reaction:
        """React to the time: ranges that are late, and the end of the run's time."""
        out = _Collected()
        if self.ending is None and now_s >= self.plan.goal.time_s:
            self._end(Ending.TIME, now_s, out)
        if self.ending is None:
            for worker, held in self._outstanding.items():
                if not held.is_late and now_s - held.since_s > self._patience_s(worker, held.range):
                    held.is_late = True
                    self._return(worker, held.range, _SILENT, now_s, out, is_late=True)
            self._give_up(now_s, out)
            self._go_on(now_s, out)
        return out.reaction()

    def stop(self, now_s: float) -> Reaction:
        """End the run because somebody asked for it."""
        out = _Collected()
        if self.ending is None:
            self._end(Ending.ASKED, now_s, out)
        return out.reaction()

    # Messages

    def _take(self, report: Report, now_s: float, out: _Collected) -> None:
        held = self._outstanding.get(report.worker)
        if held is None or held.range.ticket != report.ticket:
            return  # an answer to nothing that was asked
        del self._outstanding[report.worker]
        self._idle[report.worker] = None
        counters, group, part = self.counters[report.worker], self._groups[report.worker], held.range
        # Updates of a late range were made all the same; its examples count where it was handed out again.
        counters.updates += report.updates
        counters.busy_s += report.busy_s
        counters.waiting_s += report.waiting_s
        counters.transfer_s += report.transfer_s
        if part.task is Task.TRAIN:
            counters.training_s += report.busy_s + report.transfer_s
        self._updates[group] += report.updates
        if not math.isfinite(report.loss):
            self._end(Ending.DIVERGED, now_s, out)
            return
        took_s = (now_s - held.since_s) / part.size
        known_s = self._best_s.get((group, part.task), math.inf)
        self._best_s[group, part.task] = min(known_s, took_s)  # also of a late one, or slow workers would stay late
        if held.is_late:
            return
        if part.task is Task.TRAIN:
            counters.trained += part.size
        else:
            counters.evaluated += part.size
            self._loss += report.loss

    def _lose(self, message: WorkerLost, now_s: float, out: _Collected) -> None:
        self._lost.add(message.worker)
        out.happenings.append(WorkerGone(at_s=now_s, worker=message.worker, reason=message.reason))
        self._idle.pop(message.worker, None)
        held = self._outstanding.pop(message.worker, None)
        if held is not None and not held.is_late:
            self._return(message.worker, held.range, message.reason, now_s, out, is_late=False)

    def _give_up(self, now_s: float, out: _Collected) -> None:
        """Lose the workers that have been silent for twice their patience, where no other one is left."""
        silent = [
            worker
            for worker, held in self._outstanding.items()
            if held.is_late and now_s - held.since_s > 2 * self._patience_s(worker, held.range)
        ]
        if len(silent) == len(self._groups) - len(self._lost):
            for worker in silent:
                self._lose(WorkerLost(worker=worker, reason=_SILENT), now_s, out)

    def _return(self, worker: str, part: Range, reason: str, now_s: float, out: _Collected, *, is_late: bool) -> None:
        self._returned.append((part.start, part.stop))
        self.counters[worker].ranges_returned += 1
        out.happenings.append(RangeReturned(at_s=now_s, worker=worker, range=part, reason=reason, is_late=is_late))

    def _patience_s(self, worker: str, part: Range) -> float:
        best_s = self._best_s.get((self._groups[worker], part.task), 0.0)
        return max(self.plan.patience.floor_s, self.plan.patience.factor * best_s * part.size)

    # Work

    def _go_on(self, now_s: float, out: _Collected) -> None:
        """Hand out what there is, and begin the next phase where nothing is left of this one."""
        if self.ending is None and len(self._lost) == len(self._groups):
            self._end(Ending.NO_WORKERS, now_s, out)
        while self.ending is None:
            for worker in self._willing():
                part = self._part_for(worker, now_s, out)
                if part is None:
                    break
                del self._idle[worker]
                self._outstanding[worker] = _Outstanding(part, now_s)
                out.orders.append((worker, self._order(worker, part)))
            is_done = self._next >= self.plan.examples and not self._returned
            if not is_done or any(not held.is_late for held in self._outstanding.values()):
                if not is_done and self._task is Task.LOSS and self._evaluators <= self._lost:
                    self._end(Ending.NO_WORKERS, now_s, out)
                return
            self._end_phase(now_s, out)

    def _willing(self) -> list[str]:
        return [worker for worker in self._idle if self._task is Task.TRAIN or worker in self._evaluators]

    def _part_for(self, worker: str, now_s: float, out: _Collected) -> Range | None:
        if not self._returned and self._next >= self.plan.examples:
            return None
        is_training = self._task is Task.TRAIN
        batch = self._batch_of(self._groups[worker], now_s, out) if is_training else self.plan.loss_batch
        if self._returned:
            start, stop = self._returned.popleft()
            if stop - start > batch:  # it was a batch of another group
                self._returned.appendleft((start + batch, stop))
                stop = start + batch
        else:
            start, stop = self._next, min(self._next + batch, self.plan.examples)
            if is_training and self.plan.tail is Tail.OVERLAP:
                start = max(0, stop - batch)
            self._next = stop
        self._tickets += 1
        return Range(ticket=self._tickets, task=self._task, start=start, stop=stop)

    def _batch_of(self, group: str, now_s: float, out: _Collected) -> int:
        batch = self.plan.limits[group].clamp(self.policy.next_batch(group, self._updates_of_those_left()))
        if self._batches.get(group) != batch:
            self._batches[group] = batch
            out.happenings.append(BatchChanged(at_s=now_s, group=group, batch=batch))
        return batch

    def _updates_of_those_left(self) -> Mapping[str, int]:
        """Updates of groups that still have workers: the others will not catch up."""
        if not self._lost:
            return self._updates
        left = self.workers_left
        return {group: count for group, count in self._updates.items() if group in left}

    def _order(self, worker: str, part: Range) -> ToWorker:
        if part.task is Task.LOSS:
            return Evaluate(range=part)
        group = self._groups[worker]
        # As many examples an update as in a whole batch, also where a range is shorter than one.
        wanted = -(-part.size * self.plan.pieces.get(group, 1) // self._batches[group])
        updates = min(part.size, max(1, wanted))
        return ExecuteWork(range=part, updates=updates, learning_rate=self.plan.rate_of(part.size / updates))

    # Phases

    def _end_phase(self, now_s: float, out: _Collected) -> None:
        took_s = now_s - self._phase_began_s
        self._phase_began_s, self._next = now_s, 0
        if self._task is Task.TRAIN:
            self._train_s, self._task, self._loss = took_s, Task.LOSS, 0.0
            self._trained_s += took_s
            self.epoch += 1
            return
        loss = self._loss / self.plan.examples
        out.happenings.append(
            EpochEnded(
                epoch=self.epoch, at_s=now_s, train_s=self._train_s, trained_s=self._trained_s, loss_s=took_s,
                loss=loss, updates=dict(self._updates),
            )
        )  # fmt: skip
        self._task, self._loss = Task.TRAIN, 0.0
        goal = self.plan.goal
        if goal.target_loss is not None and loss <= goal.target_loss:
            self._end(Ending.TARGET, now_s, out)
        elif self.epoch >= goal.epochs:
            self._end(Ending.EPOCHS, now_s, out)

    def _end(self, ending: Ending, now_s: float, out: _Collected) -> None:
        self.ending = ending
        out.orders.extend((worker, Stop()) for worker in self._groups if worker not in self._lost)
        out.happenings.append(RunEnded(at_s=now_s, ending=ending))


@dataclass(slots=True)
class _Collected:
    orders: list[tuple[str, ToWorker]] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)

    def reaction(self) -> Reaction:
        return Reaction(tuple(self.orders), tuple(self.happenings))
