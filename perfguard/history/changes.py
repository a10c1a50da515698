"""Where a case became slower or faster over the recorded runs, and whether the code can be the reason."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from perfguard.records.history import HistoryPoint


class ChangeCause(str, Enum):
    """What differs between the runs before and after a change of level, on one machine with one software stack."""

    CODE = "code"  # The source trees
    SAME_CODE = "same code"  # Nothing that is known: the machine, or noise
    WITHIN_NOISE = "within noise"  # The source trees, but this case changed as much there without them
    UNKNOWN = "unknown"  # A source tree is not known


class ChangeState(str, Enum):
    """What people have said of a change."""

    NEW = "new"  # Nothing
    ACKNOWLEDGED = "acknowledged"  # It is known, and stays
    FIXED = "fixed"
    NOISE = "noise"
    INFRASTRUCTURE = "infrastructure"  # The machine or its software, not the code


_NOT_THE_CODE = (ChangeState.NOISE, ChangeState.INFRASTRUCTURE)


class StatedChange(Struct, frozen=True, kw_only=True):
    """A state that somebody gave a change."""

    run_id: str  # First run at the new level when it was said
    state: ChangeState
    author: str
    reason: str
    stated_at: float  # Seconds since the epoch


States = Mapping[tuple[str, "str | None"], Sequence[StatedChange]]
"""What was said of the changes of each case and machine, in the order of time."""
_NONE: States = {}


class ChangePoint(Struct, frozen=True, kw_only=True):
    """A case became slower or faster, and stayed so for five runs at least."""

    before: HistoryPoint  # Last run at the old level
    after: HistoryPoint  # First run at the new one
    log_ratio: float  # New level over the old one
    lower: float  # 95 % interval of it
    upper: float
    cause: ChangeCause
    state: ChangeState = ChangeState.NEW
    stated: StatedChange | None = None  # Who said so, and why; None for new ones

    @property
    def is_of_the_code(self) -> bool:
        """Whether the code may be the reason, and nobody has said otherwise."""
        return self.cause is ChangeCause.CODE and self.state not in _NOT_THE_CODE


class CaseOnMachine(Struct, frozen=True, kw_only=True):
    """A case over the recorded runs of one machine."""

    case_id: str
    machine_id: str | None
    points: tuple[HistoryPoint, ...]  # In the order of time; never empty
    changes: tuple[ChangePoint, ...]  # Likewise


def cases_on_machines(points: Iterable[HistoryPoint], states: States = _NONE) -> tuple[CaseOnMachine, ...]:
    """The points of each case and machine, in the order in which they first appear."""
    found: dict[tuple[str, str | None], list[HistoryPoint]] = {}
    for point in points:
        found.setdefault((point.case_id, point.machine_id), []).append(point)
    return tuple(
        CaseOnMachine(
            case_id=case_id,
            machine_id=machine_id,
            points=tuple(runs),
            changes=change_points_of(runs, states.get((case_id, machine_id), ())),
        )
        for (case_id, machine_id), runs in found.items()
    )


def change_points_of(points: Sequence[HistoryPoint], stated: Sequence[StatedChange] = ()) -> tuple[ChangePoint, ...]:
    """The changes of one case on one machine, in the order of time.

    Runs with another software stack are a series of their own: what differs between the two is not the code. A change
    no larger than one with the same code, or than one that people called noise or infrastructure, is within the noise.
    """
    stretches = (tuple(runs) for _, runs in groupby(points, key=lambda point: point.stack_id))
    found = [_with_state(change, points, stated) for runs in stretches for change in _changes(runs)]
    noise = max((abs(change.log_ratio) for change in found if _is_noise(change)), default=0.0)
    return tuple(
        replace(change, cause=ChangeCause.WITHIN_NOISE)
        if change.is_of_the_code and abs(change.log_ratio) <= noise
        else change
        for change in found
    )


def _changes(runs: Sequence[HistoryPoint]) -> Iterator[ChangePoint]:
    from perfguard.stats.change_points import change_points  # brings SciPy

    for jump in change_points([math.log(run.median_s) for run in runs]):
        before, after = runs[jump.index - 1], runs[jump.index]
        yield ChangePoint(
            before=before,
            after=after,
            log_ratio=jump.log_ratio,
            lower=jump.lower,
            upper=jump.upper,
            cause=_cause(before, after),
        )


def _cause(before: HistoryPoint, after: HistoryPoint) -> ChangeCause:
    if before.source_id is None or after.source_id is None:
        return ChangeCause.UNKNOWN
    return ChangeCause.SAME_CODE if before.source_id == after.source_id else ChangeCause.CODE


def _is_noise(change: ChangePoint) -> bool:
    return change.cause is ChangeCause.SAME_CODE or change.state in _NOT_THE_CODE


def _with_state(change: ChangePoint, points: Sequence[HistoryPoint], stated: Sequence[StatedChange]) -> ChangePoint:
    """The change with what was said of it last; its first run may have moved by less than a level's length since."""
    from perfguard.stats.change_points import LEAST_POINTS

    if not stated:
        return change
    places = {point.run_id: place for place, point in enumerate(points)}
    place = places[change.after.run_id]
    near = [each for each in stated if abs(places.get(each.run_id, -LEAST_POINTS) - place) < LEAST_POINTS]
    return replace(change, state=near[-1].state, stated=near[-1]) if near else change
