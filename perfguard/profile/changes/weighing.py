"""What each cause costs, which of them are more than noise, and which costs only moved."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from perfguard.profile.changes.causes import CULPRIT_LEVEL, Cause, CauseKind, Certainty, family_of
from perfguard.profile.changes.diff import LEVEL, MATERIAL_RATIO, OpDiff
from perfguard.records.steps.ops import StepBalance
from perfguard.stats.moderated import IntArray, VariancePrior, mean_differences, noise_of_sums, prior_of_sums
from perfguard.stats.p_values import benjamini_hochberg

SIMILAR = 0.25
"""A rise and a fall are the same cost where they differ by at most this part of the larger one, and a step is unchanged
where it differs by at most this part of the rise, if no interval says it."""
MIRRORED = 0.15
"""The same where the step did change, so that the rise could as well be its cause: nearer, and no other to choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedCause:
    """A cause and its cost."""

    cause: Cause
    """The ops."""
    delta_s: float
    """Seconds in a step, candidate minus baseline."""
    lower_s: float
    """Lower end of the 95 % interval; -inf where it is unknown."""
    upper_s: float
    """Upper end; inf where it is unknown."""
    p: float
    """Two-sided, of H0 `no difference`; 1 where nothing can be said."""

    @property
    def is_significant(self) -> bool:
        """Whether its own interval excludes 0."""
        return self.lower_s > 0 or self.upper_s < 0

    @property
    def is_within_noise(self) -> bool:
        """Whether its own interval includes 0; not where there is none."""
        return math.isfinite(self.upper_s) and not self.is_significant


def established(diff: OpDiff, causes: Sequence[Cause]) -> list[WeighedCause]:
    """Causes that are facts or significant, and matter; neighbours in one family become one.

    Args:
        diff: The comparison.
        causes: All of them, every op in one.
    """
    prior = prior_of_sums(diff.ops.deltas_s, diff.levels_s, diff.noise, [_columns(cause) for cause in causes])
    weighed = _weighed(diff, causes, prior)
    q = iter(benjamini_hochberg([item.p for item in weighed if item.cause.certainty is Certainty.OPEN]))
    kept = [item.cause for item in weighed if item.cause.certainty is not Certainty.OPEN or next(q) <= CULPRIT_LEVEL]
    least_s = MATERIAL_RATIO * diff.step_s
    return [item for item in _weighed(diff, _merged(diff, kept), prior) if _matters(item, least_s)]


def _matters(item: WeighedCause, least_s: float) -> bool:
    """Whether its cost is large enough, or what is a fact may cost as much for all that is known."""
    if item.cause.certainty is Certainty.EXACT and item.is_within_noise:
        return max(-item.lower_s, item.upper_s) >= least_s
    return abs(item.delta_s) >= least_s


def _columns(cause: Cause) -> IntArray:
    return np.array(cause.columns, dtype=np.intp)


def _weighed(diff: OpDiff, causes: Sequence[Cause], prior: VariancePrior | None) -> list[WeighedCause]:
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
    return [
        WeighedCause(
            cause=cause,
            delta_s=float(found.mean[position]),
            lower_s=float(found.lower[position]),
            upper_s=float(found.upper[position]),
            p=float(found.p[position]),
        )
        for position, cause in enumerate(causes)
    ]


def _merged(diff: OpDiff, causes: Sequence[Cause]) -> list[Cause]:
    """Where all that is known of a family points one way, single ops and their rest are one slowdown."""
    result = [cause for cause in causes if cause.kind is not CauseKind.TIME]
    families: dict[Hashable, list[Cause]] = defaultdict(list)
    for cause in causes:
        if cause.kind is CauseKind.TIME:
            families[family_of(diff, cause.columns[0])].append(cause)
    for parts in families.values():
        rises = {bool(diff.differences.mean[list(part.columns)].sum() > 0) for part in parts}
        if len(rises) > 1:
            result.extend(parts)
            continue
        columns = tuple(sorted(column for part in parts for column in part.columns))
        result.append(Cause(kind=CauseKind.TIME, certainty=Certainty.SIGNIFICANT, columns=columns))
    return result


def by_part(diff: OpDiff, weighed: WeighedCause) -> tuple[int, ...]:
    """The cause's ops, those first that drive it most in its own direction."""
    sign = math.copysign(1.0, weighed.delta_s)
    return tuple(sorted(weighed.cause.columns, key=lambda column: -sign * float(diff.differences.mean[column])))


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedCost:
    """A cost that left some ops and came to others."""

    rises: tuple[WeighedCause, ...]
    """Where it came to; not empty."""
    falls: tuple[WeighedCause, ...]
    """Where it left; not empty."""


def moved_costs(causes: Sequence[WeighedCause], balance: StepBalance) -> tuple[MovedCost, ...]:
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
    pairs = _nearest_pairs(rises, falls)
    used = {cause for pair in pairs for cause in (*pair.rises, *pair.falls)}
    rises, falls = ([cause for cause in side if cause not in used] for side in (rises, falls))
    if rises and falls and _similar(_total(rises), _total(falls), SIMILAR):
        pairs.append(MovedCost(rises=tuple(rises), falls=tuple(falls)))
    return tuple(pairs)


def _step_is_unchanged(balance: StepBalance, rise_s: float) -> bool:
    if abs(balance.delta_s) < MATERIAL_RATIO * balance.baseline_s:
        return True
    if math.isfinite(balance.lower_s):
        return balance.lower_s <= 0 <= balance.upper_s
    return abs(balance.delta_s) <= SIMILAR * rise_s


def _nearest_pairs(rises: Sequence[WeighedCause], falls: Sequence[WeighedCause]) -> list[MovedCost]:
    """Largest rise first, each with the fall that is nearest to it in size."""
    left = list(falls)
    pairs = []
    for rise in rises:
        fall = min(left, key=lambda cause: abs(cause.delta_s + rise.delta_s), default=None)
        if fall is not None and _similar(rise.delta_s, fall.delta_s, SIMILAR):
            left.remove(fall)
            pairs.append(MovedCost(rises=(rise,), falls=(fall,)))
    return pairs


def _mirrored(rises: Sequence[WeighedCause], falls: Sequence[WeighedCause]) -> list[MovedCost]:
    """Pairs in which each is the only one of about the other's size."""
    pairs = []
    for rise in rises:
        near = [fall for fall in falls if _similar(rise.delta_s, fall.delta_s, 2 * MIRRORED)]
        if len(near) != 1 or not _similar(rise.delta_s, near[0].delta_s, MIRRORED):
            continue
        rivals = [other for other in rises if _similar(other.delta_s, near[0].delta_s, 2 * MIRRORED)]
        if len(rivals) == 1:
            pairs.append(MovedCost(rises=(rise,), falls=(near[0],)))
    return pairs


def _similar(rise_s: float, fall_s: float, tolerance: float) -> bool:
    return abs(rise_s + fall_s) <= tolerance * max(rise_s, -fall_s)


def _total(causes: Sequence[WeighedCause]) -> float:
    return sum(cause.delta_s for cause in causes)
