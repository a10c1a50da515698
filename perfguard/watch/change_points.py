"""Where a case became slower or faster over the recorded runs, and whether the code can be the reason."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from perfguard.stats.change_points import change_points
from perfguard.watch.view.run_view import HistoryPoint


class ChangeCause(str, Enum):
    """What differs between the runs before and after a change of level, on one machine with one software stack."""

    CODE = "code"  # The source trees
    SAME_CODE = "same code"  # Nothing that is known: the machine, or noise
    UNKNOWN = "unknown"  # A source tree is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A case became slower or faster, and stayed so for five runs at least."""

    before: HistoryPoint  # Last run at the old level
    after: HistoryPoint  # First run at the new one
    log_ratio: float  # New level over the old one
    lower: float  # 95 % interval of it
    upper: float
    cause: ChangeCause


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOnMachine:
    """A case over the recorded runs of one machine."""

    case_id: str
    machine_id: str | None
    points: tuple[HistoryPoint, ...]  # In the order of time; never empty
    changes: tuple[ChangePoint, ...]  # Likewise


def cases_on_machines(points: Iterable[HistoryPoint]) -> tuple[CaseOnMachine, ...]:
    """The points of each case and machine, in the order in which they first appear."""
    found: dict[tuple[str, str | None], list[HistoryPoint]] = {}
    for point in points:
        found.setdefault((point.case_id, point.machine_id), []).append(point)
    return tuple(
        CaseOnMachine(case_id=case_id, machine_id=machine_id, points=tuple(runs), changes=change_points_of(runs))
        for (case_id, machine_id), runs in found.items()
    )


def change_points_of(points: Sequence[HistoryPoint]) -> tuple[ChangePoint, ...]:
    """The changes of one case on one machine, in the order of time.

    Runs with another software stack are a series of their own: what differs between the two is not the code.
    """
    stretches = (tuple(runs) for _, runs in groupby(points, key=lambda point: point.stack_id))
    return tuple(change for runs in stretches for change in _changes(runs))


def _changes(runs: Sequence[HistoryPoint]) -> Iterator[ChangePoint]:
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
