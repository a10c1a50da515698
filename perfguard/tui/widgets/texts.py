"""Widgets that show lines which a function draws for their size, and how spans with roles become textual's strips."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from perfguard.tui.drawing.spans import (
    ASCII,
    ELLIPSIS,
    EMPTY,
    UNICODE,
    Line,
    Role,
    Span,
    as_ascii,
    fitted,
    shortened,
    width_of,
)
from perfguard.tui.keymap import KEYS, KeyScope
from perfguard.units import printable

Draw = Callable[[int, int], Sequence[Line]]  # Lines for a width and a height


def bindings_in(*scopes: KeyScope) -> list[BindingType]:
    """One binding for each thing that keys do in these scopes; each has its id, so that it can be remapped."""
    return [
        # With priority the app itself acts, before it hands on the next key; else whatever has the focus does, later.
        Binding(
            key.keys, key.action, key.text, show=bool(key.label), tooltip=key.text, id=key.id, priority=key.takes_focus
        )
        for key in KEYS
        if key.scope in scopes
    ]


def _nothing(_width: int, _height: int) -> Sequence[Line]:
    return ()


class Inks:
    """How roles look in the present theme, and which characters may be used."""

    def __init__(self, styles: Mapping[Role, Style], *, is_ascii: bool) -> None:
        self._styles = styles
        self.glyphs = ASCII if is_ascii else UNICODE
        """What pictures are drawn with."""

    def segments(self, content: Line, base: Style) -> list[Segment]:
        """A line's spans on the background of `base`."""
        styles, text_of = self._styles, as_ascii if self.glyphs.is_ascii else str
        return [Segment(text_of(span.text), base + styles[span.role]) for span in content]

    def strip(self, content: Line, width: int, base: Style) -> Strip:
        """A line as wide as its widget; one that is too long ends in an ellipsis."""
        if width_of(content) > width:
            content = fitted(content, width)
        return Strip(self.segments(content, base)).adjust_cell_length(width, base)


def inks_of(widget: Widget) -> Inks:
    """The inks of a widget's application."""
    inks: Inks = widget.app.inks  # type: ignore[attr-defined]
    return inks


class _Drawn(Widget, inherit_bindings=False):
    """Shows what a function draws; only lines that differ are painted."""

    spare_columns: ClassVar[int] = 0  # Columns at the right that are left free

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id, classes=classes)
        self._draw: Draw = _nothing
        self.text: tuple[Line, ...] = ()
        """What is shown, also what is scrolled away."""
        self._base = Style()

    def show(self, draw: Draw) -> None:
        """Draw with this function from now on."""
        self._draw = draw
        before, top = self.text, round(self.scroll_y)
        self._redraw()
        changed = [y - top for y, (old, new) in enumerate(zip_longest(before, self.text)) if old != new]
        rows = [Region(0, y, self.size.width, 1) for y in changed if 0 <= y < self.size.height]
        if rows:
            self.refresh(*rows)

    def on_resize(self, _: events.Resize) -> None:
        """Draw for the new size."""
        self._redraw()
        self.refresh()

    def _redraw(self) -> None:
        width, height = self.size.width - self.spare_columns, self.size.height
        self.text = tuple(self._draw(width, height)) if width > 0 and height > 0 else ()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Ask for the background once for all lines."""
        self._base = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """One line."""
        index = y + round(self.scroll_y)
        return inks_of(self).strip(self._line(index), self.size.width, self._base)

    def _line(self, index: int) -> Line:
        return self.text[index] if index < len(self.text) else EMPTY


class Lines(_Drawn, can_focus=False):
    """As many lines as fit; the last one ends in an ellipsis where there are more."""

    def _line(self, index: int) -> Line:
        is_cut = index == self.size.height - 1 and len(self.text) > self.size.height
        return (*super()._line(index), Span(f" {ELLIPSIS}")) if is_cut else super()._line(index)


_TITLE_EDGES = 4  # Columns of a border that a title leaves free


class Titled(ScrollView, inherit_bindings=False):
    """Has a title in its upper border, where it has one."""

    _title = _shown_title = ""

    def entitle(self, title: str) -> None:
        """Show this title; it is text, never markup."""
        self._title = title
        if not self.is_attached:
            return
        text = shortened(printable(title), max(0, self.size.width - _TITLE_EDGES))
        text = as_ascii(text) if inks_of(self).glyphs.is_ascii else text
        if text != self._shown_title:
            self._shown_title = text
            self.border_title = Content(text)

    def on_resize(self, _: events.Resize) -> None:
        """As much of the title as fits."""
        self.entitle(self._title)


class Pane(_Drawn, Titled, can_focus=True, inherit_bindings=False):
    """Lines that may be more than fit: it scrolls by keys when it has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_in(KeyScope.TABLE)
    spare_columns = 1  # for the scroll bar, so that nothing moves when it comes

    def _redraw(self) -> None:
        super()._redraw()
        self.virtual_size = Size(max(0, self.size.width - 1), len(self.text))
