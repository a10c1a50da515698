"""A grid of cells to plot points on: eight braille dots a cell, or one letter a cell in ASCII."""

from __future__ import annotations

from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.scales import position
from perfguard.tui.drawing.spans import Line, Role, Span

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
        """Points from left to right that can be told apart."""
        return self._width if self._glyphs.is_ascii else 2 * self._width

    @property
    def rows(self) -> int:
        """Points from bottom to top that can be told apart."""
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
