"""A roofline as characters: problems below the two ceilings, both axes logarithmic."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

from perfguard.records.steps.projection import RooflineCeilings, RooflinePoint
from perfguard.units import format_flops

MARKS = string.ascii_uppercase
"""A letter for each problem, in the order given; so many can be shown."""
_WIDTH, _HEIGHT = 60, 12
_SLOPE, _FLAT, _RIDGE = "/", "-", "+"
_DECADES_BELOW = 3.0
"""Lower end of the chart below the peak, unless a problem is lower."""


def roofline_chart(points: Sequence[RooflinePoint], ceilings: RooflineCeilings, dtype: str) -> list[str]:
    """The problems of one dtype under its roof, one line of text for each line of the chart.

    Where several problems meet at one place, the first is shown.

    Args:
        points: Those of other dtypes, and those whose operations are not counted, are left out.
        ceilings: With the peak of the dtype.
        dtype: `fp32`, …

    Returns:
        Nothing where there is no problem or no peak to show.
    """
    peak = ceilings.flops_per_s.get(dtype)
    shown = [
        (mark, math.log10(point.intensity), math.log10(point.achieved_flops_per_s))
        for mark, point in zip(MARKS, points, strict=False)
        if point.dtype == dtype and point.intensity and point.achieved_flops_per_s
    ]
    if not shown or not peak:
        return []
    ridge = math.log10(peak / ceilings.bytes_per_s)
    left = math.floor(min(ridge - 1, *(x for _, x, _ in shown)))
    right = math.ceil(max(ridge + 1, *(x for _, x, _ in shown)))
    top = max(math.log10(peak), *(y for _, _, y in shown))
    bottom = min(math.log10(peak) - _DECADES_BELOW, *(y for _, _, y in shown))
    grid = _Grid(left, right, bottom, top)
    for column in range(_WIDTH):
        x = grid.x_of(column)
        grid.put(column, min(math.log10(peak), x + math.log10(ceilings.bytes_per_s)), _FLAT if x >= ridge else _SLOPE)
    grid.put(grid.column_of(ridge), math.log10(peak), _RIDGE)
    for mark, x, y in reversed(shown):
        grid.put(grid.column_of(x), y, mark)
    return [
        f"{dtype}: peak {format_flops(peak)}, ridge at {10**ridge:.1f} FLOP a byte",
        *grid.lines(),
        _axis(left, right),
    ]


class _Grid:
    """Characters by column and height."""

    def __init__(self, left: float, right: float, bottom: float, top: float) -> None:
        self._left, self._right, self._bottom, self._top = left, right, bottom, top
        self._rows = [[" "] * _WIDTH for _ in range(_HEIGHT)]

    def x_of(self, column: int) -> float:
        return self._left + (self._right - self._left) * column / (_WIDTH - 1)

    def column_of(self, x: float) -> int:
        return round((x - self._left) / (self._right - self._left) * (_WIDTH - 1))

    def put(self, column: int, y: float, character: str) -> None:
        """Show a character; what is below the chart is not shown."""
        row = round((self._top - y) / (self._top - self._bottom) * (_HEIGHT - 1))
        if 0 <= row < _HEIGHT:
            self._rows[row][column] = character

    def lines(self) -> list[str]:
        """From the top to the bottom, with the rates at the left."""
        rates = {0: self._top, _HEIGHT - 1: self._bottom}
        labels = [format_flops(10 ** rates[row]) if row in rates else "" for row in range(_HEIGHT)]
        width = max(map(len, labels))
        return [f"{label:>{width}} |{''.join(row).rstrip()}" for label, row in zip(labels, self._rows, strict=True)]


def _axis(left: int, right: int) -> str:
    ends = (f"{10.0**left:g}", f"{10.0**right:g} FLOP a byte")
    return f"{'':>14} {ends[0]}{ends[1]:>{_WIDTH - len(ends[0])}}"
