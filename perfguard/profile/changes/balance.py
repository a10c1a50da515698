"""Where the difference of two steps went: ops, time in no op, idle time and what is left; whether it is known well."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from perfguard.profile.changes.diff import LEVEL, OpDiff
from perfguard.profile.op_times.arm_profile import ArmProfile
from perfguard.profile.op_times.typical_steps import FloatArray, typical_steps
from perfguard.records.steps.ops import StepBalance
from perfguard.stats.moderated import Differences, estimate_noise, mean_differences

PRECISION = 0.03
"""Of the step: how far the 95 % interval of a difference may reach to either side. Parts of the difference that are
smaller than that are hard to tell from noise, and regressions that are worth a look are hardly smaller."""


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
    there is none.

    Args:
        baseline_s: Seconds of the baseline's steps, by process.
        candidate_s: Of the candidate's, in the processes that ran beside those.

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
