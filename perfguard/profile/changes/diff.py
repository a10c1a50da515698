"""Every op's difference between two arms, with its interval and what happened to it; where that of the steps went."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from scipy import special

from perfguard.profile.changes.op_names import computes
from perfguard.profile.changes.paired_ops import AFTER, BEFORE, PairedOps, find_twins, pair_ops, relocated
from perfguard.profile.libraries.join import NO_LIBRARY
from perfguard.profile.op_times.arm_profile import ArmProfile, ProcessPairs, pair_processes
from perfguard.profile.op_times.overhead import Overhead, estimate_overhead
from perfguard.profile.op_times.typical_steps import BoolArray, FloatArray, typical_steps
from perfguard.records.steps.ops import ChangeClass, OpDelta, StepBalance
from perfguard.stats.moderated import Differences, SharedNoise, estimate_noise, mean_differences
from perfguard.stats.p_values import benjamini_hochberg

LEVEL = 0.95  # Of every interval
PRECISION = 0.03
"""Of the step: how far the 95 % interval of a difference may reach to either side. Parts of the difference that are
smaller than that are hard to tell from noise, and regressions that are worth a look are hardly smaller."""
MAX_FALSE_SHARE = 0.05
"""Of the ops called slower or faster, this many may be neither, on average: Benjamini-Hochberg over the tested ops."""
MATERIAL_RATIO = 0.001
"""Differences below this part of the step are no one's culprit. Ops that are too small to differ by more are not tested
one by one, so a thousand wrappers of a microsecond do not raise the bar for the rest."""

EXACT = BEFORE | AFTER | {ChangeClass.OTHER_IMPLEMENTATION}  # Changes that are counted, not measured
_COUNTED = {
    (1, True): ChangeClass.MORE_CALLS,
    (1, False): ChangeClass.NEW,
    (-1, True): ChangeClass.FEWER_CALLS,
    (-1, False): ChangeClass.GONE,
}
"""By the direction in which calls changed, and whether the side with fewer has any."""


class OpDiff(Struct, frozen=True, kw_only=True, eq=False):
    """The ops of two arms, compared one by one."""

    ops: PairedOps  # Both arms, one column a key; all the rest is in the same columns
    pairs: ProcessPairs
    overhead: Overhead  # What was taken out as the profiler's cost
    levels_s: FloatArray  # Mean seconds of both arms, not below 0
    noise: SharedNoise
    differences: Differences  # Of the ops' seconds in a step
    q: FloatArray  # Adjusted p-values; 1 for ops that were not tested
    changes: tuple[ChangeClass, ...]  # What happened to each op
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
    """One row for each op, largest difference first; the cost of `moved` went to other ops or came from them."""
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
        details |= dict.fromkeys(twin.columns, f"{twin.kind.value} {twin.lost} → {twin.gained}")
    for column in counted:
        if diff.changes[column] is ChangeClass.OTHER_IMPLEMENTATION:
            details[column] = " → ".join(map(", ".join, implementation_change(diff.ops, column)))
    return details


def implementation_change(ops: PairedOps, column: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Implementations that went, and those that came; both empty unless the op has some of each.

    A call that could not be placed in the trace is missing from one arm. It must not look like a change, so it takes
    one that went and one that came. Where all calls are known, `NO_LIBRARY` may be one of them.
    """
    before, after = ops.implementations[column]
    went, came = tuple(sorted({*before} - {*after})), tuple(sorted({*after} - {*before}))
    return (went, came) if went and came else ((), ())


def implementation_changes(ops: PairedOps, counted: Sequence[ChangeClass]) -> frozenset[int]:
    """Columns of ops that are computed otherwise.

    An op that left the libraries, or came to one, counts only where nothing beside it took over: no op at its place is
    called more or less often, none went the other way there, and none anywhere took on what it lost. Else a callee may
    do its work now, or a call of the library was placed in another op than in the other arm. `counted` is what the
    numbers of calls say of each op.
    """
    changes = {column: implementation_change(ops, column) for column in range(len(ops.keys))}
    changes = {column: change for column, change in changes.items() if change[0]}
    left = {column for column, (_, came) in changes.items() if came == (NO_LIBRARY,)}
    joined = {column for column, (went, _) in changes.items() if went == (NO_LIBRARY,)}
    lost = {name for column in left for name in changes[column][0]}
    won = {name for column in joined for name in changes[column][1]}
    busy = {
        ops.place(column)
        for column, change in enumerate(counted)
        if change is not ChangeClass.UNCHANGED and not ops.is_python(column) and computes(ops.keys[column].op)
    }
    busy |= {ops.place(column) for column in left} & {ops.place(column) for column in joined}
    doubtful = {
        column
        for column in left | joined
        if ops.place(column) in busy or not (lost & won).isdisjoint((*changes[column][0], *changes[column][1]))
    }
    return frozenset(changes) - doubtful


def balance_of(baseline: ArmProfile, candidate: ArmProfile, diff: OpDiff) -> StepBalance:
    """Share out the difference between the unprofiled steps.

    Without unprofiled steps the windows of the profiled ones take their place, and idle time is unknown, counted as 0.
    """
    is_bare = baseline.has_bare_steps and candidate.has_bare_steps
    before_s, idle_before_s = _steps(baseline, diff.pairs.baseline, is_bare=is_bare)
    after_s, idle_after_s = _steps(candidate, diff.pairs.candidate, is_bare=is_bare)
    step = _difference(after_s - before_s)
    # What was taken out as the profiler's cost is one estimate for all ops: its errors add up instead of cancelling.
    error_s = float(diff.ops.overhead_error_s.sum())
    left = _difference(after_s - before_s - diff.ops.deltas_s.sum(axis=1), error_s=error_s)
    python = np.array([diff.ops.is_python(column) for column in range(len(diff.ops.keys))], dtype=np.bool_)
    ops_s, outside_s = (float(diff.differences.mean[part].sum()) for part in (~python, python))
    # A thread also waits inside ops (for other threads, for memory). That time is those ops' already, and to take it
    # from the interpreter would invent a gain there.
    idle_s = float(np.clip(idle_after_s - idle_before_s, min(0.0, outside_s), max(0.0, outside_s)))
    python_s = outside_s - idle_s
    return StepBalance(
        baseline_s=float(before_s.mean()),
        candidate_s=float(after_s.mean()),
        delta_s=float(step.mean[0]),
        lower_s=float(step.lower[0]),
        upper_s=float(step.upper[0]),
        ops_s=ops_s,
        python_s=python_s,
        idle_s=idle_s,
        unexplained_s=float(step.mean[0]) - ops_s - python_s - idle_s,
        overhead_ratio=diff.overhead.step_ratio,
        unexplained_lower_s=float(left.lower[0]),
        unexplained_upper_s=float(left.upper[0]),
    )


def _steps(arm: ArmProfile, processes: tuple[int, ...], *, is_bare: bool) -> tuple[FloatArray, float]:
    """Wall seconds of one arm's step, by process, and idle seconds in the mean."""
    if not is_bare:
        return typical_steps(arm.profile.wall_s, arm.profile.process, processes), 0.0
    wall_s, idle_s = (
        typical_steps(values, arm.bare_process, processes) for values in (arm.bare_s, arm.bare_s - arm.bare_thread_s)
    )
    return wall_s, float(idle_s.mean())


def _difference(deltas_s: FloatArray, *, error_s: float = 0.0) -> Differences:
    """A mean over pairs of processes, by Student's t."""
    series = deltas_s[:, np.newaxis]
    noise = estimate_noise(series, np.zeros(1), np.zeros(1, dtype=np.bool_))
    return mean_differences(series, np.zeros(1), noise, level=LEVEL, extra_error=np.array([error_s]))


def is_settled(baseline_s: Sequence[Sequence[float]], candidate_s: Sequence[Sequence[float]]) -> bool:
    """Whether the pairs give the difference of the steps to `PRECISION`.

    Only the width of the interval counts, not where it lies: who goes on until a difference shows will see one where
    there is none. Seconds are of steps, by process; those of one position ran side by side.

    Source: the two stages of Stein (1945), doi:10.1214/aoms/1177731088; the second is of a fixed size here.
    """
    pairs = [(before, after) for before, after in zip(baseline_s, candidate_s, strict=True) if before and after]
    if len(pairs) < 2:
        return False
    ratios = np.log([_typical(after) / _typical(before) for before, after in pairs])
    half_width = -special.stdtrit(len(pairs) - 1, (1 - LEVEL) / 2) * float(ratios.std(ddof=1)) / math.sqrt(len(pairs))
    return bool(half_width <= PRECISION)


def _typical(seconds: Sequence[float]) -> float:
    values = np.asarray(seconds, dtype=np.float64)
    return float(typical_steps(values, np.zeros(values.size, dtype=np.int64), (0,))[0])
