"""Ops, tensors and places of a cause, in the few words that a sentence has for them.

Columns are always a cause's ops, those first that drive it most.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from perfguard.profile.changes.culprits.causes import short_op
from perfguard.profile.changes.diff import OpDiff
from perfguard.profile.changes.twins import AFTER, BEFORE
from perfguard.profile.op_times.typical_steps import FloatArray
from perfguard.records.steps.ops import PYTHON_OP, OpKey, StepPhase
from perfguard.units import format_number

DOMINANT = 0.8
"""Part of a cause's difference from which one module, or one op, speaks for all of it."""
FUSED_PREFIX = "_fused_"
"""How the op of an optimizer begins that updates all parameters at once."""
_COUNTED = 0.25
"""Ops are counted that have at least this part of the longest one's time: not wrappers, nor allocations for it."""
_COUNTED_FOR_FUSED = 0.1
"""Where a fused op stands for all of them the lesser ones count as well, but no wrappers."""
_GOOD_PART = 0.5
"""A phase is named that has at least this part of what the largest has: which of two halves is larger is noise."""
_NAMED = 2
"""Of these, so many are named."""


def where(diff: OpDiff, columns: Sequence[int]) -> str:
    """`in ResNet.layer3.0.conv1`, `in 53 places of ResNet.layer3`, `in forward` outside all modules."""
    keys = diff.ops.keys
    module = main_module(diff, columns)
    if module is not None:
        return f"in {module}" if module else f"in {main_phase(diff, columns).value}"
    modules = sorted({keys[column].module for column in columns})
    above = common_module(modules)
    # That everything is inside the whole model goes without saying.
    return f"in {len(modules)} places" + (f" of {above}" if "." in above else "")


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


def main_module(diff: OpDiff, columns: Sequence[int]) -> str | None:
    """The module that has most of the cause's difference; None where several share it."""
    parts: dict[str, float] = defaultdict(float)
    for column in columns:
        parts[diff.ops.keys[column].module] += float(diff.differences.mean[column])
    total = sum(parts.values())
    largest = max(parts, key=lambda module: abs(parts[module]))
    return largest if len(parts) == 1 or parts[largest] * total >= DOMINANT * total**2 > 0 else None


def common_module(modules: Sequence[str]) -> str:
    """`ResNet.layer3` for all that is below it; empty where nothing is shared."""
    shared: list[str] = []
    for parts in zip(*(module.split(".") for module in modules), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def main_op(diff: OpDiff, columns: Sequence[int]) -> int | None:
    """The one op that has most of the cause's difference; None where several share it."""
    total = float(diff.differences.mean[list(columns)].sum())
    return columns[0] if float(diff.differences.mean[columns[0]]) * total >= DOMINANT * total**2 else None


def exchange(diff: OpDiff, columns: Sequence[int]) -> str:
    """`` 1 `_fused_adam_` → 1,240 `mul_`/`addcdiv_` ``, `` 2 `copy_` more ``: calls that went and calls that came."""
    went, came = lost_ops(diff, columns), won_ops(diff, columns)
    if went and came:
        return f"{went} → {came}"
    if came:
        return f"{came} more"
    return f"{went} fewer" if went else "executed otherwise"


def lost_ops(diff: OpDiff, columns: Sequence[int]) -> str:
    """The ops that took most of the time among those that went; all that a fused op made needless; empty for none."""
    lost = [column for column in columns if diff.changes[column] in BEFORE]
    calls = diff.ops.baseline_calls - diff.ops.candidate_calls
    return _counted(diff.ops.keys, lost, calls, diff.ops.baseline_s.mean(axis=0), _least_share(diff, columns))


def won_ops(diff: OpDiff, columns: Sequence[int]) -> str:
    """The ops that take most of the time among those that came; all that a fused op did before; empty for none."""
    won = [column for column in columns if diff.changes[column] in AFTER]
    calls = diff.ops.candidate_calls - diff.ops.baseline_calls
    return _counted(diff.ops.keys, won, calls, diff.ops.candidate_s.mean(axis=0), _least_share(diff, columns))


def tensors(key: OpKey) -> str:
    """`[2,64,56,56] [64,64,3,3] bf16 channels_last`: shapes, and of dtypes and layouts each kind once."""
    words = (key.shapes, *dict.fromkeys(key.dtypes.split()), *dict.fromkeys(key.layouts.split()))
    return " ".join(word for word in words if word)


def line(diff: OpDiff, columns: Sequence[int]) -> str:
    """` (train.py:88)`, of the first op that has one; empty where none has."""
    found = next((source for column in columns if (source := diff.ops.sources[column])), None)
    return f" ({found})" if found else ""


def _least_share(diff: OpDiff, columns: Sequence[int]) -> float:
    """What an op must take of the largest one's time to be counted; little where a fused op stands for all of them."""
    changed = (column for column in columns if diff.is_exact(column))
    is_fused = any(short_op(diff.ops.keys[column]).startswith(FUSED_PREFIX) for column in changed)
    return _COUNTED_FOR_FUSED if is_fused else _COUNTED


def _counted(
    keys: Sequence[OpKey], columns: Sequence[int], calls: FloatArray, seconds: FloatArray, least_share: float
) -> str:
    times: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    for column in columns:
        if keys[column].op != PYTHON_OP:
            name = short_op(keys[column])
            times[name] += float(seconds[column])
            counts[name] += float(calls[column])
    # A fused op did it all; what it had to prepare is not the point.
    fused = [name for name in times if name.startswith(FUSED_PREFIX)]
    ranked = sorted(fused or times, key=lambda name: -times[name])
    counted = [name for name in ranked if times[name] >= least_share * times[ranked[0]]]
    if not counted:
        return ""
    names = [f"`{name}`" for name in counted[:_NAMED]] + ["…"] * (len(counted) > _NAMED)
    return f"{format_number(sum(counts[name] for name in counted))} {'/'.join(names)}"
