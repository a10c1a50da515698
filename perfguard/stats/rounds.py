"""Comparison with a stored baseline: rounds from another time, on a machine whose speed may have changed.

The control workload (a fixed kernel, timed in every round) sees a change of speed, but not how strongly a case follows
it: a coefficient that two to ten rounds cannot estimate. Measured by simulation (6 baseline and 4 candidate rounds,
alpha 0.8 %, machine moved by 3 % between the sides, no true change): without the control workload up to 49 % false
alarms, with full normalisation up to 47 %, with a fitted coefficient up to 54 % (noisy control workload). So
coefficients 0, 1 and 2 are tested, and only what holds at each is flagged: at most 1.2 %, also for a case that follows
the machine twice as strongly as the control workload does (with 0 and 1 alone, 60 %). See decision 0003.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from perfguard.errors import MeasurementError
from perfguard.records.estimate import Estimate, Interval
from perfguard.records.run import Round
from perfguard.stats.p_values import p_faster, p_slower
from perfguard.stats.paired import FloatArray, from_standard_error, positive_times

CONTROL_COEFFICIENTS = (0.0, 1.0, 2.0)
"""The range of how strongly a case may follow the control workload: not at all, as strongly, twice as strongly."""

MIN_ROUNDS = 2  # Rounds on each side without which there is no between-round variance


class RoundsResult(Struct, frozen=True, kw_only=True):
    """A stored-baseline comparison of one case."""

    estimate: Estimate
    """Midpoint and hull over the control workload's coefficients; the standard error belongs to the hull."""
    p_slower: float  # One-sided p of H0 `effect <= margin`, the larger one over the coefficients
    p_faster: float  # One-sided p of H0 `effect >= -margin`, likewise


def estimate_rounds(
    baseline: Sequence[Round], candidate: Sequence[Round], *, margin_ratio: float, level: float
) -> RoundsResult:
    """Welch's t over log round medians, at both ends of the control workload's influence.

    Each side has two rounds or more, with values and control workload samples. The interval, of this two-sided level,
    is the hull over all coefficients, so it widens with the change of the machine's speed, and so do the standard error
    and the MDE that follows from it.

    Raises:
        MeasurementError: Under two rounds on a side, a round without values or control workload, or a value that is no
            time.

    Source: Welch (1947), doi:10.1093/biomet/34.1-2.28; Satterthwaite (1946) for the degrees of freedom;
        Berger (1982), doi:10.1080/00401706.1982.10487790: an intersection-union test of level-alpha tests
        has level alpha.
    Assumes: rounds are independent; a case follows the machine's speed no less than not at all and no more than twice
        as strongly as the control workload does.
    """
    (old, old_control), (new, new_control) = _side(baseline, "baseline"), _side(candidate, "candidate")
    estimates = [welch(old - c * old_control, new - c * new_control, level) for c in CONTROL_COEFFICIENTS]
    return RoundsResult(
        estimate=_hull(estimates, level),
        p_slower=max(p_slower(estimate, margin_ratio) for estimate in estimates),
        p_faster=max(p_faster(estimate, margin_ratio) for estimate in estimates),
    )


def _side(rounds: Sequence[Round], name: str) -> tuple[FloatArray, FloatArray]:
    """Log medians of the times and of the control workload, each of shape `(rounds,)`."""
    if len(rounds) < MIN_ROUNDS:
        raise MeasurementError(
            f"the {name} has {len(rounds)} round(s) of this case; "
            f"at least {MIN_ROUNDS} are needed to know how rounds differ"
        )
    if not all(entry.control_s for entry in rounds):
        raise MeasurementError(f"a {name} round has no control workload, so a slower machine looks like slower code")
    if not all(entry.values_s for entry in rounds):
        raise MeasurementError(f"a {name} round has no values")
    times = np.log([float(np.median(positive_times(entry.values_s))) for entry in rounds])
    return times, np.log([float(np.median(positive_times(entry.control_s))) for entry in rounds])


def welch(before: FloatArray, after: FloatArray, level: float) -> Estimate:
    """Difference of two means with unequal variances (Welch 1947); each side has shape `(values,)`, two at least."""
    sizes = (before.size, after.size)
    parts = (float(before.var(ddof=1)) / before.size, float(after.var(ddof=1)) / after.size)
    variance = sum(parts)
    # Scaled first: squares of variances under 1e-160 would vanish.
    scaled = [part / (max(parts) or 1.0) for part in parts]
    squares = sum(part**2 / (size - 1) for part, size in zip(scaled, sizes, strict=True))
    return from_standard_error(
        float(after.mean() - before.mean()),
        math.sqrt(variance),
        block_sd=math.sqrt(variance / (1 / before.size + 1 / after.size)),
        blocks=min(sizes),
        degrees_of_freedom=sum(scaled) ** 2 / squares if squares else sum(sizes) - 2.0,
        level=level,
    )


def _hull(estimates: Sequence[Estimate], level: float) -> Estimate:
    lower = min(estimate.interval.lower for estimate in estimates)
    upper = max(estimate.interval.upper for estimate in estimates)
    widest = max(estimates, key=lambda estimate: estimate.interval.upper - estimate.interval.lower)
    width = widest.interval.upper - widest.interval.lower
    standard_error = widest.standard_error * (upper - lower) / width if width > 0 else (upper - lower) / 2
    return Estimate(
        log_ratio=(lower + upper) / 2,
        standard_error=standard_error,
        block_sd=max(estimate.block_sd for estimate in estimates),
        blocks=widest.blocks,
        degrees_of_freedom=widest.degrees_of_freedom,
        interval=Interval(lower=lower, upper=upper, level=level),
    )
