"""Grids of cells to draw on: characters, or points as eight braille dots a cell (one letter in ASCII)."""

from __future__ import annotations

import math

from rich.cells import cell_len

from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.spans import Line, Role, Span
from perfguard.units import printable


def position(value: float, low: float, high: float, cells: int) -> int:
    """Cell of a value on an axis from `low` in the first to `high` in the last cell; clipped to both."""
    if cells <= 1 or not high > low or math.isnan(value):
        return 0
    share = (min(max(value, low), high) - low) / (high - low)
    return min(cells - 1, int(share * (cells - 1) + 0.5))


class Grid:
    """Cells of one character and one role each; what is written outside is left out."""

    def __init__(self, width: int, height: int = 1) -> None:
        self.width, self.height = max(0, width), max(0, height)
        self._cells = [[" "] * self.width for _ in range(self.height)]
        self._roles = [[Role.PLAIN] * self.width for _ in range(self.height)]

    def put(self, x: int, y: int, character: str, role: Role) -> None:
        """Set one cell; `x` from the left, `y` from the top."""
        if 0 <= x < self.width and 0 <= y < self.height:
            self._cells[y][x] = character
            self._roles[y][x] = role

    def at(self, x: int, y: int) -> str:
        """The character of a cell."""
        return self._cells[y][x]

    def write(self, x: int, y: int, text: str, role: Role) -> None:
        """Write a text to the right of a cell; characters that are not one column wide become `?`."""
        for offset, character in enumerate(printable(text)):
            self.put(x + offset, y, character if cell_len(character) == 1 else "?", role)

    def line(self, y: int = 0) -> Line:
        """One line; neighbouring cells of one role make one span."""
        spans: list[Span] = []
        for character, role in zip(self._cells[y], self._roles[y], strict=True):
            if spans and spans[-1].role is role:
                spans[-1] = Span(spans[-1].text + character, role)
            else:
                spans.append(Span(character, role))
        return tuple(spans)

    def lines(self) -> list[Line]:
        """All lines, from top to bottom."""
        return [self.line(y) for y in range(self.height)]


_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of a dot by its row and column in the cell. Source: The Unicode Standard, block Braille Patterns."""


class Canvas:
    """Points in the unit square become cells; a later point covers an earlier one's role."""

    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self._width, self._height = max(1, width), max(1, height)
        self._glyphs = glyphs
        self._dots = [[0] * self._width for _ in range(self._height)]
        self._letters = [[" "] * self._width for _ in range(self._height)]
        self._roles = [[Role.AXIS] * self._width for _ in range(self._height)]

    @property
    def columns(self) -> int:
        """Points from left to right that can be distinguished."""
        return self._width if self._glyphs.is_ascii else 2 * self._width

    @property
    def rows(self) -> int:
        """Points from bottom to top that can be distinguished."""
        return self._height if self._glyphs.is_ascii else 4 * self._height

    def mark(self, column: int, row: int, role: Role, letter: str) -> None:
        """Set one point.

        Args:
            column: From 0 at the left to `columns - 1`.
            row: From 0 at the bottom to `rows - 1`.
            role: Role of the cell from now on.
            letter: What stands there in ASCII; two different ones become `*`.
        """
        if not (0 <= column < self.columns and 0 <= row < self.rows):
            return
        across, down = (1, 1) if self._glyphs.is_ascii else (2, 4)
        from_top = self.rows - 1 - row
        x, y = column // across, from_top // down
        if not self._glyphs.is_ascii:
            self._dots[y][x] |= _DOTS[from_top % down][column % across]
        known = self._letters[y][x]
        self._letters[y][x] = letter if known in (" ", letter) else "*"
        self._roles[y][x] = role

    def plot(self, x: float, y: float, role: Role, letter: str) -> None:
        """Set the point at `x` and `y`, both from 0 to 1."""
        self.mark(position(x, 0, 1, self.columns), position(y, 0, 1, self.rows), role, letter)

    def lines(self) -> list[Line]:
        """The picture, from top to bottom."""
        return [tuple(self._spans(y)) for y in range(self._height)]

    def _spans(self, y: int) -> list[Span]:
        spans: list[Span] = []
        for x in range(self._width):
            text, role = self._cell(x, y), self._roles[y][x]
            if spans and (spans[-1].role is role or text == " "):
                spans[-1] = Span(spans[-1].text + text, spans[-1].role)
            else:
                spans.append(Span(text, role))
        return spans

    def _cell(self, x: int, y: int) -> str:
        if self._glyphs.is_ascii:
            return self._letters[y][x]
        return chr(_BRAILLE + self._dots[y][x]) if self._dots[y][x] else " "
