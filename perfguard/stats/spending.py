"""Group-sequential tests: how much of the error rate each analysis may spend, and p-values that stay valid.

Looking at growing data again and again with a fixed level finds something sooner or later in nothing. Here every
analysis gets a share of the level, drawn from a spending function that need not know in advance how many analyses there
will be.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache

import numpy as np
from msgspec import Struct
from scipy import special

from perfguard.stats.paired import FloatArray

SMALLEST_LEVEL = 1e-15  # Sequential p-values are not resolved below this
_LEVELS_IN_TABLE = 32
_GRID_POINTS = 161  # Simpson nodes over the continuation region; 161 give five digits of the bounds
_LOWEST_Z = -9.0
_NEVER_Z = 40.0
_LEAST_STEP = 1e-3  # Smallest relative growth of information between two analyses; closer ones count as the same data
_BISECTIONS = 10
_NEWTON_STEPS = 6
_TINY = 1e-300  # Stands for a chance of 0 where a logarithm is taken


class Spending(str, Enum):
    """How the level is spread over the analyses."""

    CAUTIOUS = "cautious"
    """O'Brien-Fleming type: next to nothing early, almost the whole level at the end. For flags."""
    EVEN = "even"  # In proportion to the information. For leaving a case early that shows nothing.


def spent(spending: Spending, level: float, fraction: float) -> float:
    """Part of the level that may be used up once `fraction` of the planned information is in.

    The level is one-sided, of the whole test, in (0, 1); a fraction above 1 counts as 1.

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
    """The level of each analysis's own p-value at which the sequence of analyses keeps `level` in all.

    All levels are one-sided; 0 where an interim analysis may not spend anything. Information, the blocks that each
    analysis uses, grows; fractions of the planned information do not fall, and are 1 at the last. Shape `(analyses,)`.

    Source: Armitage, McPherson & Rowe (1969) for the recursion; Jennison & Turnbull (2000), Group Sequential
        Methods, chapters 7 and 19; section 3.3 for using the levels with Student's t.
    Assumes: estimates at successive analyses have independent increments.
    """
    return tuple(float(row[0]) for row in _bounds_of(spending, np.array([level]), information, fractions))


def sequential_p(
    spending: Spending, p_values: Sequence[float], information: Sequence[float], fractions: Sequence[float]
) -> float:
    """The smallest level at which the analyses so far would have rejected: a p-value that is valid after any of them.

    The p-values are the nominal one-sided ones, shape `(analyses,)`; the rest is as in `nominal_levels`. Gives a value
    in [1e-15, 1], never more at a later look, and 1 without an analysis.

    Source: Liu & Anderson (2008), doi:10.1198/016214508000000986, sequential p-values. They may enter Holm's procedure:
        Maurer & Bretz (2013), doi:10.1080/19466315.2013.807748.
    """
    if not p_values:
        return 1.0
    levels_z, analyses = _table(spending, tuple(information), tuple(fractions))
    return min(_level_at(p_value, levels_z, *each) for p_value, each in zip(p_values, analyses, strict=True))


@lru_cache(maxsize=256)
def _table(
    spending: Spending, information: tuple[float, ...], fractions: tuple[float, ...]
) -> tuple[list[float], list[tuple[list[float], list[float]]]]:
    """Levels as z; of each analysis its nominal level at each of them, as p and as z. All of them grow."""
    levels_z = np.linspace(special.ndtri(SMALLEST_LEVEL), special.ndtri(0.6), _LEVELS_IN_TABLE)
    bounds = np.array(_bounds_of(spending, special.ndtr(levels_z), information, fractions))
    allowed = np.maximum.accumulate(bounds, axis=1)
    allowed_z = special.ndtri(np.maximum(allowed, _TINY))
    return levels_z.tolist(), list(zip(allowed.tolist(), allowed_z.tolist(), strict=True))


def _level_at(p_value: float, levels_z: list[float], allowed: list[float], allowed_z: list[float]) -> float:
    """Level at which an analysis's bound equals p, interpolated on the z scale, where it is nearly a line."""
    position = bisect_left(allowed, p_value)  # first level whose bound reaches p
    if position == len(allowed):
        return 1.0
    if position == 0:
        return SMALLEST_LEVEL
    (low, high), (low_z, high_z) = levels_z[position - 1 : position + 1], allowed_z[position - 1 : position + 1]
    wanted_z = float(special.ndtri(max(p_value, _TINY)))
    share = (wanted_z - low_z) / (high_z - low_z) if high_z > low_z else 1.0
    return float(special.ndtr(low + share * (high - low)))


def _bounds_of(
    spending: Spending, levels: FloatArray, information: Sequence[float], fractions: Sequence[float]
) -> list[FloatArray]:
    """Nominal level of each analysis, for many levels at once: a list over analyses of shape `(levels,)`."""
    found: list[FloatArray] = []
    latest = _analysis(spending, tuple(levels.tolist()), tuple(zip(information, fractions, strict=True)))
    while latest is not None:
        found.append(special.ndtr(-latest.bounds))
        latest = latest.before
    return found[::-1]


@lru_cache(maxsize=128)
def _analysis(
    spending: Spending, levels: tuple[float, ...], analyses: tuple[tuple[float, float], ...]
) -> _Analysis | None:
    """The last of these analyses, each its information and fraction; those before are shared with equal beginnings."""
    if not analyses:
        return None
    before = _analysis(spending, levels, analyses[:-1])
    information, fraction = analyses[-1]
    # An interim analysis without new data is nearly the same look.
    now = max(information, before.information * (1 + _LEAST_STEP)) if before is not None else information
    target = np.array([spent(spending, level, fraction) for level in levels])
    used = before.used if before is not None else np.zeros_like(target)
    allowed = np.maximum(target - used, 0.0)
    bounds = before.state.bounds(now, allowed) if before is not None else -special.ndtri(allowed)
    return _Analysis(before, now, np.clip(bounds, _LOWEST_Z, _NEVER_Z), used + allowed)


@dataclass(frozen=True, eq=False)
class _Analysis:
    """An analysis of many tests at once, one row for each level."""

    before: _Analysis | None
    information: float
    bounds: FloatArray  # The z beyond which it rejects; shape `(levels,)`, as `used`
    used: FloatArray

    @cached_property
    def state(self) -> _State:
        """What the next analysis starts from."""
        return _State.after(self.before.state if self.before is not None else None, self.information, self.bounds)


class _State(Struct, frozen=True):
    """Density of an interim analysis's z over the paths that no analysis has stopped yet, one row for each level."""

    information: float
    nodes: FloatArray  # Shape `(levels, points)`
    weighted: FloatArray  # Density times Simpson's weights, the same shape

    @classmethod
    def after(cls, state: _State | None, now: float, bounds: FloatArray) -> _State:
        """The state once paths beyond `bounds` have stopped."""
        upper = np.minimum(bounds, -_LOWEST_Z)
        share = np.linspace(0.0, 1.0, _GRID_POINTS)
        nodes = _LOWEST_Z + (upper - _LOWEST_Z)[:, None] * share[None, :]
        density = normal_density(nodes) if state is None else state.density(now, nodes)
        return cls(now, nodes, density * simpson_weights(nodes))

    def density(self, now: float, nodes: FloatArray) -> FloatArray:
        """Density of the next analysis's z at `nodes`."""
        step = math.sqrt(now - self.information)
        shifts = nodes[:, :, None] * math.sqrt(now) - self.nodes[:, None, :] * math.sqrt(self.information)
        spread = normal_density(shifts / step)
        result: FloatArray = np.einsum("lij,lj->li", spread, self.weighted) * math.sqrt(now) / step
        return result

    def bounds(self, now: float, allowed: FloatArray) -> FloatArray:
        """The z that the next analysis crosses with probability `allowed`, by bisection and then Newton's method."""
        low, high = np.full_like(allowed, _LOWEST_Z), np.full_like(allowed, _NEVER_Z)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            beyond = self._crossing(now, middle) > allowed
            low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
        z = low
        for _ in range(_NEWTON_STEPS):
            chance = np.maximum(self._crossing(now, z), _TINY)
            slope = self.density(now, z[:, None])[:, 0]
            # On the log scale the curve is nearly a parabola far out, so a few steps reach tails of 1e-15.
            step = chance * (np.log(chance) - np.log(np.maximum(allowed, _TINY))) / np.maximum(slope, _TINY)
            z = np.clip(z + step, low, high)
        return np.where(allowed > 0, z, _NEVER_Z)

    def _crossing(self, now: float, z: FloatArray) -> FloatArray:
        step = math.sqrt(now - self.information)
        tail = special.ndtr(-(z[:, None] * math.sqrt(now) - self.nodes * math.sqrt(self.information)) / step)
        result: FloatArray = (tail * self.weighted).sum(axis=1)
        return result


def normal_density(z: FloatArray) -> FloatArray:
    """Density of the standard normal distribution."""
    result: FloatArray = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return result


def simpson_weights(nodes: FloatArray) -> FloatArray:
    """Weights of Simpson's rule for evenly spaced nodes, an odd number in the last dimension."""
    weights = np.full(nodes.shape[-1], 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    result: FloatArray = weights * (nodes[..., 1] - nodes[..., 0])[..., None] / 3.0
    return result
