"""A grid of cells to write on, where characters and not dots are wanted."""

from __future__ import annotations

from rich.cells import cell_len

from perfguard.tui.drawing.spans import Line, Role, Span
from perfguard.units import printable


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
