"""Rule: the same ops on other tensors, with the copies and casts for it: a lost memory format, a lost dtype."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from perfguard.profile.changes.count_rules.op_names import is_minor
from perfguard.profile.changes.culprits.causes import Cause, Certainty, Rule, exact_columns, short_op
from perfguard.profile.changes.culprits.optimizers import is_update
from perfguard.profile.changes.diff import OpDiff
from perfguard.profile.changes.twins import CASTS, LAYOUT_COPIES, Property, Twin, find_twins

_COMPANIONS = {Property.LAYOUT: LAYOUT_COPIES, Property.DTYPE: CASTS, Property.SHAPE: LAYOUT_COPIES | CASTS}
_RULES = {Property.LAYOUT: Rule.LAYOUT, Property.DTYPE: Rule.DTYPE, Property.SHAPE: Rule.SHAPE}


def tensor_causes(diff: OpDiff, free: AbstractSet[int]) -> list[Cause]:
    """At most one cause for each property: a model loses its memory format once, however many ops feel it.

    It takes copies with it that came or went at the places of those ops, above them or below them, and what came or
    went at these very places or with the copies and computes nothing: other tensors need other views and allocations.
    """
    left = {column for column in exact_columns(diff, free) if not is_update(diff.ops.keys[column])}
    twins = find_twins(diff.ops, diff.changes, left)
    causes = []
    for changed in (Property.SHAPE, Property.DTYPE, Property.LAYOUT):
        alike = [twin for twin in twins if twin.changed is changed]
        if not alike:
            continue
        columns = {column for twin in alike for column in (*twin.before, *twin.after)}
        left -= columns
        companions = _companions(diff, left, columns, _COMPANIONS[changed])
        left -= companions
        causes.append(
            Cause(
                rule=_RULES[changed],
                certainty=Certainty.EXACT,
                columns=tuple(sorted(columns | companions)),
                label=_longest(diff, alike).label,
            )
        )
    return causes


def _longest(diff: OpDiff, twins: Sequence[Twin]) -> Twin:
    return max(twins, key=lambda twin: sum(diff.levels_s[column] for column in (*twin.before, *twin.after)))


def _companions(diff: OpDiff, left: AbstractSet[int], columns: AbstractSet[int], names: AbstractSet[str]) -> set[int]:
    keys = diff.ops.keys
    modules = {keys[column].module for column in columns}
    above = {parent for module in modules for parent in _with_parents(module)}
    copies = {
        column
        for column in left
        if short_op(keys[column]) in names
        and (keys[column].module in above or not modules.isdisjoint(_with_parents(keys[column].module)))
    }
    places = modules | {keys[column].module for column in copies}
    return copies | {column for column in left if is_minor(keys[column].op) and keys[column].module in places}


def _with_parents(module: str) -> Iterable[str]:
    while module:
        yield module
        module = module.rpartition(".")[0]
    yield ""
