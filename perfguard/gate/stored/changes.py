"""What two stored baselines of a suite differ in: times, as far as their rounds can say, and what the steps execute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfguard.errors import MeasurementError
from perfguard.profile.changes.op_counts import comparable, compare_op_counts
from perfguard.records.estimate import Interval
from perfguard.records.record import CaseNoise, StoredBaseline
from perfguard.records.run import Round
from perfguard.records.steps.ops import OpCountChange, OpCounts
from perfguard.stats.rounds import estimate_rounds

LEVEL = 0.95
"""Of the interval of a difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedBaseline:
    """A baseline with what its steps execute."""

    baseline: StoredBaseline
    """Times."""
    op_counts: Mapping[str, OpCounts] = field(default_factory=dict)
    """By case id; cases that were not counted are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseChange:
    """One case before and after a baseline update, or in two baselines."""

    case_id: str
    """The case."""
    before: CaseNoise | None
    """None where the case is new."""
    after: CaseNoise | None
    """None where the case is gone."""
    interval: Interval | None = None
    """Of the log-ratio of the times, for all that the machine's speed did in between; None where a side has too few
    rounds."""
    op_changes: tuple[OpCountChange, ...] | None = None
    """What changed in what its step executes, worst first; None where a side was not counted, or on a machine whose
    libraries choose other kernels."""

    @property
    def is_within_noise(self) -> bool:
        """Whether the rounds do not show that the times differ."""
        return self.interval is not None and self.interval.lower <= 0 <= self.interval.upper


def changes_between(before: CountedBaseline | None, after: CountedBaseline | None) -> tuple[CaseChange, ...]:
    """Each case of either baseline, with both."""
    old = before.baseline.noise if before else {}
    new = after.baseline.noise if after else {}
    return tuple(
        CaseChange(
            case_id=case_id,
            before=old.get(case_id),
            after=new.get(case_id),
            interval=_interval(before, after, case_id),
            op_changes=_op_changes(before, after, case_id),
        )
        for case_id in sorted(old.keys() | new.keys())
    )


def _interval(before: CountedBaseline | None, after: CountedBaseline | None, case_id: str) -> Interval | None:
    old, new = _rounds(before, case_id), _rounds(after, case_id)
    if not (old and new):
        return None
    try:
        interval = estimate_rounds(old, new, margin_ratio=0.0, level=LEVEL).estimate.interval
    except MeasurementError:
        return None
    return interval if math.isfinite(interval.lower) and math.isfinite(interval.upper) else None


def _rounds(side: CountedBaseline | None, case_id: str) -> Sequence[Round]:
    return side.baseline.rounds.get(case_id, ()) if side else ()


def _op_changes(
    before: CountedBaseline | None, after: CountedBaseline | None, case_id: str
) -> tuple[OpCountChange, ...] | None:
    old, new = (side.op_counts.get(case_id) if side else None for side in (before, after))
    if old is None or new is None or comparable(old, new) is not None:
        return None
    return compare_op_counts(old, new)
