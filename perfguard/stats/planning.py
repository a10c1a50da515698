"""How many blocks a sequential gate needs to find an effect: the fixed-size answer, and what looking early costs."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from perfguard.stats.paired import trimmed_blocks
from perfguard.stats.power import MAX_BLOCKS, POWER, blocks_needed, minimum_detectable_effect
from perfguard.stats.spending import Spending, nominal_levels

FloatArray = npt.NDArray[np.float64]

ANALYSES = 8
"""Looks that a plan reckons with, evenly spread; at a level of 0.07 % five of them cost 0.6 %, eight 1.1 %."""

_NODES = 257
_LOWEST_Z = -9.0
_HIGHEST_Z = 9.0


@lru_cache(maxsize=256)
def inflation_factor(level: float, power: float, analyses: int = ANALYSES) -> float:
    """How much more information the last analysis needs than a test that analyses once, for the same level and power.

    Args:
        level: One-sided level of the whole test.
        power: In (level, 1).
        analyses: Evenly spaced, the last one at the full information.

    Returns:
        At least 1.

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
    drift = optimize.brentq(
        lambda shift: crossing_probability(shift, level, analyses) - power, 0.0, 2 * once, xtol=1e-5
    )
    return max(1.0, (float(drift) / once) ** 2)


def crossing_probability(drift: float, level: float, analyses: int = ANALYSES) -> float:
    """Chance that any of the analyses flags an effect.

    Args:
        drift: The effect in standard errors of the last analysis; 0 gives `level`.
        level: One-sided level of the whole test.
        analyses: Evenly spaced.

    Source: Armitage, McPherson & Rowe (1969), doi:10.2307/2343787: the recursion over analyses, with a drift.
    """
    bounds = _bounds(level, analyses)
    nodes = np.empty(0)
    mass = np.empty(0)
    crossed = 0.0
    for analysis, bound in enumerate(bounds):
        grid, weights = _simpson(min(_LOWEST_Z + drift, _LOWEST_Z), min(bound, _HIGHEST_Z + drift))
        if analysis == 0:
            mean = drift / math.sqrt(analyses)
            crossed += float(special.ndtr(mean - bound))
            density = _normal(grid - mean)
        else:
            before, now = analysis, analysis + 1
            scale = math.sqrt(now)
            means = (nodes * math.sqrt(before) + drift / math.sqrt(analyses)) / scale
            crossed += float(mass @ special.ndtr((means - bound) * scale))
            density = (_normal((grid[:, None] - means[None, :]) * scale) * scale) @ mass
        nodes, mass = grid, density * weights
    return crossed


def sequential_blocks(
    effect_ratio: float,
    block_sd: float,
    *,
    level: float,
    margin_ratio: float,
    power: float = POWER,
    analyses: int = ANALYSES,
) -> int | None:
    """Paired blocks that a sequential gate must be able to run to flag an effect with this power.

    Args:
        effect_ratio: The slowdown to find.
        block_sd: SD of the block log-ratios.
        level: One-sided level of the case, corrected for the number of cases.
        margin_ratio: The case's margin.
        power: In (level, 1).
        analyses: As in `inflation_factor`.

    Returns:
        None when the effect is not above the margin, the SD is unknown, or 1000 blocks would not do.
    """
    once = blocks_needed(effect_ratio, block_sd, alpha=level, margin_ratio=margin_ratio, power=power)
    if once is None:
        return None
    needed = math.ceil(once * inflation_factor(level, power, analyses) - 1e-9)
    return needed if needed <= MAX_BLOCKS else None


def sequential_mde(
    block_sd: float, blocks: int, *, level: float, margin_ratio: float, power: float = POWER, analyses: int = ANALYSES
) -> float:
    """Smallest slowdown that a sequential gate of at most so many blocks flags with this power, as a ratio.

    inf where the SD is unknown or there are under two blocks.
    """
    if blocks < 2 or not math.isfinite(block_sd):
        return math.inf
    kept = blocks - 2 * trimmed_blocks(blocks)
    standard_error = block_sd * math.sqrt(inflation_factor(level, power, analyses) / blocks)
    return minimum_detectable_effect(standard_error, kept - 1.0, alpha=level, margin_ratio=margin_ratio, power=power)


@lru_cache(maxsize=256)
def _bounds(level: float, analyses: int) -> tuple[float, ...]:
    information = [float(analysis) for analysis in range(1, analyses + 1)]
    levels = nominal_levels(Spending.CAUTIOUS, level, information, [analysis / analyses for analysis in information])
    return tuple(float(-special.ndtri(max(nominal, 1e-300))) for nominal in levels)


def _simpson(lower: float, upper: float) -> tuple[FloatArray, FloatArray]:
    nodes = np.linspace(lower, upper, _NODES)
    weights = np.full(_NODES, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    return nodes, weights * (nodes[1] - nodes[0]) / 3.0


def _normal(z: FloatArray) -> FloatArray:
    density: FloatArray = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return density
