"""From values to places on an axis, 0 at its beginning and 1 at its end, and the values that are written at it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfguard.report.scales import limit_for, nice_above

_LINEAR_LIMIT = 0.05
"""An axis of effects that reaches further is logarithmic beyond its middle, so that margins can still be seen."""
_LINEAR_RATIO = 0.01
"""End of that middle part."""
_APART = 0.065
"""Values at an axis are at least so far apart, as a share of it, or their words would meet; the last ones, whose words
stand inwards, twice as far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAxis:
    """Equal steps."""

    low: float
    """Value at its beginning."""
    high: float
    """Value at its end; above `low`."""

    def at(self, value: float) -> float:
        """Place of a value; clipped to the axis."""
        return _clipped((value - self.low) / (self.high - self.low))

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within, ascending."""
        step = nice_above((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectAxis:
    """Effects as ratios around zero, to the same limit on both sides."""

    limit: float
    """Ratio at its end."""

    @property
    def is_linear(self) -> bool:
        """Whether its steps are equal throughout."""
        return self.limit <= _LINEAR_LIMIT

    def at(self, ratio: float) -> float:
        """Place of an effect; clipped to the axis, with zero in the middle."""
        return _clipped(0.5 + 0.5 * self._height(ratio) / self._height(self.limit))

    def clips(self, ratio: float) -> bool:
        """Whether an effect lies beyond the axis."""
        return abs(ratio) > self.limit * (1 + 1e-9)

    def ticks(self) -> list[float]:
        """Round ratios on both sides of zero, ascending."""
        if self.is_linear:
            sizes = [self.limit / 2, self.limit]
        else:
            decades = (_LINEAR_RATIO, 0.1, 1.0, 10.0)
            sizes = [*(size for size in decades if 0.5 + _APART < self.at(size) < 1 - 2 * _APART), self.limit]
        return [*(-size for size in reversed(sizes)), 0.0, *sizes]

    def _height(self, ratio: float) -> float:
        if self.is_linear:
            return ratio
        return math.copysign(math.log1p(abs(ratio) / _LINEAR_RATIO), ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAxis:
    """Equal steps for equal ratios."""

    low: float
    """Value at its beginning; above zero."""
    high: float
    """Value at its end; above `low`."""

    def at(self, value: float) -> float:
        """Place of a value above zero; clipped to the axis."""
        return _clipped(math.log(value / self.low) / math.log(self.high / self.low))

    def ticks(self) -> list[float]:
        """Powers of ten within, ascending."""
        first = math.ceil(math.log10(self.low) - 1e-9)
        last = math.floor(math.log10(self.high) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]


def effect_axis(ratios: Iterable[float | None]) -> EffectAxis:
    """An axis that shows most of the effects and ends of intervals; the others are clipped."""
    return EffectAxis(limit=limit_for(ratios))


def near_axis(values: Sequence[float], *, zero: float = 0.0) -> LinearAxis:
    """An axis around values, with zero where that is not far from them; some room at both ends.

    Args:
        values: Finite, at least one.
        zero: What they are compared with.
    """
    low, high = min(values), max(values)
    if low - zero > 3 * (high - low) or zero - high > 3 * (high - low):
        room = (high - low) * 0.25 or abs(high) * 0.05 or 1.0
    else:
        low, high = min(low, zero), max(high, zero)
        room = (high - low) * 0.12 or 0.01
    return LinearAxis(low=low - room, high=high + room)


def _clipped(share: float) -> float:
    return 0.0 if math.isnan(share) else min(1.0, max(0.0, share))
