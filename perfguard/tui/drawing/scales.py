"""From values to columns and rows."""

from __future__ import annotations

import math


def position(value: float, low: float, high: float, cells: int) -> int:
    """Cell of a value on an axis from `low` in the first to `high` in the last cell; clipped to both."""
    if cells <= 1 or not high > low or math.isnan(value):
        return 0
    share = (min(max(value, low), high) - low) / (high - low)
    return min(cells - 1, int(share * (cells - 1) + 0.5))
