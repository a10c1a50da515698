"""What plots are drawn on: grids of characters, canvases of points (braille, or letters in ASCII), sparklines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise, product

from rich.cells import cell_len

from perfguard.tui.drawing.spans import Glyphs, Line, Role, Span, line
from perfguard.units import printable

NO_ROOM = line(Span("too little room for this plot; z makes more", Role.MUTED))


def position(value: float, low: float, high: float, cells: int) -> int:
    """Cell of a value on an axis from `low` in the first to `high` in the last cell; clipped to both."""
    if cells <= 1 or not high > low or math.isnan(value):
        return 0
    share = (min(max(value, low), high) - low) / (high - low)
    return min(cells - 1, int(share * (cells - 1) + 0.5))


def sparkline(values: Sequence[float], width: int, glyphs: Glyphs, *, low: float, high: float) -> str:
    """The latest values, one a cell, newest last; fewer values than cells leave the beginning empty, nan its cell.

    Values outside `low` (the lowest cell) and `high` (the highest one) are clipped.
    """
    levels = glyphs.levels
    shown = values[-width:] if width > 0 else ()
    cells = (" " if math.isnan(value) else levels[position(value, low, high, len(levels))] for value in shown)
    return "".join(cells).rjust(max(0, width))


def thinned(values: Sequence[float], most: int) -> tuple[float, ...]:
    """At most so many values that follow the whole series: means of equal stretches."""
    if most <= 0:
        return ()
    if len(values) <= most:
        return tuple(values)
    edges = [round(index * len(values) / most) for index in range(most + 1)]
    return tuple(sum(values[start:end]) / (end - start) for start, end in pairwise(edges))


class Grid:
    """Cells of one character and one role each; what is written outside is left out."""

    def __init__(self, width: int, height: int = 1) -> None:
        self.width, self.height = max(0, width), max(0, height)
        self._cells = [[Span(" ")] * self.width for _ in range(self.height)]

    def put(self, x: int, y: int, character: str, role: Role) -> None:
        """Set one cell; `x` from the left, `y` from the top."""
        if 0 <= x < self.width and 0 <= y < self.height:
            self._cells[y][x] = Span(character, role)

    def at(self, x: int, y: int) -> str:
        """The character of a cell."""
        return self._cells[y][x].text

    def write(self, x: int, y: int, text: str, role: Role) -> None:
        """Write a text to the right of a cell; characters that are not one column wide become `?`."""
        for offset, character in enumerate(printable(text)):
            self.put(x + offset, y, character if cell_len(character) == 1 else "?", role)

    def fill(self, xs: Iterable[int], ys: Iterable[int], character: str, role: Role) -> None:
        """Set all cells of some columns and lines."""
        for x, y in product(xs, ys):
            self.put(x, y, character, role)

    def draw_axes(self, x: int, y: int, glyphs: Glyphs) -> None:
        """Axes from the upper edge down to a corner, and from there to the right edge."""
        self.fill([x], range(y), glyphs.vertical, Role.AXIS)
        self.put(x, y, glyphs.corner, Role.AXIS)
        self.fill(range(x + 1, self.width), [y], glyphs.horizontal, Role.AXIS)

    def line(self, y: int = 0) -> Line:
        """One line; neighbouring cells of one role make one span."""
        groups = groupby(self._cells[y], lambda cell: cell.role)
        return tuple(Span("".join(cell.text for cell in cells), role) for role, cells in groups)

    def lines(self) -> list[Line]:
        """All lines, from top to bottom."""
        return [self.line(y) for y in range(self.height)]


_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of a dot by its row and column in the cell. Source: The Unicode Standard, block Braille Patterns."""


def draw_whisker(grid: Grid, column: int, rows: int, ends: tuple[float, float], *, glyphs: Glyphs, role: Role) -> None:
    """A vertical line over the uppermost `rows` of a grid; `ends` are 0 at their lower edge and 1 at the upper one."""
    fine = 1 if glyphs.is_ascii else len(_DOTS)
    lower, upper = (position(end, 0.0, 1.0, rows * fine) for end in ends)
    for row in range(rows):
        base = (rows - 1 - row) * fine  # Of the lowest point of the cell
        dots = [dot for step, (dot, _) in enumerate(reversed(_DOTS[:fine])) if lower <= base + step <= upper]
        if dots:
            grid.put(column, row, glyphs.vertical if glyphs.is_ascii else chr(_BRAILLE | sum(dots)), role)


class Canvas:
    """Points on a grid; a later point covers an earlier one's role. `columns` and `rows` can be distinguished."""

    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self._grid = Grid(max(1, width), max(1, height))
        self._is_ascii = glyphs.is_ascii
        self._across, self._down = (1, 1) if glyphs.is_ascii else (2, 4)
        self.columns, self.rows = self._across * self._grid.width, self._down * self._grid.height

    def mark(self, column: int, row: int, role: Role, letter: str) -> None:
        """Set the point of a column from the left and a row from the bottom.

        In ASCII a letter stands for the cell; two different ones become `*`.
        """
        if not (0 <= column < self.columns and 0 <= row < self.rows):
            return
        from_top = self.rows - 1 - row
        x, y = column // self._across, from_top // self._down
        known = self._grid.at(x, y)
        if self._is_ascii:
            cell = letter if known in (" ", letter) else "*"
        else:
            dot = _DOTS[from_top % self._down][column % self._across]
            cell = chr((_BRAILLE if known == " " else ord(known)) | dot)
        self._grid.put(x, y, cell, role)

    def at(self, x: int, y: int) -> str:
        """The points of a cell, `y` from the top; a space where there are none."""
        return self._grid.at(x, y)

    def lines(self) -> list[Line]:
        """The picture, from top to bottom."""
        return self._grid.lines()
