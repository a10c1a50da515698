"""One-sided p-values against a margin, from an estimate."""

from __future__ import annotations

import math
from dataclasses import replace

from scipy import stats

from perfguard.records.estimate import Estimate, Interval


def p_slower(estimate: Estimate, margin_ratio: float) -> float:
    """One-sided p of H0 "slower by the margin at most": `theta <= log(1 + margin)`.

    Args:
        estimate: Effect with its standard error and degrees of freedom.
        margin_ratio: Smallest effect worth a flag, 0 or more; 0.005 is 0.5 %.

    Returns:
        In [0, 1]; 1 when there is no variance estimate (under two blocks), since nothing can be said. With a
        standard error of zero the t limit would be 0; the smallest p that signs alone support, `2**-blocks`,
        is given instead.

    Raises:
        ValueError: The margin is negative or not finite.

    Source: Student's t against a shifted null; Wellek (2010), Testing Statistical Hypotheses of Equivalence
        and Noninferiority, 2nd ed., section 2.3.
    """
    if not (math.isfinite(margin_ratio) and margin_ratio >= 0):
        raise ValueError(f"the margin must be finite and at least 0, not {margin_ratio}")
    if estimate.degrees_of_freedom <= 0 or not math.isfinite(estimate.standard_error):
        return 1.0
    excess = estimate.log_ratio - math.log1p(margin_ratio)
    if estimate.standard_error == 0:
        return 0.5**estimate.blocks if excess > 0 else 1.0
    return float(stats.t.sf(excess / estimate.standard_error, estimate.degrees_of_freedom))


def p_faster(estimate: Estimate, margin_ratio: float) -> float:
    """One-sided p of H0 `theta >= -log(1 + margin)`: `p_slower` with the arms swapped."""
    return p_slower(swapped(estimate), margin_ratio)


def swapped(estimate: Estimate) -> Estimate:
    """The same estimate with baseline and candidate exchanged."""
    interval = estimate.interval
    return replace(
        estimate,
        log_ratio=-estimate.log_ratio,
        interval=Interval(lower=-interval.upper, upper=-interval.lower, level=interval.level),
    )


def p_outside(estimate: Estimate, limit_ratio: float) -> float:
    """The p of H0 "the effect lies outside `(-log(1 + limit), log(1 + limit))`": the larger of two one-sided ones.

    At level `(1 - c) / 2` this rejects exactly where the two-sided interval of level `c` lies inside the limits.

    Args:
        estimate: Effect with its standard error and degrees of freedom.
        limit_ratio: Above 0; symmetric on the log scale, so that exchanging the arms changes nothing.

    Returns:
        In [0, 1]; 1 without a variance estimate. With a standard error of zero as in `p_slower`.

    Source: Schuirmann (1987), doi:10.1007/BF01068419, two one-sided tests.
    """
    if estimate.degrees_of_freedom <= 0 or not math.isfinite(estimate.standard_error):
        return 1.0
    room = math.log1p(limit_ratio) - abs(estimate.log_ratio)
    if estimate.standard_error == 0:
        return 0.5**estimate.blocks if room > 0 else 1.0
    return float(stats.t.sf(room / estimate.standard_error, estimate.degrees_of_freedom))
