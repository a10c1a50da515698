"""A run by a clock of its own: the real coordinator and policy, workers that only take time.

Balance and utilisation of machines that are not at hand: a worker is a speed, and optionally a curve of the loss over
updates, which says nothing of convergence and only drives the run.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perfguard.hetero.coordinator import Coordinator, Reaction
from perfguard.hetero.happenings import Happening
from perfguard.hetero.messages import Evaluate, ExecuteWork, Report, ScheduleWork, Stop
from perfguard.records.training import GroupPace


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How long a worker takes."""

    example_s: float  # Seconds of training on an example
    update_s: float = 0.0  # Seconds of an update, whatever its size: launches, reading and writing the model
    transfer_s: float = 0.0  # Seconds of copies for a range
    latency_s: float = 0.0  # Seconds of messages for a range, in which the worker waits
    loss_example_s: float | None = None  # Seconds of an example's loss; a third of training by default

    @classmethod
    def of(cls, pace: GroupPace) -> Speed:
        """The speed that a run measured."""
        return cls(
            example_s=pace.example_s,
            update_s=pace.update_s,
            transfer_s=pace.transfer_s,
            latency_s=pace.latency_s,
            loss_example_s=pace.loss_example_s,
        )

    def busy_s(self, order: ExecuteWork | Evaluate) -> float:
        """Seconds of computing that an order takes."""
        if isinstance(order, ExecuteWork):
            return order.updates * self.update_s + order.range.size * self.example_s
        loss_s = self.example_s / 3 if self.loss_example_s is None else self.loss_example_s
        return order.range.size * loss_s

    def seconds(self, order: ExecuteWork | Evaluate) -> float:
        """Seconds from an order to its report."""
        return self.busy_s(order) + self.transfer_s + self.latency_s


def simulate(
    coordinator: Coordinator, speeds: Mapping[str, Speed], *, loss: Callable[[int, int], float] = lambda *_: 1.0
) -> list[Happening]:
    """Run to the end; gives what happened, and leaves the counters in the coordinator.

    Args:
        coordinator: At its beginning.
        speeds: By worker.
        loss: Mean loss of an example after so many epochs and updates.
    """
    happened: list[Happening] = []
    number = itertools.count()
    pending: list[tuple[float, int, str, ExecuteWork | Evaluate]] = []
    free_s = dict.fromkeys(speeds, 0.0)
    began_s: dict[int, float] = {}

    def apply(reaction: Reaction, now_s: float) -> None:
        happened.extend(reaction.happenings)
        for worker, order in reaction.orders:
            if isinstance(order, Stop):
                continue
            began_s[order.range.ticket] = now_s
            heapq.heappush(pending, (now_s + speeds[worker].seconds(order), next(number), worker, order))

    for worker in speeds:
        apply(coordinator.receive(ScheduleWork(worker=worker), 0.0), 0.0)
    while coordinator.ending is None and pending:
        now_s, _, worker, order = heapq.heappop(pending)
        part, speed = order.range, speeds[worker]
        began = began_s.pop(part.ticket)
        report = Report(
            worker=worker,
            ticket=part.ticket,
            loss=part.size * loss(coordinator.epoch, sum(coordinator.updates.values())),
            updates=order.updates if isinstance(order, ExecuteWork) else 0,
            busy_s=speed.busy_s(order),
            waiting_s=began - free_s[worker] + speed.latency_s,
            transfer_s=speed.transfer_s,
        )
        free_s[worker] = now_s
        apply(coordinator.receive(report, now_s), now_s)
    return happened
