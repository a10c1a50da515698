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

LOOKS = 8
"""Looks that a plan reckons with, evenly spread; at a level of 0.07 % five of them cost 0.6 %, eight 1.1 %."""

_NODES = 257
_LOWEST_Z = -9.0
_HIGHEST_Z = 9.0


@lru_cache(maxsize=256)
def inflation_factor(level: float, power: float, looks: int = LOOKS) -> float:
    """How much more information the last look needs than a test that looks once, for the same level and power.

    Args:
        level: One-sided level of the whole test.
        power: In (level, 1).
        looks: Evenly spaced, the last one at the full information.

    Returns:
        At least 1.

    Raises:
        ValueError: `power` is not in (level, 1), or there is no look.

    Source: Jennison & Turnbull (2000), Group Sequential Methods, section 2.3: their R, here for the spending function
        of the gate's flags (O'Brien-Fleming type).
    """
    if not (0 < level < power < 1 and looks >= 1):
        raise ValueError(f"level {level}, power {power} and {looks} looks give no plan")
    once = float(special.ndtri(1 - level) + special.ndtri(power))
    if looks == 1:
        return 1.0
    drift = optimize.brentq(lambda shift: crossing_probability(shift, level, looks) - power, 0.0, 2 * once, xtol=1e-5)
    return max(1.0, (float(drift) / once) ** 2)


def crossing_probability(drift: float, level: float, looks: int = LOOKS) -> float:
    """Chance that any of the looks flags an effect.

    Args:
        drift: The effect in standard errors of the last look; 0 gives `level`.
        level: One-sided level of the whole test.
        looks: Evenly spaced.

    Source: Armitage, McPherson & Rowe (1969), doi:10.2307/2343787: the recursion over looks, with a drift.
    """
    bounds = _bounds(level, looks)
    nodes = np.empty(0)
    mass = np.empty(0)
    crossed = 0.0
    for look, bound in enumerate(bounds):
        grid, weights = _simpson(min(_LOWEST_Z + drift, _LOWEST_Z), min(bound, _HIGHEST_Z + drift))
        if look == 0:
            mean = drift / math.sqrt(looks)
            crossed += float(special.ndtr(mean - bound))
            density = _normal(grid - mean)
        else:
            before, now = look, look + 1
            scale = math.sqrt(now)
            means = (nodes * math.sqrt(before) + drift / math.sqrt(looks)) / scale
            crossed += float(mass @ special.ndtr((means - bound) * scale))
            density = (_normal((grid[:, None] - means[None, :]) * scale) * scale) @ mass
        nodes, mass = grid, density * weights
    return crossed


def sequential_blocks(
    effect_ratio: float, block_sd: float, *, level: float, margin_ratio: float, power: float = POWER, looks: int = LOOKS
) -> int | None:
    """Paired blocks that a sequential gate must be able to run to flag an effect with this power.

    Args:
        effect_ratio: The slowdown to find.
        block_sd: SD of the block log-ratios.
        level: One-sided level of the case, corrected for the number of cases.
        margin_ratio: The case's margin.
        power: In (level, 1).
        looks: As in `inflation_factor`.

    Returns:
        None when the effect is not above the margin, the SD is unknown, or 1000 blocks would not do.
    """
    once = blocks_needed(effect_ratio, block_sd, alpha=level, margin_ratio=margin_ratio, power=power)
    if once is None:
        return None
    needed = math.ceil(once * inflation_factor(level, power, looks) - 1e-9)
    return needed if needed <= MAX_BLOCKS else None


def sequential_mde(
    block_sd: float, blocks: int, *, level: float, margin_ratio: float, power: float = POWER, looks: int = LOOKS
) -> float:
    """Smallest slowdown that a sequential gate of at most so many blocks flags with this power, as a ratio.

    inf where the SD is unknown or there are under two blocks.
    """
    if blocks < 2 or not math.isfinite(block_sd):
        return math.inf
    kept = blocks - 2 * trimmed_blocks(blocks)
    standard_error = block_sd * math.sqrt(inflation_factor(level, power, looks) / blocks)
    return minimum_detectable_effect(standard_error, kept - 1.0, alpha=level, margin_ratio=margin_ratio, power=power)


@lru_cache(maxsize=256)
def _bounds(level: float, looks: int) -> tuple[float, ...]:
    information = [float(look) for look in range(1, looks + 1)]
    levels = nominal_levels(Spending.CAUTIOUS, level, information, [look / looks for look in information])
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
