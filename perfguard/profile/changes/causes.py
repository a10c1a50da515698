"""From hundreds of ops that differ to a few causes: ops that changed together for one reason.

Each rule claims ops from those that no earlier rule took.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfguard.profile.changes.counted import grouped
from perfguard.profile.changes.diff import LEVEL, MATERIAL_RATIO, OpDiff, implementation_change
from perfguard.profile.changes.op_names import is_minor
from perfguard.profile.changes.paired_ops import (
    AFTER,
    DTYPE_COPIES,
    LAYOUT_COPIES,
    Cause,
    CauseKind,
    Certainty,
    find_twins,
    short_op,
)
from perfguard.records.steps.ops import ChangeClass, OpKey, StepPhase
from perfguard.stats.moderated import IntArray, VariancePrior, mean_differences, noise_of_sums, prior_of_sums
from perfguard.stats.p_values import benjamini_hochberg

CULPRIT_LEVEL = 0.025
"""Adjusted p at which an op, or a sum of ops, may be blamed. There are two such families, single ops and sums, so with
no change at all something is blamed in at most twice this share of the comparisons."""


def find_causes(diff: OpDiff) -> list[Cause]:
    """Every op in exactly one cause."""
    free = set(range(len(diff.ops.keys)))
    causes: list[Cause] = []
    for rule in (_optimizers, _tensors, _implementations, _places, _times):
        claimed = list(rule(diff, free))
        free.difference_update(column for cause in claimed for column in cause.columns)
        causes.extend(claimed)
    return causes


def _exact(kind: CauseKind, columns: Iterable[int], lost: str = "", gained: str = "") -> Cause:
    return Cause(kind=kind, certainty=Certainty.EXACT, columns=tuple(sorted(columns)), lost=lost, gained=gained)


def family_of(diff: OpDiff, column: int) -> Hashable:
    """What a time belongs to: the op in its phase, or the optimizer. Ops that moved belong to where they moved to."""
    key = diff.ops.keys[diff.relocations.get(column, column)]
    return (key.phase, key.module) if _is_update(key) else (key.phase, key.op)


def _is_update(key: OpKey) -> bool:
    """Whether an optimizer executes it; gradient clipping is in the same phase, but in no optimizer."""
    return key.phase is StepPhase.OPTIMIZER and key.module != ""


def _optimizers(diff: OpDiff, free: AbstractSet[int]) -> Iterable[Cause]:
    """One cause for each optimizer that executes other ops than before; one for an optimizer that replaced another."""
    keys = diff.ops.keys
    updates = (column for column in sorted(free) if _is_update(keys[column]))
    by_name = grouped(updates, lambda column: keys[column].module)
    changed = {name: columns for name, columns in by_name.items() if any(map(diff.is_exact, columns))}

    def all_of(change: ChangeClass) -> list[str]:
        return [
            name
            for name, columns in changed.items()
            if all(diff.changes[column] is change for column in columns if not diff.ops.is_python(column))
        ]

    gone, new = all_of(ChangeClass.GONE), all_of(ChangeClass.NEW)
    if len(gone) == len(new) == 1:
        columns = [*changed.pop(gone[0]), *changed.pop(new[0])]
        yield _exact(CauseKind.OPTIMIZER, columns, gone[0], new[0])
    for name, columns in changed.items():
        yield _exact(CauseKind.OPTIMIZER, columns, name, name)


_COPIES = {
    CauseKind.SHAPE: LAYOUT_COPIES | DTYPE_COPIES,
    CauseKind.DTYPE: DTYPE_COPIES,
    CauseKind.LAYOUT: LAYOUT_COPIES,
}
"""That come along with other tensors."""


def _tensors(diff: OpDiff, free: AbstractSet[int]) -> Iterable[Cause]:
    """At most one cause for each property: a model loses its memory format once, however many ops feel it.

    It takes copies with it that came or went at the places of those ops, above them or below them, and what came or
    went at these very places or with the copies and computes nothing: other tensors need other views and allocations.
    """
    left = {column for column in free if diff.is_exact(column) and not _is_update(diff.ops.keys[column])}
    twins = grouped(find_twins(diff.ops, diff.changes, left), lambda twin: twin.kind)
    for kind, copies in _COPIES.items():
        if kind in twins:
            columns = {column for twin in twins[kind] for column in twin.columns}
            left -= columns
            companions = _companions(diff, left, columns, copies)
            left -= companions
            longest = max(twins[kind], key=lambda twin: sum(diff.levels_s[list(twin.columns)].tolist()))
            yield replace(longest, columns=tuple(sorted(columns | companions)))


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


def _implementations(diff: OpDiff, free: AbstractSet[int]) -> Iterable[Cause]:
    """One cause for each pair of ISAs: a cap changes every kernel, a fallback to the reference only its own."""

    def isas(column: int) -> tuple[str, str]:
        went, came = implementation_change(diff.ops, column)
        return _isa(went[0]), _isa(came[0])

    columns = (column for column in sorted(free) if diff.changes[column] is ChangeClass.OTHER_IMPLEMENTATION)
    for (lost, gained), there in grouped(columns, isas).items():
        yield _exact(CauseKind.IMPLEMENTATION, there, lost, gained)


def _isa(implementation: str) -> str:
    """`avx512_core` of `brg_conv_fwd:avx512_core`; the whole of what has no ISA: `ref:any`, `sgemm of MKL`."""
    kernel, _, isa = implementation.rpartition(":")
    return implementation if kernel in {"", "ref"} or isa == "any" else isa


def _places(diff: OpDiff, free: AbstractSet[int]) -> Iterable[Cause]:
    """Exact changes by place, forward and backward together; places that changed in the same manner are one cause.

    The time in no op of a place goes with its ops: each op costs some interpreter and dispatch. Where nothing was
    repeated, it may as well be a pause of that one trace, and goes along only if it points the same way.
    """
    ops = diff.ops
    places = grouped(filter(diff.is_exact, sorted(free)), lambda column: _place(ops.keys[column]))
    python = {ops.place(column): column for column in free if ops.is_python(column)}
    for there in grouped(places.values(), lambda columns: _manner(diff, columns)).values():
        changed = [column for columns in there for column in columns]
        found = set(changed)
        for columns in there:
            around = {ops.place(column) for column in columns if ops.keys[column].module}
            for column in (python[place] for place in around if place in python):
                is_repeated = math.isfinite(float(diff.differences.upper[column]))
                if is_repeated or diff.mean_s([column]) * diff.mean_s(columns) >= 0:
                    found.add(column)
        yield _exact(CauseKind.REPLACED if _call_factor(diff, changed) is None else CauseKind.CALLS, found)


def _place(key: OpKey) -> Hashable:
    """Its module. Where a trace knows no modules, ops that one call makes share their first tensor's shape."""
    where = key.module or ("shape", key.shapes.partition(" ")[0])
    is_apart = key.phase in {StepPhase.LOAD, StepPhase.OPTIMIZER}  # not of a module's forward and backward
    return (key.phase if is_apart else None, where)


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


def _times(diff: OpDiff, free: AbstractSet[int]) -> Iterable[Cause]:
    """For each op of each phase: what became slower, what became faster, and the rest, still to be tested as a sum.

    The rest is where a slowdown hides that is too small to see in any one module.
    """
    mean, least_s = diff.differences.mean, MATERIAL_RATIO * diff.step_s

    def direction(column: int) -> int:
        """0 for the rest. What came or went with a place is in it, and what moved: so is its other half."""
        is_tested = diff.changes[column] in {ChangeClass.SLOWER, ChangeClass.FASTER} and diff.q[column] <= CULPRIT_LEVEL
        if not is_tested or abs(mean[column]) < least_s:
            return 0
        return 1 if mean[column] > 0 else -1

    for columns in grouped(sorted(free), lambda column: family_of(diff, column)).values():
        parts = grouped(columns, direction)
        for sign, certainty in ((1, Certainty.SIGNIFICANT), (-1, Certainty.SIGNIFICANT), (0, Certainty.OPEN)):
            if sign in parts:
                yield Cause(kind=CauseKind.TIME, certainty=certainty, columns=tuple(parts[sign]))


def established(diff: OpDiff, causes: Sequence[Cause]) -> list[Cause]:
    """Of all causes those that are facts or significant, and matter, with costs; those of one family become one."""
    prior = prior_of_sums(diff.ops.deltas_s, diff.levels_s, diff.noise, [_columns(cause) for cause in causes])
    weighed = _weighed(diff, causes, prior)
    q = iter(benjamini_hochberg([cause.p for cause in weighed if cause.certainty is Certainty.OPEN]))
    kept = [cause for cause in weighed if cause.certainty is not Certainty.OPEN or next(q) <= CULPRIT_LEVEL]
    weighed = [by_part(diff, cause) for cause in _weighed(diff, _merged(diff, kept), prior)]
    return [cause for cause in weighed if _most_s(cause) >= MATERIAL_RATIO * diff.step_s]


def _most_s(cause: Cause) -> float:
    """The size of its cost; of a fact whose cost is within the noise, what it may be at most."""
    is_known = not (cause.is_exact and cause.is_within_noise)
    return abs(cause.delta_s) if is_known else max(-cause.lower_s, cause.upper_s)


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


def by_part(diff: OpDiff, cause: Cause) -> Cause:
    """The cause with those ops first that drive it most in its own direction."""
    sign = math.copysign(1.0, cause.delta_s)
    return replace(cause, columns=tuple(sorted(cause.columns, key=lambda column: -sign * diff.mean_s([column]))))


class MovedCost(Struct, frozen=True, kw_only=True):
    """A cost that left some ops (`falls`) and came to others (`rises`)."""

    rises: tuple[Cause, ...]
    falls: tuple[Cause, ...]

    @property
    def moved_s(self) -> float:
        """Seconds that came."""
        return sum(rise.delta_s for rise in self.rises)
