"""Rule: ops that came, went or are called more often at one place, and the same change at all of its places."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet

from perfguard.profile.changes.culprits.causes import Cause, Certainty, Rule, exact_columns, short_op
from perfguard.profile.changes.diff import OpDiff
from perfguard.profile.changes.twins import AFTER, BEFORE
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpKey, StepPhase

_APART = frozenset({StepPhase.LOAD, StepPhase.OPTIMIZER})
"""Phases whose ops are not those of a module's forward and backward."""


def place_causes(diff: OpDiff, free: AbstractSet[int]) -> list[Cause]:
    """Exact changes by place, forward and backward together; places that changed in the same manner are one cause.

    The time in no op of a place goes with its ops: each op costs some interpreter and dispatch. Where nothing was
    repeated, it may as well be a pause of that one trace, and goes along only if it points the same way.
    """
    keys = diff.ops.keys
    places: dict[Hashable, list[int]] = defaultdict(list)
    for column in exact_columns(diff, free):
        places[_place(keys[column])].append(column)
    python = {(keys[column].phase, keys[column].module): column for column in free if keys[column].op == PYTHON_OP}
    manners: dict[Hashable, list[int]] = defaultdict(list)
    for columns in places.values():
        around = {python.get((keys[column].phase, keys[column].module)) for column in columns if keys[column].module}
        along = (column for column in around if column is not None and _goes_along(diff, column, columns))
        manners[_manner(diff, columns)].extend([*columns, *along])
    return [_cause(diff, tuple(sorted(columns))) for columns in manners.values()]


def _goes_along(diff: OpDiff, python: int, columns: Sequence[int]) -> bool:
    mean_s = diff.differences.mean
    is_repeated = math.isfinite(float(diff.differences.upper[python]))
    return is_repeated or float(mean_s[python]) * float(mean_s[list(columns)].sum()) >= 0


def _place(key: OpKey) -> Hashable:
    """Its module. Where a trace knows no modules, ops that one call makes share their first tensor's shape."""
    where = key.module or ("shape", key.shapes.partition(" ")[0])
    return (key.phase if key.phase in _APART else None, where)


def _manner(diff: OpDiff, columns: Sequence[int]) -> Hashable:
    factor = _call_factor(diff, columns)
    if factor is not None:
        return ("calls", factor)
    return frozenset((short_op(diff.ops.keys[column]), diff.changes[column] in AFTER) for column in columns)


def _call_factor(diff: OpDiff, columns: Sequence[int]) -> float | None:
    """By what factor the place is called more often; None where its ops do not mostly agree on one.

    A place that is called twice also has a few new ops: gradients that are now added up.
    """
    factors = [
        round(float(diff.ops.candidate_calls[column] / diff.ops.baseline_calls[column]), 3)
        for column in columns
        if diff.changes[column] in {ChangeClass.MORE_CALLS, ChangeClass.FEWER_CALLS}
    ]
    if not factors:
        return None
    commonest = max(sorted(set(factors)), key=factors.count)
    return commonest if 2 * factors.count(commonest) > len(columns) else None


def _cause(diff: OpDiff, columns: tuple[int, ...]) -> Cause:
    changed = [column for column in columns if diff.changes[column] in AFTER | BEFORE and diff.is_exact(column)]
    factor = _call_factor(diff, changed)
    return Cause(
        rule=Rule.REPLACED if factor is None else Rule.CALLS,
        certainty=Certainty.EXACT,
        columns=columns,
        label="" if factor is None else f"{factor:g}x",
    )
