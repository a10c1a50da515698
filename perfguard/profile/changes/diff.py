"""Every op's difference between two arms, with its interval and what happened to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from perfguard.profile.changes.matches import find_twins, implementation_change, implementation_changes, relocated
from perfguard.profile.changes.paired_ops import PairedOps, pair_ops
from perfguard.profile.op_times.arm_profile import ArmProfile, ProcessPairs, pair_processes
from perfguard.profile.op_times.overhead import Overhead, estimate_overhead
from perfguard.profile.op_times.typical_steps import BoolArray, FloatArray
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpDelta
from perfguard.stats.moderated import Differences, SharedNoise, estimate_noise, mean_differences
from perfguard.stats.p_values import benjamini_hochberg

LEVEL = 0.95
"""Of every interval."""
MAX_FALSE_SHARE = 0.05
"""Of the ops called slower or faster, this many may be neither, on average: Benjamini-Hochberg over the tested ops."""
MATERIAL_RATIO = 0.001
"""Differences below this part of the step are no one's culprit. Ops that are too small to differ by more are not tested
one by one, so a thousand wrappers of a microsecond do not raise the bar for the rest."""

EXACT = frozenset(
    {
        ChangeClass.NEW,
        ChangeClass.GONE,
        ChangeClass.MORE_CALLS,
        ChangeClass.FEWER_CALLS,
        ChangeClass.OTHER_IMPLEMENTATION,
    }
)
"""Changes that are counted, not measured."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpDiff:
    """The ops of two arms, compared one by one."""

    ops: PairedOps
    """Both arms, one column a key; all the rest is in the same columns."""
    pairs: ProcessPairs
    """The processes that were paired."""
    overhead: Overhead
    """What was taken out as the profiler's cost."""
    levels_s: FloatArray
    """Mean seconds of both arms, not below 0."""
    noise: SharedNoise
    """Of the ops' differences."""
    differences: Differences
    """Seconds in a step."""
    q: FloatArray
    """Adjusted p-values; 1 for ops that were not tested."""
    changes: tuple[ChangeClass, ...]
    """What happened to each op."""
    relocations: Mapping[int, int]
    """Columns of ops that are called from elsewhere, and the columns under which they came back."""

    @property
    def step_s(self) -> float:
        """Seconds of the baseline's step without the profiler's cost: the sum of all its ops and its time in none."""
        return float(self.ops.baseline_s.mean(axis=0).sum())

    def is_exact(self, column: int) -> bool:
        """Whether the op's change is a fact, not an estimate. Time in no op is only ever measured."""
        return self.changes[column] in EXACT and self.ops.keys[column].op != PYTHON_OP


def diff_ops(baseline: ArmProfile, candidate: ArmProfile) -> OpDiff:
    """Compare the ops of two arms.

    Raises:
        MeasurementError: No process was profiled in both arms.

    Assumes: the steps of paired processes were interleaved, so what the machine does hits both arms alike.
    """
    pairs = pair_processes(baseline, candidate)
    overhead = estimate_overhead(baseline, candidate, pairs)
    ops = pair_ops(baseline, candidate, pairs, overhead)
    levels_s = np.maximum((ops.baseline_s.mean(axis=0) + ops.candidate_s.mean(axis=0)) / 2, 0.0)
    # The sum of both arms says nothing of their difference, so choosing by it leaves the tests valid.
    tested: BoolArray = levels_s >= MATERIAL_RATIO / 2 * levels_s.sum()
    noise = estimate_noise(ops.deltas_s, levels_s, tested)
    differences = mean_differences(ops.deltas_s, levels_s, noise, level=LEVEL, extra_error=ops.overhead_error_s)
    q = np.ones(levels_s.size)
    q[tested] = benjamini_hochberg(differences.p[tested].tolist())
    counted = _counted(ops)
    relocations = relocated(ops, counted)
    return OpDiff(
        ops=ops,
        pairs=pairs,
        overhead=overhead,
        levels_s=levels_s,
        noise=noise,
        differences=differences,
        q=q,
        changes=_classified(ops, counted, relocations, differences, q),
        relocations=relocations,
    )


def op_deltas(diff: OpDiff, moved: Collection[int]) -> tuple[OpDelta, ...]:
    """One row for each op, largest absolute difference first.

    Args:
        diff: The comparison.
        moved: Columns whose cost went to other ops, or came from them.
    """
    details = _details(diff)
    baseline_s, candidate_s = diff.ops.baseline_s.mean(axis=0), diff.ops.candidate_s.mean(axis=0)
    order = np.argsort(-np.abs(diff.differences.mean), kind="stable")
    return tuple(
        OpDelta(
            key=diff.ops.keys[column],
            change=ChangeClass.MOVED if column in moved else diff.changes[column],
            baseline_s=float(baseline_s[column]),
            candidate_s=float(candidate_s[column]),
            delta_s=float(diff.differences.mean[column]),
            lower_s=float(diff.differences.lower[column]),
            upper_s=float(diff.differences.upper[column]),
            q=float(diff.q[column]),
            baseline_calls=float(diff.ops.baseline_calls[column]),
            candidate_calls=float(diff.ops.candidate_calls[column]),
            source=diff.ops.sources[column],
            detail=details.get(column, ""),
        )
        for column in order.tolist()
    )


def _counted(ops: PairedOps) -> list[ChangeClass]:
    """What the numbers of calls alone say."""
    result = []
    for column, direction in enumerate(ops.count_change.tolist()):
        if direction > 0:
            more = ops.baseline_calls[column] > 0
            result.append(ChangeClass.MORE_CALLS if more else ChangeClass.NEW)
        elif direction < 0:
            fewer = ops.candidate_calls[column] > 0
            result.append(ChangeClass.FEWER_CALLS if fewer else ChangeClass.GONE)
        else:
            result.append(ChangeClass.UNCHANGED)
    return result


def _classified(
    ops: PairedOps, counted: list[ChangeClass], relocations: Mapping[int, int], differences: Differences, q: FloatArray
) -> tuple[ChangeClass, ...]:
    moved = {*relocations, *relocations.values()}
    computed_otherwise = implementation_changes(ops, counted)
    result = []
    for column, change in enumerate(counted):
        measured_only = ops.keys[column].op == PYTHON_OP and change in {ChangeClass.MORE_CALLS, ChangeClass.FEWER_CALLS}
        if column in moved:
            result.append(ChangeClass.MOVED)
        elif change is not ChangeClass.UNCHANGED and not measured_only:
            result.append(change)
        elif column in computed_otherwise:
            result.append(ChangeClass.OTHER_IMPLEMENTATION)
        elif q[column] <= MAX_FALSE_SHARE:
            result.append(ChangeClass.SLOWER if differences.mean[column] > 0 else ChangeClass.FASTER)
        else:
            result.append(ChangeClass.UNCHANGED)
    return tuple(result)


def _details(diff: OpDiff) -> dict[int, str]:
    """What changed about an op, where more than its time did."""
    details: dict[int, str] = {}
    keys = diff.ops.keys
    for origin, target in diff.relocations.items():
        details[origin] = f"to {_place(keys[target].module)}"
        details[target] = f"from {_place(keys[origin].module)}"
    counted = [column for column, change in enumerate(diff.changes) if change in EXACT]
    for twin in find_twins(diff.ops, diff.changes, counted):
        details.update(dict.fromkeys((*twin.before, *twin.after), f"{twin.changed.value} {twin.lost} → {twin.gained}"))
    for column in counted:
        if diff.changes[column] is ChangeClass.OTHER_IMPLEMENTATION:
            went, came = implementation_change(diff.ops, column)
            details[column] = f"{', '.join(went)} → {', '.join(came)}"
    return details


def _place(module: str) -> str:
    return module or "outside all modules"
