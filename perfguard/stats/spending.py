"""Group-sequential tests: how much of the error rate each look may spend, and what a p-value is worth after several.

Looking at growing data again and again with a fixed level finds something sooner or later in nothing. Here every look
gets a share of the level, drawn from a spending function that need not know in advance how many looks there will be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

FloatArray = npt.NDArray[np.float64]

SMALLEST_LEVEL = 1e-15
"""Sequential p-values are not resolved below this."""

_LEVELS_IN_TABLE = 48
_GRID_POINTS = 257
"""Simpson nodes over the continuation region; 257 give six digits of the boundary."""
_LOWEST_Z = -9.0
_NEVER_Z = 40.0
_LEAST_STEP = 1e-3
"""Smallest relative growth of information between two looks; closer ones count as the same data."""


class Spending(str, Enum):
    """How the level is spread over the looks."""

    CAUTIOUS = "cautious"
    """O'Brien-Fleming type: next to nothing early, almost the whole level at the end. For flags."""
    EVEN = "even"
    """In proportion to the information. For leaving a case early that shows nothing."""


def spent(spending: Spending, level: float, fraction: float) -> float:
    """Part of the level that may be used up once `fraction` of the planned information is in.

    Args:
        spending: The function.
        level: One-sided level of the whole test, in (0, 1).
        fraction: In [0, 1]; more counts as 1.

    Source: Lan & DeMets (1983), doi:10.1093/biomet/70.3.659, their alpha_1; Kim & DeMets (1987) with rho = 1.
    """
    part = min(max(fraction, 0.0), 1.0)
    if part == 0.0:
        return 0.0
    if spending is Spending.EVEN:
        return level * part
    return float(2.0 * special.ndtr(special.ndtri(level / 2) / math.sqrt(part)))


def nominal_levels(
    spending: Spending, level: float, information: Sequence[float], fractions: Sequence[float]
) -> tuple[float, ...]:
    """The level of each look's own p-value at which the sequence of looks keeps `level` in all.

    Args:
        spending: The spending function.
        level: One-sided level of the whole test, in (0, 1).
        information: Of each look, growing: the blocks that it uses. Shape `(looks,)`.
        fractions: Of the planned information at each look, not falling; 1 at the last look. Shape `(looks,)`.

    Returns:
        One-sided nominal levels, shape `(looks,)`. 0 where a look may not spend anything.

    Source: Armitage, McPherson & Rowe (1969) for the recursion; Jennison & Turnbull (2000), Group Sequential
        Methods, chapters 7 and 19; section 3.3 for using the levels with Student's t.
    Assumes: estimates at successive looks have independent increments.
    """
    density: FloatArray | None = None
    nodes = np.empty(0)
    weights = np.empty(0)
    levels: list[float] = []
    used, before = 0.0, 0.0
    for now, fraction in zip(information, fractions, strict=True):
        if before:
            now = max(now, before * (1 + _LEAST_STEP))  # noqa: PLW2901 - a look without new data is nearly the same look
        allowed = max(spent(spending, level, fraction) - used, 0.0)
        exit_probability = _exit_probability(density, nodes, weights, before, now)
        bound = _bound(exit_probability, allowed)
        levels.append(float(special.ndtr(-bound)))
        used += allowed
        previous_nodes, previous_weights, previous = nodes, weights, density
        nodes = np.linspace(_LOWEST_Z, min(bound, -_LOWEST_Z), _GRID_POINTS)
        weights = _simpson(nodes)
        density = _density(previous, previous_nodes, previous_weights, before, now, nodes)
        before = now
    return tuple(levels)


def sequential_p(
    spending: Spending, p_values: Sequence[float], information: Sequence[float], fractions: Sequence[float]
) -> float:
    """The smallest level at which the looks so far would have rejected: a p-value that is valid after any of them.

    Args:
        spending: The spending function.
        p_values: Nominal one-sided p of each look, shape `(looks,)`.
        information: As for `nominal_levels`.
        fractions: As for `nominal_levels`.

    Returns:
        In [1e-15, 1]; never more at a later look. 1 without a look.

    Source: Liu & Anderson (2008), doi:10.1198/016214508000000986, sequential p-values. They may enter Holm's procedure:
        Maurer & Bretz (2013), doi:10.1080/19466315.2013.807748.
    """
    if not p_values:
        return 1.0
    levels, table = _table(spending, tuple(information), tuple(fractions))
    found = 1.0
    for look, p_value in enumerate(p_values):
        allowed = table[:, look]
        position = int(np.searchsorted(allowed, p_value))  # first level whose bound reaches p
        if position < len(levels):
            found = min(found, _between(levels, allowed, position, p_value))
    return found


@lru_cache(maxsize=256)
def _table(
    spending: Spending, information: tuple[float, ...], fractions: tuple[float, ...]
) -> tuple[FloatArray, FloatArray]:
    """Levels, and the nominal level of each look at each of them; both grow downwards."""
    levels = special.ndtr(np.linspace(special.ndtri(SMALLEST_LEVEL), special.ndtri(0.6), _LEVELS_IN_TABLE))
    rows = np.array([nominal_levels(spending, float(level), information, fractions) for level in levels])
    return levels, np.maximum.accumulate(rows, axis=0)


def _between(levels: FloatArray, allowed: FloatArray, position: int, p_value: float) -> float:
    """Level at which the bound equals p, interpolated on the z scale, where it is nearly a line."""
    if position == 0:
        return SMALLEST_LEVEL
    low, high = (special.ndtri(max(allowed[i], 1e-300)) for i in (position - 1, position))
    share = 1.0 if high <= low else (special.ndtri(max(p_value, 1e-300)) - low) / (high - low)
    ends = special.ndtri(levels[position - 1 : position + 1])
    return float(special.ndtr(ends[0] + min(max(share, 0.0), 1.0) * (ends[1] - ends[0])))


def _exit_probability(
    density: FloatArray | None, nodes: FloatArray, weights: FloatArray, before: float, now: float
) -> Callable[[float], float]:
    """Chance, as a function of the bound, to cross it at this look and none before."""
    if density is None:
        return lambda bound: float(special.ndtr(-bound))
    step = math.sqrt(now - before)
    weighted = density * weights

    def probability(bound: float) -> float:
        tail = special.ndtr(-(bound * math.sqrt(now) - nodes * math.sqrt(before)) / step)
        return float(weighted @ tail)

    return probability


def _bound(exit_probability: Callable[[float], float], allowed: float) -> float:
    if allowed <= 0 or exit_probability(_NEVER_Z) >= allowed:
        return _NEVER_Z
    if exit_probability(_LOWEST_Z) <= allowed:
        return _LOWEST_Z
    return float(optimize.brentq(lambda bound: exit_probability(bound) - allowed, _LOWEST_Z, _NEVER_Z, xtol=1e-7))


def _density(
    previous: FloatArray | None,
    previous_nodes: FloatArray,
    weights: FloatArray,
    before: float,
    now: float,
    nodes: FloatArray,
) -> FloatArray:
    """Density of this look's z, restricted to paths that no earlier look stopped."""
    if previous is None:
        return _normal(nodes)
    step = math.sqrt(now - before)
    shifts = (nodes[:, None] * math.sqrt(now) - previous_nodes[None, :] * math.sqrt(before)) / step
    result: FloatArray = (_normal(shifts) @ (previous * weights)) * math.sqrt(now) / step
    return result


def _normal(z: FloatArray) -> FloatArray:
    result: FloatArray = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return result


def _simpson(nodes: FloatArray) -> FloatArray:
    weights = np.full(nodes.size, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    result: FloatArray = weights * (nodes[1] - nodes[0]) / 3.0
    return result
