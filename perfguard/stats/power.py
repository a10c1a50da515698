"""What a run could have seen: minimum detectable effects, and the blocks that an effect needs."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import optimize, stats

from perfguard.stats.paired import trimmed_blocks

POWER = 0.8
"""Chance to flag an effect of exactly the MDE."""

MAX_BLOCKS = 1000
"""No answer beyond this many blocks: nobody would wait for them."""

_SCALE_NODES = 200
"""Quantile nodes for the sampling distribution of the estimated SD; 200 give three digits of the MDE."""


@lru_cache(maxsize=4096)  # the same few degrees of freedom recur over cases and block counts
def detectable_shift(degrees_of_freedom: float, alpha: float, power: float = POWER) -> float:
    """Shift, in standard errors, that a one-sided t-test at `alpha` finds with probability `power`.

    The usual `t(1-alpha) + t(power)` is 8 % short at alpha 0.0007 and 5 degrees of freedom, because the
    estimated standard error itself varies; so the noncentral-t power is averaged over that variation.

    Args:
        degrees_of_freedom: Above 0; may be fractional.
        alpha: Level of the test, in (0, 1), after any correction for multiplicity.
        power: In (alpha, 1).

    Source: Bloom (1995), doi:10.1177/0193841X9501900504, for the MDE; Johnson & Welch (1940) for the
        noncentral t.
    """
    critical = float(stats.t.isf(alpha, degrees_of_freedom))
    nodes = (np.arange(_SCALE_NODES) + 0.5) / _SCALE_NODES
    scales = np.sqrt(stats.chi2.ppf(nodes, degrees_of_freedom) / degrees_of_freedom)

    def shortfall(shift: float) -> float:
        return float(stats.norm.cdf(shift - critical * scales).mean()) - power

    highest = 10.0 + abs(critical) * float(scales[-1])
    return float(optimize.brentq(shortfall, -highest, highest))


def minimum_detectable_effect(
    standard_error: float, degrees_of_freedom: float, *, alpha: float, margin_ratio: float, power: float = POWER
) -> float:
    """Smallest true slowdown that a run of this precision flags with probability `power`.

    Args:
        standard_error: Of the log-ratio; inf when unknown.
        degrees_of_freedom: Of that standard error; 0 when unknown.
        alpha: One-sided level after correction for multiplicity.
        margin_ratio: The margin of the test.
        power: In (alpha, 1).

    Returns:
        A ratio, 0.031 for 3.1 %; never under the margin; inf when the precision is unknown.
    """
    if degrees_of_freedom <= 0 or not math.isfinite(standard_error):
        return math.inf
    if standard_error == 0:
        return margin_ratio
    log_effect = math.log1p(margin_ratio) + detectable_shift(degrees_of_freedom, alpha, power) * standard_error
    return max(margin_ratio, math.expm1(log_effect)) if log_effect < 50 else math.inf


def blocks_needed(
    effect_ratio: float, block_sd: float, *, alpha: float, margin_ratio: float, power: float = POWER
) -> int | None:
    """Paired blocks after which an effect would be flagged with probability `power`.

    Args:
        effect_ratio: The slowdown to find, 0.02 for 2 %.
        block_sd: SD of the per-block log-ratios, as in `Estimate.block_sd`.
        alpha: One-sided level after correction for multiplicity.
        margin_ratio: The margin of the test.
        power: In (alpha, 1).

    Returns:
        At least 2; None when the effect is not above the margin, the SD is unknown, or 1000 blocks would not
        do.
    """
    reach = math.log1p(effect_ratio) - math.log1p(margin_ratio)
    if reach <= 0 or not math.isfinite(block_sd):
        return None

    def enough(blocks: int) -> bool:
        shift = detectable_shift(blocks - 2.0 * trimmed_blocks(blocks) - 1.0, alpha, power)
        return shift * block_sd / math.sqrt(blocks) <= reach

    if not enough(MAX_BLOCKS):
        return None
    below, enough_at = 1, MAX_BLOCKS
    while enough_at - below > 1:
        middle = (below + enough_at) // 2
        below, enough_at = (below, middle) if enough(middle) else (middle, enough_at)
    return enough_at
