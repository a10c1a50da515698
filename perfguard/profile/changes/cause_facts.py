"""What a cause is, as a fact: that of the op counts where they show it, else what the timed ops tell.

Columns are always a cause's ops, those first that drive it most.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from perfguard.profile.changes.causes import Cause, CauseKind, short_op
from perfguard.profile.changes.counted import call_code, change_fact, common_module
from perfguard.profile.changes.diff import OpDiff
from perfguard.profile.changes.fusions import exchange_code, optimizer_code
from perfguard.profile.changes.matches import AFTER, BEFORE, CASTS, LAYOUT_COPIES, implementation_change
from perfguard.profile.changes.weighing import MovedCost, by_part
from perfguard.profile.op_times.typical_steps import FloatArray
from perfguard.records.facts import Fact, Value, fact
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpKey, StepPhase

_DOMINANT = 0.8
"""Part of a cause's difference from which one module, or one op, speaks for all of it."""
_FUSED = "_fused_"
"""How the op of an optimizer begins that updates all parameters at once."""
_COUNTED = 0.25
"""Ops are counted that have at least this part of the longest one's time: not wrappers, nor allocations for it."""
_COUNTED_FOR_FUSED = 0.1
"""Where a fused op stands for all of them the lesser ones count as well, but no wrappers."""
_GOOD_PART = 0.5
"""A phase is named that has at least this part of what the largest has: which of two halves is larger is noise."""
_CODES = {CauseKind.LAYOUT: "layout", CauseKind.DTYPE: "dtype", CauseKind.SHAPE: "shapes"}


def cause_fact(diff: OpDiff, cause: Cause, columns: Sequence[int], counted: Fact | None = None) -> Fact:
    """What changed, with the line that it comes from.

    Args:
        diff: The comparison.
        cause: What to tell of.
        columns: Its ops, those first that drive it most.
        counted: What the op counts say of it.
    """
    origin = _origin(diff, columns) if cause.kind in _CODES else []
    line = _line(diff, [*origin, *columns])
    if counted is not None:
        return replace(counted, subject=replace(counted.subject, place=line))
    if cause.kind is CauseKind.OPTIMIZER:
        code, values = _optimizer(diff, cause, columns)
    elif cause.kind in _CODES:
        code, values = _tensors(diff, cause, columns)
    elif cause.kind is CauseKind.IMPLEMENTATION:
        code, values = _implementation(diff, columns)
    elif cause.kind is CauseKind.CALLS:
        code, values = _calls(diff, columns)
    elif cause.kind is CauseKind.REPLACED:
        code, values = _replaced(diff, columns)
    else:
        code, values = _time(diff, columns)
    module, places = _where(diff, columns)
    if cause.kind is CauseKind.OPTIMIZER:
        module = cause.gained
    return change_fact(code, values, module=module, phases=main_phases(diff, columns), places=places, line=line)


def python_fact(diff: OpDiff, columns: Sequence[int], delta_s: float) -> Fact:
    """Time in no op, of the whole step."""
    module, places = _where(diff, columns)
    phases, line = main_phases(diff, columns), _line(diff, columns)
    values: dict[str, Value] = {"is_more": delta_s > 0}
    return change_fact("python.time", values, module=module, phases=phases, places=places, line=line)


def moved_fact(diff: OpDiff, cost: MovedCost) -> Fact:
    """A cost that left an op and came to another one."""
    values: dict[str, Value] = {}
    for name, side in (("source", cost.falls[0]), ("target", cost.rises[0])):
        columns = by_part(diff, side)
        key = diff.ops.keys[columns[0]]
        values[name] = "Python" if key.op == PYTHON_OP else short_op(key)
        values[f"{name}_module"] = _where(diff, columns)[0] or main_phase(diff, columns).value
    return fact("cost.moved", values, moved_s=sum(rise.delta_s for rise in cost.rises))


def main_phase(diff: OpDiff, columns: Sequence[int]) -> StepPhase:
    """The part of the step that has most of the cause's difference."""
    phases = _by_phase(diff, columns)
    sign = math.copysign(1.0, sum(phases.values()))
    return max(phases, key=lambda phase: sign * phases[phase])


def main_phases(diff: OpDiff, columns: Sequence[int]) -> tuple[StepPhase, ...]:
    """The parts of the step that each have a good part of the cause's difference, in the order of a step."""
    phases = _by_phase(diff, columns)
    sign = math.copysign(1.0, sum(phases.values()))
    least_s = _GOOD_PART * max(sign * delta_s for delta_s in phases.values())
    return tuple(phase for phase in StepPhase if phase in phases and sign * phases[phase] >= least_s)


def _by_phase(diff: OpDiff, columns: Sequence[int]) -> dict[StepPhase, float]:
    phases: dict[StepPhase, float] = defaultdict(float)
    for column in columns:
        phases[diff.ops.keys[column].phase] += float(diff.differences.mean[column])
    return phases


def _where(diff: OpDiff, columns: Sequence[int]) -> tuple[str, int]:
    """The module that has most of the cause's difference, or what all have in common; and how many they are."""
    parts: dict[str, float] = defaultdict(float)
    for column in columns:
        parts[diff.ops.keys[column].module] += float(diff.differences.mean[column])
    total = sum(parts.values())
    largest = max(parts, key=lambda module: abs(parts[module]))
    if len(parts) == 1 or parts[largest] * total >= _DOMINANT * total**2 > 0:
        return largest, 1
    above = common_module(parts)
    # That everything is inside the whole model goes without saying.
    return (above if "." in above else ""), len(parts)


def _line(diff: OpDiff, columns: Sequence[int]) -> str | None:
    """Of the first op that has one."""
    return next((source for column in columns if (source := diff.ops.sources[column])), None)


def _origin(diff: OpDiff, columns: Sequence[int]) -> list[int]:
    """Copies that came in the forward pass, outside of the places that feel it: there the tensors become others."""
    felt = {diff.ops.keys[column].module for column in columns if diff.changes[column] in BEFORE}
    return [
        column
        for column in columns
        if diff.changes[column] in AFTER
        and diff.ops.keys[column].phase is StepPhase.FORWARD
        and diff.ops.keys[column].module not in felt
        and short_op(diff.ops.keys[column]) in LAYOUT_COPIES | CASTS
    ]


def _optimizer(diff: OpDiff, cause: Cause, columns: Sequence[int]) -> tuple[str, dict[str, Value]]:
    lost, before = _lost(diff, columns)
    gained, after = _won(diff, columns)
    values: dict[str, Value] = {"lost": lost, "gained": gained, "before": before, "after": after}
    if cause.lost != cause.gained:
        return "optimizer.replaced", {**values, "replaced": cause.lost}
    was, now = (_has_fused(diff, columns, calls) for calls in (diff.ops.baseline_calls, diff.ops.candidate_calls))
    return optimizer_code(was_fused=was, is_fused=now), values


def _has_fused(diff: OpDiff, columns: Sequence[int], calls: FloatArray) -> bool:
    """Whether a fused op is among them in the arm with these calls."""
    return any(calls[column] > 0 and short_op(diff.ops.keys[column]).startswith(_FUSED) for column in columns)


def _tensors(diff: OpDiff, cause: Cause, columns: Sequence[int]) -> tuple[str, dict[str, Value]]:
    known = {diff.ops.keys[column].op for column in columns if diff.changes[column] in BEFORE}
    _, copies = _won(diff, [column for column in columns if diff.ops.keys[column].op not in known])
    values: dict[str, Value] = {"extra_copies": copies} if copies else {}
    if cause.kind is CauseKind.SHAPE:
        return "shapes.changed", {**values, "examples": (f"{cause.lost} → {cause.gained}",)}
    verb = "changed"
    if cause.kind is CauseKind.LAYOUT and "channels_last" in {cause.lost, cause.gained}:
        verb = "lost" if cause.lost == "channels_last" else "gained"
    return f"{_CODES[cause.kind]}.{verb}", {**values, "lost": cause.lost, "gained": cause.gained}


def _implementation(diff: OpDiff, columns: Sequence[int]) -> tuple[str, dict[str, Value]]:
    went, came = implementation_change(diff.ops, columns[0])
    key = diff.ops.keys[columns[0]]
    tensors = _tensors_of(key) if _main_op(diff, columns) is not None else ""
    return "implementation.changed", {"primitive": short_op(key), "lost": went, "gained": came, "tensors": tensors}


def _calls(diff: OpDiff, columns: Sequence[int]) -> tuple[str, dict[str, Value]]:
    counted = {ChangeClass.MORE_CALLS, ChangeClass.FEWER_CALLS}
    lead = next(column for column in columns if diff.changes[column] in counted)
    names = dict.fromkeys(short_op(diff.ops.keys[column]) for column in [lead, *columns] if diff.is_exact(column))
    before, after = (_number(float(side[lead])) for side in (diff.ops.baseline_calls, diff.ops.candidate_calls))
    return call_code(before, after), {"ops": tuple(names), "before": before, "after": after}


def _replaced(diff: OpDiff, columns: Sequence[int]) -> tuple[str, dict[str, Value]]:
    lost, before = _lost(diff, columns)
    gained, after = _won(diff, columns)
    code, names, number = exchange_code(lost, gained), (*lost, *gained), after or before
    if code.startswith("copies."):
        return code, {"before": before, "after": after, "number": number, "by": names[0] if names else None}
    values: dict[str, Value] = {"before": before, "after": after, "ops": names, "calls": number}
    return code, {**values, "lost": lost, "gained": gained}


def _time(diff: OpDiff, columns: Sequence[int]) -> tuple[str, dict[str, Value]]:
    key = diff.ops.keys[columns[0]]
    delta_s = float(diff.differences.mean[list(columns)].sum())
    if key.op == PYTHON_OP:
        return "python.time", {"is_more": delta_s > 0}
    before_s = float(diff.ops.baseline_s.mean(axis=0)[list(columns)].sum())
    values: dict[str, Value] = {
        "ops": (short_op(key),),
        "changed_ratio": abs(delta_s) / before_s if before_s > 0 else None,
        "tensors": _tensors_of(key) if _main_op(diff, columns) is not None else "",
    }
    return ("op.slower" if delta_s > 0 else "op.faster"), values


def _main_op(diff: OpDiff, columns: Sequence[int]) -> int | None:
    """The one op that has most of the cause's difference; None where several share it."""
    total = float(diff.differences.mean[list(columns)].sum())
    return columns[0] if float(diff.differences.mean[columns[0]]) * total >= _DOMINANT * total**2 else None


def _tensors_of(key: OpKey) -> str:
    """`[2,64,56,56] [64,64,3,3] bf16 channels_last`: shapes, and of dtypes and layouts each kind once."""
    words = (key.shapes, *dict.fromkeys(key.dtypes.split()), *dict.fromkeys(key.layouts.split()))
    return " ".join(word for word in words if word)


def _lost(diff: OpDiff, columns: Sequence[int]) -> tuple[tuple[str, ...], int | float]:
    """Ops that went, and how many calls."""
    changed = [column for column in columns if diff.changes[column] in BEFORE]
    calls = diff.ops.baseline_calls - diff.ops.candidate_calls
    return _counted(diff, columns, changed, calls, diff.ops.baseline_s.mean(axis=0))


def _won(diff: OpDiff, columns: Sequence[int]) -> tuple[tuple[str, ...], int | float]:
    """Ops that came, likewise."""
    changed = [column for column in columns if diff.changes[column] in AFTER]
    calls = diff.ops.candidate_calls - diff.ops.baseline_calls
    return _counted(diff, columns, changed, calls, diff.ops.candidate_s.mean(axis=0))


def _counted(
    diff: OpDiff, columns: Sequence[int], changed: Sequence[int], calls: FloatArray, seconds: FloatArray
) -> tuple[tuple[str, ...], int | float]:
    """The ops that take most of the time among those that went or came, and their calls.

    A fused op stands for all that it made needless, and for what it had to prepare.
    """
    keys = diff.ops.keys
    times: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    for column in changed:
        if keys[column].op != PYTHON_OP:
            name = short_op(keys[column])
            times[name] += float(seconds[column])
            counts[name] += float(calls[column])
    has_fused = any(short_op(keys[column]).startswith(_FUSED) for column in columns if diff.is_exact(column))
    least_share = _COUNTED_FOR_FUSED if has_fused else _COUNTED
    fused = [name for name in times if name.startswith(_FUSED)]
    ranked = sorted(fused or times, key=lambda name: -times[name])
    names = tuple(name for name in ranked if times[name] >= least_share * times[ranked[0]])
    return names, _number(sum(counts[name] for name in names))


def _number(calls: float) -> int | float:
    """A count of calls, whole where steps do not differ."""
    return round(calls) if abs(calls - round(calls)) < 0.05 else calls
