"""Widgets that show lines which a function draws for their size: fixed ones, and panes that scroll."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from perfguard.tui.drawing.spans import ELLIPSIS, EMPTY, Line, Span
from perfguard.tui.keymap import Scope
from perfguard.tui.widgets.bindings import bindings_in
from perfguard.tui.widgets.painting import inks_of

Draw = Callable[[int, int], Sequence[Line]]
"""Lines for a width and a height."""


def _nothing(_width: int, _height: int) -> Sequence[Line]:
    return ()


class Lines(Widget, can_focus=False, inherit_bindings=False):
    """As many lines as fit; what does not is not shown."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id, classes=classes)
        self._draw: Draw = _nothing
        self._lines: tuple[Line, ...] = ()
        self._base = Style()

    def show(self, draw: Draw) -> None:
        """Draw with this function from now on; only lines that differ are painted."""
        self._draw = draw
        width, height = self.size
        lines = tuple(self._draw(width, height)) if width and height else ()
        changed = _changed(self._lines, lines)
        self._lines = lines
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed if y < height))

    def on_resize(self, _: events.Resize) -> None:
        """Draw for the new size."""
        self._lines = tuple(self._draw(*self.size))
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Ask for the background once for all lines."""
        self._base = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """One line; the last one ends in an ellipsis where there are more."""
        content = self._lines[y] if y < len(self._lines) else EMPTY
        if y == self.size.height - 1 and len(self._lines) > self.size.height:
            content = (*content, Span(f" {ELLIPSIS}"))
        return inks_of(self).strip(content, self.size.width, self._base)


class Pane(ScrollView, can_focus=True, inherit_bindings=False):
    """Lines that may be more than fit: it scrolls by keys when it has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_in(Scope.TABLE)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id, classes=classes)
        self._draw: Draw = _nothing
        self._lines: tuple[Line, ...] = ()
        self._base = Style()

    @property
    def text(self) -> tuple[Line, ...]:
        """What is shown, also what is scrolled away."""
        return self._lines

    def show(self, draw: Draw) -> None:
        """Draw with this function from now on; only lines that differ are painted."""
        self._draw = draw
        self._redraw(everything=False)

    def on_resize(self, _: events.Resize) -> None:
        """Draw for the new size."""
        self._redraw(everything=True)

    def _redraw(self, *, everything: bool) -> None:
        width, height = self._room
        lines = tuple(self._draw(width, height)) if width > 0 and height > 0 else ()
        changed = _changed(self._lines, lines)
        self._lines = lines
        self.virtual_size = Size(width, len(lines))
        if everything:
            self.refresh()
            return
        top = round(self.scroll_y)
        rows = [y - top for y in changed if 0 <= y - top < height]
        if rows:
            self.refresh(*(Region(0, y, width, 1) for y in rows))

    @property
    def _room(self) -> Size:
        """One column is kept for the scroll bar, so that nothing moves when it comes."""
        width, height = self.size
        return Size(max(0, width - 1), height)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Ask for the background once for all lines."""
        self._base = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """One line."""
        index = y + round(self.scroll_y)
        content = self._lines[index] if index < len(self._lines) else EMPTY
        return inks_of(self).strip(content, self.size.width, self._base)

    def action_up(self) -> None:
        """One line up."""
        self.scroll_to(y=self.scroll_y - 1, animate=False)

    def action_down(self) -> None:
        """One line down."""
        self.scroll_to(y=self.scroll_y + 1, animate=False)

    def action_page_up(self) -> None:
        """A page up."""
        self.scroll_to(y=self.scroll_y - self.size.height, animate=False)

    def action_page_down(self) -> None:
        """A page down."""
        self.scroll_to(y=self.scroll_y + self.size.height, animate=False)

    def action_first(self) -> None:
        """To the first line."""
        self.scroll_to(y=0, animate=False)

    def action_last(self) -> None:
        """To the last line."""
        self.scroll_to(y=self.max_scroll_y, animate=False)

    def action_open(self) -> None:
        """Nothing is behind a text."""


def _changed(before: Sequence[Line], now: Sequence[Line]) -> list[int]:
    """Numbers of the lines that differ."""
    longest = max(len(before), len(now))
    return [y for y in range(longest) if (before[y] if y < len(before) else None) != (now[y] if y < len(now) else None)]
