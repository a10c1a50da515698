"""What each cause costs, and which of them are more than noise."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from perfguard.profile.changes.culprits.causes import Cause, Certainty, Rule
from perfguard.profile.changes.culprits.times import CULPRIT_LEVEL, family_of
from perfguard.profile.changes.diff import LEVEL, MATERIAL_RATIO, OpDiff
from perfguard.stats.moderated import IntArray, VariancePrior, mean_differences, noise_of_sums, prior_of_sums
from perfguard.stats.multiple import benjamini_hochberg


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
    result = [cause for cause in causes if cause.rule is not Rule.TIME]
    families: dict[Hashable, list[Cause]] = defaultdict(list)
    for cause in causes:
        if cause.rule is Rule.TIME:
            families[family_of(diff, cause.columns[0])].append(cause)
    for parts in families.values():
        rises = {bool(diff.differences.mean[list(part.columns)].sum() > 0) for part in parts}
        if len(rises) > 1:
            result.extend(parts)
            continue
        columns = tuple(sorted(column for part in parts for column in part.columns))
        result.append(Cause(rule=Rule.TIME, certainty=Certainty.SIGNIFICANT, columns=columns))
    return result


def by_part(diff: OpDiff, weighed: WeighedCause) -> tuple[int, ...]:
    """The cause's ops, those first that drive it most in its own direction."""
    sign = math.copysign(1.0, weighed.delta_s)
    return tuple(sorted(weighed.cause.columns, key=lambda column: -sign * float(diff.differences.mean[column])))
