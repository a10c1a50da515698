"""Axes that read well."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_STEPS = (1.0, 2.0, 5.0)
SMALLEST_LIMIT_RATIO = 0.01
LARGEST_LIMIT_RATIO = 10.0
_ENDLESS = 1e300  # What is larger counts as infinite: the ends of an axis are computed with it


def ratio_of(log_ratio: float) -> float:
    """An effect as a ratio, 0.03 for 3 % slower; never overflows."""
    return math.expm1(min(log_ratio, 20.0))


def limit_for(ratios: Iterable[float | None], *, covered: float = 0.9) -> float:
    """End of a symmetric axis that shows most of the values: 1, 2 or 5 times a power of ten, from 1 % to 1000 %.

    Of the finite values the part `covered` lies inside; the others are drawn as clipped.
    """
    sizes = sorted(abs(ratio) for ratio in ratios if ratio is not None and math.isfinite(ratio))
    if not sizes:
        return SMALLEST_LIMIT_RATIO
    wanted = sizes[min(len(sizes) - 1, math.ceil(covered * len(sizes)) - 1)]
    return nice_above(max(SMALLEST_LIMIT_RATIO, min(wanted, LARGEST_LIMIT_RATIO)))


def nice_above(value: float) -> float:
    """The next number of the kind 1, 2 or 5 times a power of ten; `value` is positive."""
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in _STEPS if value <= step * power * (1 + 1e-9)), 10.0 * power)


def round_values(low: float, high: float, most: int) -> list[float]:
    """Values from `low` to `high` in equal steps of 1, 2 or 5 times a power of ten, ascending; about `most`."""
    step = nice_above((high - low) / most)
    return [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def bounds_of(values: Sequence[float], *, margin: float = 0.05) -> tuple[float, float]:
    """Ends of an axis that shows all finite values with some room; (0, 1) where there are none."""
    finite = [value for value in values if abs(value) < _ENDLESS]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    room = (high - low) * margin or abs(high) * margin or 1.0
    return low - room, high + room
