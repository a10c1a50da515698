"""A run by a clock of its own: the real coordinator and policy, workers that only take time.

Balance and utilisation of machines that are not at hand: a worker is a speed, and optionally a curve of the loss over
updates, which says nothing of convergence and only drives the run.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perfguard.hetero.coordinator import Coordinator, Happening, Reaction
from perfguard.hetero.messages import Range, Report, ScheduleWork, Stop, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How long a worker takes."""

    example_s: float  # Seconds of an example in training, in a large batch
    overhead_s: float = 0.0  # Seconds of a range, whatever its size: launches, copies of the model, messages
    transfer_s: float = 0.0  # The part of the overhead that copies take
    loss_example_s: float | None = None  # Seconds of an example's loss; a third of training by default
    examples_an_update: int | None = None  # None: a range is one update

    def seconds(self, part: Range) -> float:
        """What a range takes."""
        loss_s = self.example_s / 3 if self.loss_example_s is None else self.loss_example_s
        return self.overhead_s + part.size * (self.example_s if part.task is Task.TRAIN else loss_s)

    def updates(self, part: Range) -> int:
        """What a range counts."""
        if part.task is Task.LOSS:
            return 0
        return -(-part.size // self.examples_an_update) if self.examples_an_update else 1


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
    pending: list[tuple[float, int, str, Range]] = []
    free_s = dict.fromkeys(speeds, 0.0)
    began_s: dict[int, float] = {}

    def apply(reaction: Reaction, now_s: float) -> None:
        happened.extend(reaction.happenings)
        for worker, order in reaction.orders:
            if isinstance(order, Stop):
                continue
            part = order.range
            began_s[part.ticket] = now_s
            heapq.heappush(pending, (now_s + speeds[worker].seconds(part), next(number), worker, part))

    for worker in speeds:
        apply(coordinator.receive(ScheduleWork(worker=worker), 0.0), 0.0)
    while coordinator.ending is None and pending:
        now_s, _, worker, part = heapq.heappop(pending)
        speed, began = speeds[worker], began_s.pop(part.ticket)
        report = Report(
            worker=worker,
            ticket=part.ticket,
            loss=part.size * loss(coordinator.epoch, sum(coordinator.updates.values())),
            updates=speed.updates(part),
            busy_s=now_s - began - speed.transfer_s,
            waiting_s=began - free_s[worker],
            transfer_s=speed.transfer_s,
        )
        free_s[worker] = now_s
        apply(coordinator.receive(report, now_s), now_s)
    return happened
