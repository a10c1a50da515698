"""Costs that only moved: one cause rose, another fell, and the step took no notice.

The first op that touches fresh memory pays its page faults, and the first that needs a reordered tensor pays for the
reorder. Which op that is may change with any small thing. It is told, and nothing is blamed for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfguard.profile.changes.culprits.weighing import WeighedCause
from perfguard.profile.changes.diff import MATERIAL_RATIO
from perfguard.records.steps.ops import StepBalance

SIMILAR = 0.25
"""A rise and a fall are the same cost where they differ by at most this part of the larger one, and a step is unchanged
where it differs by at most this part of the rise, if no interval says it."""
MIRRORED = 0.15
"""The same where the step did change, so that the rise could as well be its cause: nearer, and no other to choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedCost:
    """A cost that left some ops and came to others."""

    rises: tuple[WeighedCause, ...]
    """Where it came to; not empty."""
    falls: tuple[WeighedCause, ...]
    """Where it left; not empty."""


def moved_costs(causes: Sequence[WeighedCause], balance: StepBalance) -> tuple[MovedCost, ...]:
    """Rises and falls that make up for each other, all of them significant where intervals are known."""
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
