"""From hundreds of ops that differ to a few causes: ops that changed together for one reason.

Each rule claims ops from those that no earlier rule took.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from perfguard.profile.changes.diff import MATERIAL_RATIO, OpDiff
from perfguard.profile.changes.matches import (
    AFTER,
    BEFORE,
    CASTS,
    LAYOUT_COPIES,
    Property,
    Twin,
    find_twins,
    implementation_change,
)
from perfguard.profile.changes.op_names import is_minor
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpKey, StepPhase

CULPRIT_LEVEL = 0.025
"""Adjusted p at which an op, or a sum of ops, may be blamed. There are two such families, single ops and sums, so with
no change at all something is blamed in at most twice this share of the comparisons."""


class CauseKind(str, Enum):
    """Why ops form one cause; those that bring others with them first."""

    OPTIMIZER = "optimizer"
    """They belong to one optimizer."""
    LAYOUT = "layout"
    """Their tensors have another memory format, or they copy tensors for that."""
    DTYPE = "dtype"
    """Their tensors have another dtype, or they cast tensors for that."""
    SHAPE = "shape"
    """Their tensors have other shapes."""
    IMPLEMENTATION = "implementation"
    """Libraries run them with other kernels, of the same ISA before and of the same ISA after; or one side has none."""
    CALLS = "calls"
    """Their places are called more or less often, by the same factor."""
    REPLACED = "replaced"
    """They came or went at their place, in the same manner in all of its places."""
    TIME = "time"
    """The same op in one phase, executed as before, takes another time."""


class Certainty(Enum):
    """What a cause rests on."""

    EXACT = "exact"
    """On counts or on what the library chose: a fact. Its cost is an estimate all the same."""
    SIGNIFICANT = "significant"
    """Each of its ops differs significantly."""
    OPEN = "open"
    """On nothing yet: its sum is still to be tested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Ops that changed together."""

    kind: CauseKind
    """Why they are together."""
    certainty: Certainty
    """What it rests on."""
    columns: tuple[int, ...]
    """Columns of the ops; not empty, of no other cause."""
    lost: str = ""
    """`Adam`, `channels_last`, `avx512_core`; empty where the kind has none."""
    gained: str = ""
    """What took its place: `SGD`, `contiguous`, `avx2`; the same for an optimizer that stayed."""


def find_causes(diff: OpDiff) -> list[Cause]:
    """Every op in exactly one cause."""
    free = set(range(len(diff.ops.keys)))
    causes: list[Cause] = []
    for rule in (_optimizers, _tensors, _implementations, _places, _times):
        claimed = rule(diff, free)
        free.difference_update(column for cause in claimed for column in cause.columns)
        causes.extend(claimed)
    return causes


def family_of(diff: OpDiff, column: int) -> Hashable:
    """What a time belongs to: the op in its phase, or the optimizer. Ops that moved belong to where they moved to."""
    key = diff.ops.keys[diff.relocations.get(column, column)]
    return (key.phase, key.module) if _is_update(key) else (key.phase, key.op)


def short_op(key: OpKey) -> str:
    """`mul_` for `aten::mul_`."""
    return key.op if key.op == PYTHON_OP else key.op.rpartition("::")[2] or key.op


def _exact_columns(diff: OpDiff, free: Iterable[int]) -> list[int]:
    return [column for column in sorted(free) if diff.is_exact(column)]


def _is_update(key: OpKey) -> bool:
    """Whether an optimizer executes it; gradient clipping is in the same phase, but in no optimizer."""
    return key.phase is StepPhase.OPTIMIZER and key.module != ""


def _optimizers(diff: OpDiff, free: AbstractSet[int]) -> list[Cause]:
    """One cause for each optimizer that executes other ops than before; one for an optimizer that replaced another."""
    by_name: dict[str, list[int]] = defaultdict(list)
    for column in sorted(free):
        if _is_update(diff.ops.keys[column]):
            by_name[diff.ops.keys[column].module].append(column)
    changed = {name: columns for name, columns in by_name.items() if any(diff.is_exact(column) for column in columns)}
    gone = [name for name, columns in changed.items() if _all_of(diff, columns, ChangeClass.GONE)]
    new = [name for name, columns in changed.items() if _all_of(diff, columns, ChangeClass.NEW)]
    found = []
    if len(gone) == len(new) == 1:
        found.append((gone[0], new[0], [*changed.pop(gone[0]), *changed.pop(new[0])]))
    found += [(name, name, columns) for name, columns in changed.items()]
    return [
        Cause(kind=CauseKind.OPTIMIZER, certainty=Certainty.EXACT, columns=tuple(columns), lost=lost, gained=gained)
        for lost, gained, columns in found
    ]


def _all_of(diff: OpDiff, columns: list[int], change: ChangeClass) -> bool:
    return all(diff.changes[column] is change for column in columns if diff.ops.keys[column].op != PYTHON_OP)


_TENSOR_KINDS = (
    (Property.SHAPE, CauseKind.SHAPE, LAYOUT_COPIES | CASTS),
    (Property.DTYPE, CauseKind.DTYPE, CASTS),
    (Property.LAYOUT, CauseKind.LAYOUT, LAYOUT_COPIES),
)
"""With the copies that come along."""


def _tensors(diff: OpDiff, free: AbstractSet[int]) -> list[Cause]:
    """At most one cause for each property: a model loses its memory format once, however many ops feel it.

    It takes copies with it that came or went at the places of those ops, above them or below them, and what came or
    went at these very places or with the copies and computes nothing: other tensors need other views and allocations.
    """
    left = {column for column in _exact_columns(diff, free) if not _is_update(diff.ops.keys[column])}
    twins = find_twins(diff.ops, diff.changes, left)
    causes = []
    for changed, kind, copies in _TENSOR_KINDS:
        alike = [twin for twin in twins if twin.changed is changed]
        if not alike:
            continue
        columns = {column for twin in alike for column in (*twin.before, *twin.after)}
        left -= columns
        companions = _companions(diff, left, columns, copies)
        left -= companions
        longest = max(alike, key=lambda twin: _level_s(diff, twin))
        causes.append(
            Cause(
                kind=kind,
                certainty=Certainty.EXACT,
                columns=tuple(sorted(columns | companions)),
                lost=longest.lost,
                gained=longest.gained,
            )
        )
    return causes


def _level_s(diff: OpDiff, twin: Twin) -> float:
    return float(sum(diff.levels_s[column] for column in (*twin.before, *twin.after)))


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


def _implementations(diff: OpDiff, free: AbstractSet[int]) -> list[Cause]:
    """One cause for each pair of ISAs: a cap changes every kernel, a fallback to the reference only its own."""
    by_isa: dict[tuple[str, str], list[int]] = defaultdict(list)
    for column in sorted(free):
        if diff.changes[column] is ChangeClass.OTHER_IMPLEMENTATION:
            went, came = implementation_change(diff.ops, column)
            by_isa[_isa(went[0]), _isa(came[0])].append(column)
    return [
        Cause(
            kind=CauseKind.IMPLEMENTATION, certainty=Certainty.EXACT, columns=tuple(columns), lost=lost, gained=gained
        )
        for (lost, gained), columns in by_isa.items()
    ]


def _isa(implementation: str) -> str:
    """`avx512_core` of `brg_conv_fwd:avx512_core`; the whole of what has no ISA: `ref:any`, `sgemm of MKL`."""
    kernel, _, isa = implementation.rpartition(":")
    return implementation if kernel in {"", "ref"} or isa == "any" else isa


def _places(diff: OpDiff, free: AbstractSet[int]) -> list[Cause]:
    """Exact changes by place, forward and backward together; places that changed in the same manner are one cause.

    The time in no op of a place goes with its ops: each op costs some interpreter and dispatch. Where nothing was
    repeated, it may as well be a pause of that one trace, and goes along only if it points the same way.
    """
    keys = diff.ops.keys
    places: dict[Hashable, list[int]] = defaultdict(list)
    for column in _exact_columns(diff, free):
        places[_place(keys[column])].append(column)
    python = {(keys[column].phase, keys[column].module): column for column in free if keys[column].op == PYTHON_OP}
    manners: dict[Hashable, list[int]] = defaultdict(list)
    for columns in places.values():
        around = {python.get((keys[column].phase, keys[column].module)) for column in columns if keys[column].module}
        along = (column for column in around if column is not None and _goes_along(diff, column, columns))
        manners[_manner(diff, columns)].extend([*columns, *along])
    found = []
    for columns in manners.values():
        changed = [column for column in columns if diff.changes[column] in AFTER | BEFORE and diff.is_exact(column)]
        kind = CauseKind.REPLACED if _call_factor(diff, changed) is None else CauseKind.CALLS
        found.append(Cause(kind=kind, certainty=Certainty.EXACT, columns=tuple(sorted(columns))))
    return found


def _goes_along(diff: OpDiff, python: int, columns: Sequence[int]) -> bool:
    mean_s = diff.differences.mean
    is_repeated = math.isfinite(float(diff.differences.upper[python]))
    return is_repeated or float(mean_s[python]) * float(mean_s[list(columns)].sum()) >= 0


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


def _times(diff: OpDiff, free: AbstractSet[int]) -> list[Cause]:
    """For each op of each phase: what became slower, what became faster, and the rest, still to be tested as a sum.

    The rest is where a slowdown hides that is too small to see in any one module.
    """
    families: dict[Hashable, list[int]] = defaultdict(list)
    for column in sorted(free):
        families[family_of(diff, column)].append(column)
    return [cause for columns in families.values() for cause in _split(diff, columns)]


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
    return [Cause(kind=CauseKind.TIME, certainty=certainty, columns=tuple(part)) for part, certainty in parts if part]
