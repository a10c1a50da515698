"""Rule: ops that are executed as before and take another time, gathered by op over all modules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from collections.abc import Set as AbstractSet

from perfguard.profile.changes.culprits.causes import Cause, Certainty, Rule
from perfguard.profile.changes.culprits.optimizers import is_update
from perfguard.profile.changes.diff import MATERIAL_RATIO, OpDiff
from perfguard.records.steps.ops import ChangeClass

CULPRIT_LEVEL = 0.025
"""Adjusted p at which an op, or a sum of ops, may be blamed. There are two such families, single ops and sums, so with
no change at all something is blamed in at most twice this share of the comparisons."""


def time_causes(diff: OpDiff, free: AbstractSet[int]) -> list[Cause]:
    """For each op of each phase: what became slower, what became faster, and the rest, still to be tested as a sum.

    The rest is where a slowdown hides that is too small to see in any one module.
    """
    families: dict[Hashable, list[int]] = defaultdict(list)
    for column in sorted(free):
        families[family_of(diff, column)].append(column)
    return [cause for columns in families.values() for cause in _split(diff, columns)]


def family_of(diff: OpDiff, column: int) -> Hashable:
    """What a time belongs to: the op in its phase, or the optimizer. Ops that moved belong to where they moved to."""
    key = diff.ops.keys[diff.relocations.get(column, column)]
    return (key.phase, key.module) if is_update(key) else (key.phase, key.op)


def _split(diff: OpDiff, columns: list[int]) -> list[Cause]:
    mean = diff.differences.mean
    least_s = MATERIAL_RATIO * diff.step_s
    # Not what came or went with a place, nor what moved: its other half is in the rest.
    seen = [
        column
        for column in columns
        if diff.changes[column] in {ChangeClass.SLOWER, ChangeClass.FASTER}
        and diff.q[column] <= CULPRIT_LEVEL
        and abs(mean[column]) >= least_s
    ]
    slower, faster = [c for c in seen if mean[c] > 0], [c for c in seen if mean[c] < 0]
    rest = sorted({*columns} - {*seen})
    parts = ((slower, Certainty.SIGNIFICANT), (faster, Certainty.SIGNIFICANT), (rest, Certainty.OPEN))
    return [Cause(rule=Rule.TIME, certainty=certainty, columns=tuple(part)) for part, certainty in parts if part]
