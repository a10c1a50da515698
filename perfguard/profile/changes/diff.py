"""Every op's difference between two arms, with its interval and what happened to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfguard.profile.changes.paired_ops import (
    AFTER,
    BEFORE,
    PairedOps,
    find_twins,
    implementation_change,
    implementation_changes,
    pair_ops,
    relocated,
)
from perfguard.profile.op_times.arm_profile import ArmProfile, ProcessPairs, pair_processes
from perfguard.profile.op_times.overhead import Overhead, estimate_overhead
from perfguard.profile.op_times.typical_steps import BoolArray, FloatArray
from perfguard.records.steps.ops import ChangeClass, OpDelta
from perfguard.stats.moderated import Differences, SharedNoise, estimate_noise, mean_differences
from perfguard.stats.multiple import benjamini_hochberg

LEVEL = 0.95
"""Of every interval."""
MAX_FALSE_SHARE = 0.05
"""Of the ops called slower or faster, this many may be neither, on average: Benjamini-Hochberg over the tested ops."""
MATERIAL_RATIO = 0.001
"""Differences below this part of the step are no one's culprit. Ops that are too small to differ by more are not tested
one by one, so a thousand wrappers of a microsecond do not raise the bar for the rest."""

EXACT = BEFORE | AFTER | {ChangeClass.OTHER_IMPLEMENTATION}
"""Changes that are counted, not measured."""
_COUNTED = {
    (1, True): ChangeClass.MORE_CALLS,
    (1, False): ChangeClass.NEW,
    (-1, True): ChangeClass.FEWER_CALLS,
    (-1, False): ChangeClass.GONE,
}
"""By the direction in which calls changed, and whether the side with fewer has any."""


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
        return float(self.ops.before_s.sum())

    def mean_s(self, columns: Iterable[int]) -> float:
        """Mean difference of these ops together."""
        return float(self.differences.mean[list(columns)].sum())

    def is_exact(self, column: int) -> bool:
        """Whether the op's change is a fact, not an estimate. Time in no op is only ever measured."""
        return self.changes[column] in EXACT and not self.ops.is_python(column)


def diff_ops(baseline: ArmProfile, candidate: ArmProfile) -> OpDiff:
    """Compare the ops of two arms.

    Raises:
        MeasurementError: No process was profiled in both arms.

    Assumes: the steps of paired processes were interleaved, so what the machine does hits both arms alike.
    """
    pairs = pair_processes(baseline, candidate)
    overhead = estimate_overhead(baseline, candidate, pairs)
    ops = pair_ops(baseline, candidate, pairs, overhead)
    levels_s = np.maximum((ops.before_s + ops.after_s) / 2, 0.0)
    # The sum of both arms says nothing of their difference, so choosing by it leaves the tests valid.
    tested: BoolArray = levels_s >= MATERIAL_RATIO / 2 * levels_s.sum()
    noise = estimate_noise(ops.deltas_s, levels_s, tested)
    differences = mean_differences(ops.deltas_s, levels_s, noise, level=LEVEL, extra_error=ops.overhead_error_s)
    q = np.ones(levels_s.size)
    q[tested] = benjamini_hochberg(differences.p[tested].tolist())
    fewest = np.where(ops.count_change > 0, ops.baseline_calls, ops.candidate_calls)
    directions = zip(ops.count_change.tolist(), (fewest > 0).tolist(), strict=True)
    counted = [_COUNTED.get(direction, ChangeClass.UNCHANGED) for direction in directions]
    relocations = relocated(ops, counted)
    return OpDiff(
        ops=ops,
        pairs=pairs,
        overhead=overhead,
        levels_s=levels_s,
        noise=noise,
        differences=differences,
        q=q,
        changes=tuple(_classified(ops, counted, relocations, differences.mean, q)),
        relocations=relocations,
    )


def _classified(
    ops: PairedOps, counted: Sequence[ChangeClass], relocations: Mapping[int, int], mean_s: FloatArray, q: FloatArray
) -> Iterable[ChangeClass]:
    moved = {*relocations, *relocations.values()}
    computed_otherwise = implementation_changes(ops, counted)
    for column, change in enumerate(counted):
        measured_only = ops.is_python(column) and change in {ChangeClass.MORE_CALLS, ChangeClass.FEWER_CALLS}
        if column in moved:
            yield ChangeClass.MOVED
        elif change is not ChangeClass.UNCHANGED and not measured_only:
            yield change
        elif column in computed_otherwise:
            yield ChangeClass.OTHER_IMPLEMENTATION
        elif q[column] <= MAX_FALSE_SHARE:
            yield ChangeClass.SLOWER if mean_s[column] > 0 else ChangeClass.FASTER
        else:
            yield ChangeClass.UNCHANGED


def op_deltas(diff: OpDiff, moved: Collection[int]) -> tuple[OpDelta, ...]:
    """One row for each op, largest absolute difference first.

    Args:
        diff: The comparison.
        moved: Columns whose cost went to other ops, or came from them.
    """
    details = _details(diff)
    baseline_s, candidate_s, differences = diff.ops.before_s, diff.ops.after_s, diff.differences
    order = np.argsort(-np.abs(differences.mean), kind="stable")
    return tuple(
        OpDelta(
            key=diff.ops.keys[column],
            change=ChangeClass.MOVED if column in moved else diff.changes[column],
            baseline_s=float(baseline_s[column]),
            candidate_s=float(candidate_s[column]),
            delta_s=float(differences.mean[column]),
            lower_s=float(differences.lower[column]),
            upper_s=float(differences.upper[column]),
            q=float(diff.q[column]),
            baseline_calls=float(diff.ops.baseline_calls[column]),
            candidate_calls=float(diff.ops.candidate_calls[column]),
            source=diff.ops.sources[column],
            detail=details.get(column, ""),
        )
        for column in order.tolist()
    )


def _details(diff: OpDiff) -> dict[int, str]:
    """What changed about an op, where more than its time did."""
    details: dict[int, str] = {}
    for pair in diff.relocations.items():
        origin, target = (diff.ops.keys[column].module or "outside all modules" for column in pair)
        details |= {pair[0]: f"to {target}", pair[1]: f"from {origin}"}
    counted = [column for column, change in enumerate(diff.changes) if change in EXACT]
    for twin in find_twins(diff.ops, diff.changes, counted):
        details |= dict.fromkeys(twin.columns, f"{twin.changed.value} {twin.lost} → {twin.gained}")
    for column in counted:
        if diff.changes[column] is ChangeClass.OTHER_IMPLEMENTATION:
            details[column] = " → ".join(map(", ".join, implementation_change(diff.ops, column)))
    return details
