"""A run in real time: takes messages from workers, sends their orders, and reports what happens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from perfguard.errors import InterruptedRunError
from perfguard.hetero.coordinator import Coordinator, Reaction
from perfguard.hetero.happenings import BatchChanged, EpochEnded, Happening
from perfguard.hetero.messages import FromWorker, Range, Report, ScheduleWork, Task, ToWorker, WorkerLost
from perfguard.hetero.replay import Heard
from perfguard.records.training import Ending, GroupPace, GroupUse, Utilisation

_TICK_S = 0.25  # How often the coordinator looks at the time
_MOST_BINS = 240


class Transport(Protocol):
    """Carries messages between the coordinator and its workers."""

    def receive(self, timeout_s: float) -> Sequence[FromWorker]:
        """Messages that have come, at least one unless the time is over; lost workers are messages, too."""

    def send(self, worker: str, order: ToWorker) -> None:
        """Hand an order to a worker; one that is gone is no error here."""


@dataclass(slots=True)
class BusyTime:
    """Busy seconds of each group in bins of time, which get longer as a run does."""

    workers: Mapping[str, int]  # By group
    bin_s: float = 0.25
    _busy_s: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._busy_s = {group: [] for group in self.workers}

    def add(self, group: str, start_s: float, stop_s: float) -> None:
        """One worker of the group computed from start to stop."""
        while stop_s >= self.bin_s * _MOST_BINS:
            self.bin_s *= 2
            for name, bins in self._busy_s.items():
                self._busy_s[name] = [sum(bins[at : at + 2]) for at in range(0, len(bins), 2)]
        bins = self._busy_s[group]
        first, last = max(0, int(start_s / self.bin_s)), int(stop_s / self.bin_s)
        bins.extend([0.0] * (last + 1 - len(bins)))
        for number in range(first, last + 1):
            begin, end = number * self.bin_s, (number + 1) * self.bin_s
            bins[number] += max(0.0, min(stop_s, end) - max(start_s, begin))

    def utilisation(self, until_s: float) -> Utilisation:
        """The busy part of each bin up to a time; the last one, if it is cut short, by what it has."""
        count = math.ceil(until_s / self.bin_s)
        groups = {}
        for group, bins in self._busy_s.items():
            lengths = [min(self.bin_s, until_s - number * self.bin_s) * self.workers[group] for number in range(count)]
            whole = [*bins, *([0.0] * count)][:count]
            groups[group] = tuple(min(1.0, busy / length) for busy, length in zip(whole, lengths, strict=True))
        return Utilisation(bin_s=self.bin_s, groups=groups)


@dataclass(slots=True)
class Paces:
    """How long each group's ranges take, by sums over them: least squares needs no more."""

    _sums: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, group: str, part: Range, report: Report, took_s: float) -> None:
        """A range was answered so many seconds after its order."""
        sums = self._sums.setdefault(group, dict.fromkeys(_SUMS, 0.0))
        sums["ranges"] += 1
        sums["latency"] += max(0.0, took_s - report.busy_s - report.transfer_s)
        if part.task is Task.LOSS:
            sums["evaluated"] += part.size
            sums["evaluating"] += report.busy_s
            return
        updates, size, busy_s = report.updates, part.size, report.busy_s
        sums["trained"] += 1
        sums["transfer"] += report.transfer_s
        # Relative errors count, so that long ranges do not drown short ones.
        weight = 1.0 / busy_s**2 if busy_s > 0 else 0.0
        sums["uu"] += weight * updates * updates
        sums["us"] += weight * updates * size
        sums["ss"] += weight * size * size
        sums["ut"] += weight * updates * busy_s
        sums["st"] += weight * size * busy_s

    def paces(self) -> dict[str, GroupPace]:
        """The pace of each group that trained."""
        return {group: _pace(sums) for group, sums in self._sums.items() if sums["trained"]}


_SUMS = ("ranges", "latency", "evaluated", "evaluating", "trained", "transfer", "uu", "us", "ss", "ut", "st")


def _pace(sums: Mapping[str, float]) -> GroupPace:
    """T = a · updates + b · examples with a, b >= 0; where all batches are alike, a is 0."""
    determinant = sums["uu"] * sums["ss"] - sums["us"] ** 2
    update_s, example_s = 0.0, sums["st"] / sums["ss"] if sums["ss"] else 0.0
    if determinant > 1e-6 * sums["uu"] * sums["ss"]:
        a = (sums["ut"] * sums["ss"] - sums["st"] * sums["us"]) / determinant
        b = (sums["st"] * sums["uu"] - sums["ut"] * sums["us"]) / determinant
        if a >= 0 and b >= 0:
            update_s, example_s = a, b
        elif b < 0:
            update_s, example_s = sums["ut"] / sums["uu"], 0.0
    return GroupPace(
        update_s=update_s,
        example_s=example_s,
        loss_example_s=sums["evaluating"] / sums["evaluated"] if sums["evaluated"] else example_s / 3,
        transfer_s=sums["transfer"] / sums["trained"],
        latency_s=sums["latency"] / sums["ranges"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Callbacks of a run."""

    happened: Callable[[Happening], None]
    used: Callable[[float, Mapping[str, GroupUse]], None]  # Seconds since the beginning, and each group's work
    wants_stop: Callable[[], bool] = lambda: False
    every_s: float = 1.0  # Seconds between two calls of `used`


@dataclass(slots=True)
class Drive:
    """One run from its first message to its end; `clock` gives seconds since it began."""

    coordinator: Coordinator
    transport: Transport
    clock: Callable[[], float]
    listener: Listener
    busy: BusyTime = field(init=False)
    paces: Paces = field(default_factory=Paces)
    schedule: list[tuple[float, str, int]] = field(default_factory=list)  # Changes of batches
    record: list[Heard] | None = None  # Takes what the coordinator hears, for a replay
    _told_s: float = 0.0
    _busy_before: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.busy = BusyTime(workers=dict(self.coordinator.workers_left))

    def run(self, ready: Sequence[FromWorker]) -> Ending:
        """Train to the end, beginning with what the workers said while they were started."""
        coordinator, next_tick_s = self.coordinator, 0.0
        for message in ready:
            self._hear(message, self.clock())
        while coordinator.ending is None:
            messages = self.transport.receive(max(0.0, next_tick_s - self.clock()))
            now_s = self.clock()
            for message in messages:
                if isinstance(message, Report):
                    self._measure(message, now_s)
                self._hear(message, now_s)
            if now_s >= next_tick_s:
                next_tick_s = now_s + _TICK_S
                if self.listener.wants_stop() and coordinator.ending is None:
                    self._apply(coordinator.stop(now_s))
                else:
                    self._hear(None, now_s)
                self._tell(now_s)
        self._tell(self.clock(), is_last=True)
        return coordinator.ending

    def _hear(self, message: FromWorker | None, now_s: float) -> None:
        if self.record is not None:
            self.record.append(Heard(at_s=now_s, message=message))
        known = self.coordinator
        self._apply(known.tick(now_s) if message is None else known.receive(message, now_s))

    def _measure(self, report: Report, now_s: float) -> None:
        group = self.coordinator.group_of(report.worker)
        self.busy.add(group, now_s - report.busy_s - report.transfer_s, now_s)
        held = self.coordinator.order_of(report.worker)
        if held is not None and held[0].ticket == report.ticket:
            self.paces.add(group, held[0], report, now_s - held[1])

    def _apply(self, reaction: Reaction) -> None:
        for happening in reaction.happenings:  # first, as a checkpoint must be taken before training goes on
            if isinstance(happening, BatchChanged):
                self.schedule.append((happening.at_s, happening.group, happening.batch))
            if isinstance(happening, EpochEnded):
                self._tell(happening.at_s, is_last=True)
            self.listener.happened(happening)
        for worker, order in reaction.orders:
            self.transport.send(worker, order)

    def _tell(self, now_s: float, *, is_last: bool = False) -> None:
        passed_s = now_s - self._told_s
        if passed_s <= 0 or (passed_s < self.listener.every_s and not is_last):
            return
        self._told_s = now_s
        left, found = self.coordinator.workers_left, {}
        for group, updates in self.coordinator.updates.items():
            members = [
                count for name, count in self.coordinator.counters.items() if self.coordinator.group_of(name) == group
            ]
            busy_s = sum(count.busy_s + count.transfer_s for count in members)
            ratio = (busy_s - self._busy_before.get(group, 0.0)) / (passed_s * max(1, len(members)))
            self._busy_before[group] = busy_s
            found[group] = GroupUse(
                updates=updates,
                examples=sum(count.trained for count in members),
                batch=self.coordinator.batches.get(group, 0),
                busy_ratio=min(1.0, ratio),
                worker_count=left.get(group, 0),
            )
        self.listener.used(now_s, found)


def wait_until_ready(
    transport: Transport,
    workers: Sequence[str],
    *,
    timeout_s: float,
    clock: Callable[[], float],
    wants_stop: Callable[[], bool] = lambda: False,
) -> list[FromWorker]:
    """What the workers say until each is ready or lost; those that stay silent for too long are lost.

    Raises:
        InterruptedRunError: `wants_stop` said so.
    """
    heard: dict[str, FromWorker] = {}
    deadline_s = clock() + timeout_s
    while len(heard) < len(workers) and (left_s := deadline_s - clock()) > 0:
        if wants_stop():
            raise InterruptedRunError("interrupted while the workers were started; nothing was trained")
        for message in transport.receive(min(left_s, _TICK_S)):
            if isinstance(message, (ScheduleWork, WorkerLost)):
                heard[message.worker] = message
    silent = f"was not ready after {timeout_s:g} s"
    return [heard.get(name, WorkerLost(worker=name, reason=silent)) for name in workers]
