"""What each cause costs, which of them are more than noise, and which costs only moved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfguard.profile.changes.causes import CULPRIT_LEVEL, family_of
from perfguard.profile.changes.counted import grouped
from perfguard.profile.changes.diff import LEVEL, MATERIAL_RATIO, OpDiff
from perfguard.profile.changes.paired_ops import Cause, CauseKind, Certainty
from perfguard.records.steps.ops import StepBalance
from perfguard.stats.moderated import IntArray, VariancePrior, mean_differences, noise_of_sums, prior_of_sums
from perfguard.stats.multiple import benjamini_hochberg

SIMILAR = 0.25
"""A rise and a fall are the same cost where they differ by at most this part of the larger one, and a step is unchanged
where it differs by at most this part of the rise, if no interval says it."""
MIRRORED = 0.15
"""The same where the step did change, so that the rise could as well be its cause: nearer, and no other to choose."""


def established(diff: OpDiff, causes: Sequence[Cause]) -> list[Cause]:
    """Causes that are facts or significant, and matter, with their costs; neighbours in one family become one.

    Args:
        diff: The comparison.
        causes: All of them, every op in one.
    """
    prior = prior_of_sums(diff.ops.deltas_s, diff.levels_s, diff.noise, [_columns(cause) for cause in causes])
    weighed = _weighed(diff, causes, prior)
    q = iter(benjamini_hochberg([cause.p for cause in weighed if cause.certainty is Certainty.OPEN]))
    kept = [cause for cause in weighed if cause.certainty is not Certainty.OPEN or next(q) <= CULPRIT_LEVEL]
    least_s = MATERIAL_RATIO * diff.step_s
    return [_by_part(diff, cause) for cause in _weighed(diff, _merged(diff, kept), prior) if _matters(cause, least_s)]


def _matters(cause: Cause, least_s: float) -> bool:
    """Whether its cost is large enough, or what is a fact may cost as much for all that is known."""
    if cause.is_exact and cause.is_within_noise:
        return max(-cause.lower_s, cause.upper_s) >= least_s
    return abs(cause.delta_s) >= least_s


def _columns(cause: Cause) -> IntArray:
    return np.array(cause.columns, dtype=np.intp)


def _weighed(diff: OpDiff, causes: Sequence[Cause], prior: VariancePrior | None) -> list[Cause]:
    groups = [_columns(cause) for cause in causes]
    if not groups:
        return []
    deltas_s = diff.ops.deltas_s
    found = mean_differences(
        np.stack([deltas_s[:, columns].sum(axis=1) for columns in groups], axis=1),
        np.array([diff.levels_s[columns].sum() for columns in groups]),
        noise_of_sums(deltas_s, diff.levels_s, diff.noise, groups, prior),
        level=LEVEL,
        # One cost of an event is taken for all ops, so its error adds up.
        extra_error=np.array([diff.ops.overhead_error_s[columns].sum() for columns in groups]),
    )
    costs = zip(found.mean.tolist(), found.lower.tolist(), found.upper.tolist(), found.p.tolist(), strict=True)
    return [
        replace(cause, delta_s=delta_s, lower_s=lower_s, upper_s=upper_s, p=p)
        for cause, (delta_s, lower_s, upper_s, p) in zip(causes, costs, strict=True)
    ]


def _merged(diff: OpDiff, causes: Sequence[Cause]) -> list[Cause]:
    """Where all that is known of a family points one way, single ops and their rest are one slowdown."""
    result = [cause for cause in causes if cause.kind is not CauseKind.TIME]
    times = (cause for cause in causes if cause.kind is CauseKind.TIME)
    for parts in grouped(times, lambda cause: family_of(diff, cause.columns[0])).values():
        if len({diff.mean_s(part.columns) > 0 for part in parts}) > 1:
            result.extend(parts)
            continue
        columns = tuple(sorted(column for part in parts for column in part.columns))
        result.append(Cause(kind=CauseKind.TIME, certainty=Certainty.SIGNIFICANT, columns=columns))
    return result


def _by_part(diff: OpDiff, cause: Cause) -> Cause:
    """The cause with those ops first that drive it most in its own direction."""
    sign = math.copysign(1.0, cause.delta_s)
    return replace(cause, columns=tuple(sorted(cause.columns, key=lambda column: -sign * diff.mean_s([column]))))


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedCost:
    """A cost that left some ops and came to others."""

    rises: tuple[Cause, ...]
    """Where it came to; not empty."""
    falls: tuple[Cause, ...]
    """Where it left; not empty."""

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Both."""
        return (*self.rises, *self.falls)

    @property
    def moved_s(self) -> float:
        """Seconds that came."""
        return sum(rise.delta_s for rise in self.rises)


def moved_costs(causes: Sequence[Cause], balance: StepBalance) -> tuple[MovedCost, ...]:
    """Rises and falls that make up for each other, all of them significant where intervals are known.

    The first op that touches fresh memory pays its page faults, and the first that needs a reordered tensor pays for
    the reorder. Which op that is may change with any small thing, so nothing is blamed for it.
    """
    shown = [cause for cause in causes if cause.is_significant or math.isinf(cause.upper_s)]
    rises = sorted((cause for cause in shown if cause.delta_s > 0), key=lambda cause: -cause.delta_s)
    falls = sorted((cause for cause in shown if cause.delta_s < 0), key=lambda cause: cause.delta_s)
    if not rises or not falls:
        return ()
    if not _step_is_unchanged(balance, rises[0].delta_s):
        return tuple(_mirrored(rises, falls))
    pairs, left = [], []
    for rise in rises:  # the largest first, each with the fall that is nearest to it in size
        fall = min(falls, key=lambda cause: abs(cause.delta_s + rise.delta_s), default=None)
        if fall is not None and _similar([rise], [fall], SIMILAR):
            falls.remove(fall)
            pairs.append(MovedCost(rises=(rise,), falls=(fall,)))
        else:
            left.append(rise)
    if left and falls and _similar(left, falls, SIMILAR):
        pairs.append(MovedCost(rises=tuple(left), falls=tuple(falls)))
    return tuple(pairs)


def _step_is_unchanged(balance: StepBalance, rise_s: float) -> bool:
    if abs(balance.delta_s) < MATERIAL_RATIO * balance.baseline_s:
        return True
    if math.isfinite(balance.lower_s):
        return balance.lower_s <= 0 <= balance.upper_s
    return abs(balance.delta_s) <= SIMILAR * rise_s


def _mirrored(rises: Sequence[Cause], falls: Sequence[Cause]) -> Iterable[MovedCost]:
    """Pairs in which each is the only one of about the other's size."""
    for rise in rises:
        near = [fall for fall in falls if _similar([rise], [fall], 2 * MIRRORED)]
        if len(near) == 1 and _similar([rise], near, MIRRORED):
            rivals = [other for other in rises if _similar([other], near, 2 * MIRRORED)]
            if len(rivals) == 1:
                yield MovedCost(rises=(rise,), falls=(near[0],))


def _similar(rises: Sequence[Cause], falls: Sequence[Cause], tolerance: float) -> bool:
    rise_s, fall_s = (sum(cause.delta_s for cause in side) for side in (rises, falls))
    return abs(rise_s + fall_s) <= tolerance * max(rise_s, -fall_s)
