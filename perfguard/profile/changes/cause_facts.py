"""What a weighed cause is, as a fact: that of the op counts where they show it, else what the timed ops say.

Columns are always a cause's ops, those first that drive it most.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from perfguard.profile.changes.causes import MovedCost
from perfguard.profile.changes.counted import call_code, change_fact, common_module
from perfguard.profile.changes.diff import OpDiff, implementation_change
from perfguard.profile.changes.fusions import exchange_code, optimizer_code
from perfguard.profile.changes.paired_ops import AFTER, BEFORE, DTYPE_COPIES, LAYOUT_COPIES, Cause, CauseKind, short_op
from perfguard.profile.op_times.typical_steps import FloatArray
from perfguard.records.changed_lines import NO_LINES, ChangedLines
from perfguard.records.facts import Fact, Value, fact
from perfguard.records.steps.ops import ChangeClass, StepPhase

_DOMINANT = 0.8  # Part of a cause's difference from which one module, or one op, speaks for all of it
_WORDS = {
    CauseKind.OPTIMIZER: frozenset({"optim", "fused", "foreach"}),
    CauseKind.LAYOUT: frozenset({"memory_format", "channels_last", "contiguous", "permute", "to_mkldnn"}),
    CauseKind.DTYPE: frozenset({"dtype", "bfloat16", "autocast", "float16", "float32", "double", "half"}),
}
"""What a line says that makes an optimizer, or gives tensors their layout or dtype before the step."""
_FUSED = "_fused_"  # How the op of an optimizer begins that updates all parameters at once
_COUNTED = 0.25
"""Ops are counted that have at least this part of the longest one's time: not wrappers, nor allocations for it."""
_COUNTED_FOR_FUSED = 0.1
"""Where a fused op stands for all of them the lesser ones count as well, but no wrappers."""
_GOOD_PART = 0.5
"""A phase is named that has at least this part of what the largest has: which of two halves is larger is noise."""
_TENSOR_CODES = {CauseKind.LAYOUT: "layout", CauseKind.DTYPE: "dtype", CauseKind.SHAPE: "shapes"}

_Told = tuple[str, dict[str, Value]]  # A code and its values
_Key = TypeVar("_Key", bound=Hashable)


def cause_fact(diff: OpDiff, cause: Cause, counted: Fact | None = None, changed: ChangedLines = NO_LINES) -> Fact:
    """What changed, with the line that it comes from; `counted` is what the op counts say of it."""
    line = _line(diff, cause, changed)
    if counted is not None:
        return replace(counted, subject=replace(counted.subject, place=line))
    code, values = _FACTS[cause.kind](diff, cause)
    module, places = _where(diff, cause.columns)
    if cause.kind is CauseKind.OPTIMIZER:
        module = cause.gained
    _, phases = main_phases(diff, cause.columns)
    return change_fact(code, values, module=module, phases=phases, places=places, line=line)


def _line(diff: OpDiff, cause: Cause, changed: ChangedLines) -> str | None:
    """A changed line that led to one of the ops, or that must have done so before the step; else the first op's."""
    origin = _origin(diff, cause.columns) if cause.kind in _TENSOR_CODES else []
    sources = [source for column in (*origin, *cause.columns) if (source := diff.ops.sources[column])]
    # Lines of ops that only the baseline has are the baseline's.
    there = [column for column in (*origin, *cause.columns) if diff.ops.candidate_calls[column] > 0]
    inside = next(filter(None, (changed.place_of(diff.ops.sources[column] or "") for column in there)), None)
    if inside is None:
        words = _WORDS[cause.kind] | {cause.lost, cause.gained} if cause.kind in _WORDS else ()
        inside = changed.line_with(filter(None, words))
    return inside or next(iter(sources), None)


def moved_fact(diff: OpDiff, cost: MovedCost) -> Fact:
    """A cost that left an op and came to another one."""
    values: dict[str, Value] = {}
    for name, columns in (("source", cost.falls[0].columns), ("target", cost.rises[0].columns)):
        values[name] = "Python" if diff.ops.is_python(columns[0]) else short_op(diff.ops.keys[columns[0]])
        values[f"{name}_module"] = _where(diff, columns)[0] or main_phases(diff, columns)[0].value
    return fact("cost.moved", values, moved_s=cost.moved_s)


def main_phases(diff: OpDiff, columns: Sequence[int]) -> tuple[StepPhase, tuple[StepPhase, ...]]:
    """The part of the step that has most of the cause's difference; and all that have a good part of it, in order."""
    phases = _sums(diff.differences.mean, columns, lambda column: diff.ops.keys[column].phase)
    sign = math.copysign(1.0, sum(phases.values()))
    main = max(phases, key=lambda phase: sign * phases[phase])
    return main, tuple(p for p in StepPhase if p in phases and sign * phases[p] >= _GOOD_PART * sign * phases[main])


def _where(diff: OpDiff, columns: Sequence[int]) -> tuple[str, int]:
    """The module that has most of the cause's difference, or what all have in common; and how many they are."""
    parts = _sums(diff.differences.mean, columns, lambda column: diff.ops.keys[column].module)
    total = sum(parts.values())
    largest = max(parts, key=lambda module: abs(parts[module]))
    if len(parts) == 1 or parts[largest] * total >= _DOMINANT * total**2 > 0:
        return largest, 1
    above = common_module(parts)
    # That everything is inside the whole model goes without saying.
    return (above if "." in above else ""), len(parts)


def _origin(diff: OpDiff, columns: Sequence[int]) -> list[int]:
    """Copies that came in the forward pass, outside of the places that feel it: there the tensors become others."""
    keys = diff.ops.keys
    felt = {keys[column].module for column in columns if diff.changes[column] in BEFORE}
    return [
        column
        for column in columns
        if diff.changes[column] in AFTER
        and keys[column].phase is StepPhase.FORWARD
        and keys[column].module not in felt
        and short_op(keys[column]) in LAYOUT_COPIES | DTYPE_COPIES
    ]


def _optimizer(diff: OpDiff, cause: Cause) -> _Told:
    (lost, before), (gained, after) = _exchange(diff, cause.columns)
    values: dict[str, Value] = {"lost": lost, "gained": gained, "before": before, "after": after}
    if cause.lost != cause.gained:
        return "optimizer.replaced", {**values, "replaced": cause.lost}
    fused = [column for column in cause.columns if short_op(diff.ops.keys[column]).startswith(_FUSED)]
    was, now = (bool((calls[fused] > 0).any()) for calls in (diff.ops.baseline_calls, diff.ops.candidate_calls))
    return optimizer_code(was_fused=was, is_fused=now), values


def _tensors(diff: OpDiff, cause: Cause) -> _Told:
    keys = diff.ops.keys
    known = {keys[column].op for column in cause.columns if diff.changes[column] in BEFORE}
    _, (_, copies) = _exchange(diff, [column for column in cause.columns if keys[column].op not in known])
    values: dict[str, Value] = {"extra_copies": copies} if copies else {}
    if cause.kind is CauseKind.SHAPE:
        return "shapes.changed", {**values, "examples": (f"{cause.lost} → {cause.gained}",)}
    verb = "changed"
    if cause.kind is CauseKind.LAYOUT and "channels_last" in {cause.lost, cause.gained}:
        verb = "lost" if cause.lost == "channels_last" else "gained"
    return f"{_TENSOR_CODES[cause.kind]}.{verb}", {**values, "lost": cause.lost, "gained": cause.gained}


def _implementation(diff: OpDiff, cause: Cause) -> _Told:
    went, came = implementation_change(diff.ops, cause.columns[0])
    primitive = short_op(diff.ops.keys[cause.columns[0]])
    values: dict[str, Value] = {"primitive": primitive, "lost": went, "gained": came}
    return "implementation.changed", {**values, "tensors": _main_tensors(diff, cause.columns)}


def _calls(diff: OpDiff, cause: Cause) -> _Told:
    counted = {ChangeClass.MORE_CALLS, ChangeClass.FEWER_CALLS}
    lead = next(column for column in cause.columns if diff.changes[column] in counted)
    names = dict.fromkeys(short_op(diff.ops.keys[column]) for column in (lead, *cause.columns) if diff.is_exact(column))
    before, after = (_number(float(side[lead])) for side in (diff.ops.baseline_calls, diff.ops.candidate_calls))
    return call_code(before, after), {"ops": tuple(names), "before": before, "after": after}


def _replaced(diff: OpDiff, cause: Cause) -> _Told:
    (lost, before), (gained, after) = _exchange(diff, cause.columns)
    code, names, number = exchange_code(lost, gained), (*lost, *gained), after or before
    if code.startswith("copies."):
        return code, {"before": before, "after": after, "number": number, "by": names[0] if names else None}
    return code, {"before": before, "after": after, "ops": names, "calls": number, "lost": lost, "gained": gained}


def _time(diff: OpDiff, cause: Cause) -> _Told:
    if diff.ops.is_python(cause.columns[0]):
        return "python.time", {"is_more": cause.delta_s > 0}
    before_s = float(diff.ops.before_s[list(cause.columns)].sum())
    values: dict[str, Value] = {
        "ops": (short_op(diff.ops.keys[cause.columns[0]]),),
        "changed_ratio": abs(diff.mean_s(cause.columns)) / before_s if before_s > 0 else None,
        "tensors": _main_tensors(diff, cause.columns),
    }
    return ("op.slower" if cause.delta_s > 0 else "op.faster"), values


_FACTS: Mapping[CauseKind, Callable[[OpDiff, Cause], _Told]] = {
    CauseKind.OPTIMIZER: _optimizer,
    **dict.fromkeys(_TENSOR_CODES, _tensors),
    CauseKind.IMPLEMENTATION: _implementation,
    CauseKind.CALLS: _calls,
    CauseKind.REPLACED: _replaced,
    CauseKind.TIME: _time,
}


def _main_tensors(diff: OpDiff, columns: Sequence[int]) -> str:
    """`[2,64,56,56] [64,64,3,3] bf16 channels_last` of the one op that has most of the cause's difference.

    Shapes, and of dtypes and layouts each kind once; empty where several ops share the difference.
    """
    total = diff.mean_s(columns)
    if diff.mean_s(columns[:1]) * total < _DOMINANT * total**2:
        return ""
    key = diff.ops.keys[columns[0]]
    words = (key.shapes, *dict.fromkeys(key.dtypes.split()), *dict.fromkeys(key.layouts.split()))
    return " ".join(word for word in words if word)


def _exchange(diff: OpDiff, columns: Sequence[int]) -> list[tuple[tuple[str, ...], int | float]]:
    """The ops that take most of the time among those that went, and among those that came; and how many calls each.

    A fused op stands for all that it made needless, and for what it had to prepare.
    """
    ops, names = diff.ops, [short_op(key) for key in diff.ops.keys]
    more = ops.candidate_calls - ops.baseline_calls
    has_fused = any(names[column].startswith(_FUSED) for column in columns if diff.is_exact(column))
    least_share = _COUNTED_FOR_FUSED if has_fused else _COUNTED
    found: list[tuple[tuple[str, ...], int | float]] = []
    for side, seconds, calls in ((BEFORE, ops.before_s, -more), (AFTER, ops.after_s, more)):
        changed = [column for column in columns if diff.changes[column] in side and not ops.is_python(column)]
        times = _sums(seconds, changed, names.__getitem__)
        ranked = sorted([name for name in times if name.startswith(_FUSED)] or times, key=lambda name: -times[name])
        named = tuple(name for name in ranked if times[name] >= least_share * times[ranked[0]])
        counts = _sums(calls, changed, names.__getitem__)
        found.append((named, _number(sum(counts[name] for name in named))))
    return found


def _sums(values: FloatArray, columns: Sequence[int], by: Callable[[int], _Key]) -> dict[_Key, float]:
    """Values of columns, added up by what they have in common."""
    sums: dict[_Key, float] = defaultdict(float)
    for column in columns:
        sums[by(column)] += float(values[column])
    return sums


def _number(calls: float) -> int | float:
    """A count of calls, whole where steps do not differ."""
    return round(calls) if abs(calls - round(calls)) < 0.05 else calls
