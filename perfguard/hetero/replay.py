"""A recorded schedule, run again: the same messages at the same times, and the same work in the same order.

Live workers race, so two runs of one seed differ. A recording of what the coordinator heard fixes who had which range,
and when it was answered; carried out one after the other in that order, training is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from perfguard.hetero.coordinator import Coordinator, Reaction
from perfguard.hetero.happenings import Happening
from perfguard.hetero.messages import Evaluate, ExecuteWork, FromWorker, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A message that the coordinator got, or a look at the time."""

    at_s: float
    message: FromWorker | None = None  # None: the time alone


def replay(coordinator: Coordinator, schedule: Sequence[Heard]) -> list[Reaction]:
    """The reactions to a recording; equal to those of the recorded run for the same plan and policy.

    Args:
        coordinator: At its beginning.
        schedule: In the order of the run.
    """
    return [_react(coordinator, heard) for heard in schedule]


def retrain(
    coordinator: Coordinator, schedule: Sequence[Heard], work: Callable[[str, ExecuteWork | Evaluate], float]
) -> list[Happening]:
    """Do the recorded work again, each range when it was answered; gives what happened, with the losses of now.

    Args:
        coordinator: At its beginning.
        schedule: In the order of the run.
        work: Carries out a worker's order and gives the sum of the losses of its examples.
    """
    held: dict[tuple[str, int], ExecuteWork | Evaluate] = {}
    happened: list[Happening] = []
    for heard in schedule:
        message = heard.message
        if isinstance(message, Report) and (order := held.pop((message.worker, message.ticket), None)) is not None:
            heard = replace(heard, message=msgspec.structs.replace(message, loss=work(message.worker, order)))  # noqa: PLW2901
        reaction = _react(coordinator, heard)
        happened += reaction.happenings
        for worker, given in reaction.orders:
            if isinstance(given, (ExecuteWork, Evaluate)):
                held[worker, given.range.ticket] = given
    return happened


def _react(coordinator: Coordinator, heard: Heard) -> Reaction:
    if heard.message is None:
        return coordinator.tick(heard.at_s)
    return coordinator.receive(heard.message, heard.at_s)
