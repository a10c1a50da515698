"""A row of values as heights of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.grid import position


def sparkline(values: Sequence[float], width: int, glyphs: Glyphs, *, low: float, high: float) -> str:
    """The latest values, one a cell, newest last; fewer values than cells leave the beginning empty.

    Args:
        values: In order of time; nan makes an empty cell.
        width: Cells.
        glyphs: What to draw with.
        low: Value of the lowest cell; what is below it looks the same.
        high: Value of the highest cell.
    """
    shown = values[-width:] if width > 0 else ()
    cells = "".join(_cell(value, glyphs, low, high) for value in shown)
    return cells.rjust(max(0, width))


def thinned(values: Sequence[float], most: int) -> tuple[float, ...]:
    """At most so many values that follow the whole series: means of equal stretches."""
    if most <= 0:
        return ()
    if len(values) <= most:
        return tuple(values)
    edges = [round(index * len(values) / most) for index in range(most + 1)]
    return tuple(sum(values[start:end]) / (end - start) for start, end in pairwise(edges))


def _cell(value: float, glyphs: Glyphs, low: float, high: float) -> str:
    if math.isnan(value):
        return " "
    return glyphs.levels[position(value, low, high, len(glyphs.levels))]
