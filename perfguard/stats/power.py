"""What a run can see: minimum detectable effects, the blocks that an effect needs, and what looking early costs."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from perfguard.stats.confirming import confirmation_power
from perfguard.stats.numeric import chi2_quantile, root_between
from perfguard.stats.paired import FloatArray, trimmed_blocks
from perfguard.stats.spending import Spending, nominal_levels, normal_density, simpson_weights

POWER = 0.8  # Chance that an effect of exactly the MDE is found: flagged, and confirmed where that is needed
MAX_BLOCKS = 1000  # No answer beyond this many blocks: nobody would wait for them

ANALYSES = 8
"""About as many analyses are spread evenly over the planned blocks; more would cost power and find little earlier. At a
level of 0.07 % five of them cost 0.6 %, eight 1.1 %."""

_SCALE_NODES = 200  # Quantile nodes for the sampling distribution of the estimated SD; 200 give three digits of the MDE
_Z_NODES = 257
_LARGEST_Z = 9.0
_LARGEST_LOG_EFFECT = 50.0  # More is never found
_CERTAIN = 0.999  # From this chance of a confirmation on, the flag alone says how large an effect must be


def flag_power(shift: float, degrees_of_freedom: float, alpha: float) -> float:
    """Chance that a one-sided t-test at `alpha` finds a shift, in standard errors.

    The estimated standard error itself varies, so the power is averaged over that variation. Degrees of freedom may be
    fractional; alpha is the level after any correction for multiplicity.

    Source: Johnson & Welch (1940) for the noncentral t.
    """
    critical, scales = _critical(degrees_of_freedom, alpha)
    return float(special.ndtr(shift - critical * scales).mean())


@lru_cache(maxsize=4096)
def _critical(degrees_of_freedom: float, alpha: float) -> tuple[float, FloatArray]:
    """The bound of the t-test, and what the estimated standard error comes to over the true one."""
    nodes = (np.arange(_SCALE_NODES) + 0.5) / _SCALE_NODES
    scales = np.sqrt(chi2_quantile(nodes, degrees_of_freedom) / degrees_of_freedom)
    return float(-special.stdtrit(degrees_of_freedom, alpha)), scales


@lru_cache(maxsize=4096)  # the same few degrees of freedom recur over cases and block counts
def detectable_shift(degrees_of_freedom: float, alpha: float, power: float = POWER) -> float:
    """Shift, in standard errors, that a one-sided t-test at `alpha` finds with probability `power` in (alpha, 1).

    The usual `t(1-alpha) + t(power)` is 8 % short at alpha 0.0007 and 5 degrees of freedom.

    Source: Bloom (1995), doi:10.1177/0193841X9501900504, for the MDE.
    """
    critical, scales = _critical(degrees_of_freedom, alpha)
    highest = 10.0 + abs(critical) * float(scales[-1])
    return root_between(
        lambda shift: flag_power(shift, degrees_of_freedom, alpha) - power, -highest, highest, within=1e-10
    )


def minimum_detectable_effect(
    standard_error: float,
    degrees_of_freedom: float,
    *,
    alpha: float,
    margin_ratio: float,
    power: float = POWER,
    block_sd: float | None = None,
) -> float:
    """Smallest true slowdown that a run of this precision finds with probability `power`.

    Alpha is the one-sided level after correction for multiplicity. The standard error is that of the log-ratio, and an
    unknown precision, inf or no degrees of freedom, gives inf. With the SD between blocks, a flag must be confirmed,
    too. Otherwise a ratio, 0.031 for 3.1 %, never under the margin.
    """
    if degrees_of_freedom <= 0 or not math.isfinite(standard_error):
        return math.inf
    if standard_error == 0:
        return margin_ratio
    log_margin = math.log1p(margin_ratio)
    flagged = log_margin + detectable_shift(degrees_of_freedom, alpha, power) * standard_error
    if flagged >= _LARGEST_LOG_EFFECT:
        return math.inf
    if block_sd is None or block_sd == 0 or confirmation_power(flagged / block_sd) >= _CERTAIN:
        return max(margin_ratio, math.expm1(flagged))

    def shortfall(log_effect: float) -> float:
        shift = (log_effect - log_margin) / standard_error
        return flag_power(shift, degrees_of_freedom, alpha) * confirmation_power(log_effect / block_sd) - power

    # What is six SDs larger is confirmed for certain, and flagged more often than `power` asks.
    needed = root_between(shortfall, flagged, flagged + 6 * block_sd, within=1e-7)
    return max(margin_ratio, math.expm1(needed)) if needed < _LARGEST_LOG_EFFECT else math.inf


def blocks_needed(
    effect_ratio: float,
    block_sd: float,
    *,
    alpha: float,
    margin_ratio: float,
    power: float = POWER,
    inflation: float = 1.0,
    confirms: bool = False,
) -> int | None:
    """Paired blocks after which a slowdown of `effect_ratio` would be flagged with this power.

    `block_sd` is that of the block log-ratios, as in `Estimate.block_sd`; the inflation is how many more blocks several
    analyses need than one. With `confirms` the power is that of a flag that is confirmed, too. The rest is as in
    `minimum_detectable_effect`.

    Returns:
        At least 2; None when the effect is not above the margin, the SD is unknown, or 1000 blocks would not do, as
        where a confirmation, which has 20 blocks, is too unlikely.
    """
    reach = math.log1p(effect_ratio) - math.log1p(margin_ratio)
    if reach <= 0 or not math.isfinite(block_sd):
        return None
    if block_sd == 0:
        return 2
    confirmed = confirmation_power(math.log1p(effect_ratio) / block_sd) if confirms else 1.0
    if confirmed <= power:
        return None
    wanted = power / confirmed

    def enough(blocks: int) -> bool:
        freedom = blocks - 2.0 * trimmed_blocks(blocks) - 1.0
        return flag_power(reach / block_sd * math.sqrt(blocks / inflation), freedom, alpha) >= wanted

    if not enough(MAX_BLOCKS):
        return None
    below, enough_at = 1, MAX_BLOCKS
    while enough_at - below > 1:
        middle = (below + enough_at) // 2
        below, enough_at = (below, middle) if enough(middle) else (middle, enough_at)
    return enough_at


@lru_cache(maxsize=256)
def inflation_factor(level: float, power: float, analyses: int = ANALYSES) -> float:
    """How much more information the last analysis needs than a test that analyses once, for the same level and power.

    At least 1. The level is one-sided, of the whole test; analyses are evenly spaced, the last at the full information.

    Raises:
        ValueError: `power` is not in (level, 1), or there is no analysis.

    Source: Jennison & Turnbull (2000), Group Sequential Methods, section 2.3: their R, here for the spending function
        of the gate's flags (O'Brien-Fleming type).
    """
    if not (0 < level < power < 1 and analyses >= 1):
        raise ValueError(f"level {level}, power {power} and {analyses} analyses give no plan")
    once = float(special.ndtri(1 - level) + special.ndtri(power))
    if analyses == 1:
        return 1.0
    drift = root_between(lambda shift: crossing_probability(shift, level, analyses) - power, 0.0, 2 * once, within=1e-5)
    return max(1.0, (drift / once) ** 2)


def crossing_probability(drift: float, level: float, analyses: int = ANALYSES) -> float:
    """Chance that any of the evenly spaced analyses flags an effect, at one-sided `level` of the whole test.

    `drift` is the effect in standard errors of the last analysis, a slowdown's; 0 gives `level`.

    Source: Armitage, McPherson & Rowe (1969), doi:10.2307/2343787: the recursion over analyses, with a drift.
    """
    # Before the first analysis there is no information: all mass is at 0.
    nodes, mass, crossed = np.zeros(1), np.ones(1), 0.0
    for before, bound in enumerate(_bounds(level, analyses)):
        scale = math.sqrt(before + 1)
        means = (nodes * math.sqrt(before) + drift / math.sqrt(analyses)) / scale
        crossed += float(mass @ special.ndtr((means - bound) * scale))
        grid = np.linspace(-_LARGEST_Z, min(bound, _LARGEST_Z + drift), _Z_NODES)
        density = (normal_density((grid[:, None] - means[None, :]) * scale) * scale) @ mass
        nodes, mass = grid, density * simpson_weights(grid)
    return crossed


@lru_cache(maxsize=256)
def _bounds(level: float, analyses: int) -> tuple[float, ...]:
    information = [float(analysis) for analysis in range(1, analyses + 1)]
    levels = nominal_levels(Spending.CAUTIOUS, level, information, [analysis / analyses for analysis in information])
    return tuple(float(-special.ndtri(nominal)) for nominal in levels)


def sequential_blocks(
    effect_ratio: float,
    block_sd: float,
    *,
    level: float,
    margin_ratio: float,
    power: float = POWER,
    analyses: int = ANALYSES,
) -> int | None:
    """Paired blocks that a sequential gate must be able to run to end red at a slowdown of `effect_ratio`.

    The level is that of the case, one-sided and corrected for the number of cases; the rest is as in `blocks_needed`
    and `inflation_factor`.

    Returns:
        None when the effect is not above the margin, the SD is unknown, or 1000 blocks would not do.
    """
    inflation = inflation_factor(level, power, analyses)
    return blocks_needed(
        effect_ratio, block_sd, alpha=level, margin_ratio=margin_ratio, power=power, inflation=inflation, confirms=True
    )


def sequential_mde(
    block_sd: float, blocks: int, *, level: float, margin_ratio: float, power: float = POWER, analyses: int = ANALYSES
) -> float:
    """Smallest slowdown at which a sequential gate of at most so many blocks ends red with this power, as a ratio.

    inf where the SD is unknown or there are under two blocks.
    """
    if blocks < 2 or not math.isfinite(block_sd):
        return math.inf
    kept = blocks - 2 * trimmed_blocks(blocks)
    standard_error = block_sd * math.sqrt(inflation_factor(level, power, analyses) / blocks)
    return minimum_detectable_effect(
        standard_error, kept - 1.0, alpha=level, margin_ratio=margin_ratio, power=power, block_sd=block_sd
    )
