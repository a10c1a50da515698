"""From spans with roles to textual's strips."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from perfguard.tui.drawing.glyphs import ASCII, UNICODE, Glyphs, as_ascii
from perfguard.tui.drawing.spans import Line, Role, fitted, width_of


class Inks:
    """How roles look in the present theme, and which characters may be used."""

    def __init__(self, styles: Mapping[Role, Style], *, is_ascii: bool) -> None:
        self._styles = styles
        self._combined: dict[tuple[Role, Style], Style] = {}
        self.is_ascii = is_ascii

    @property
    def glyphs(self) -> Glyphs:
        """What pictures are drawn with."""
        return ASCII if self.is_ascii else UNICODE

    def segments(self, content: Line, base: Style) -> list[Segment]:
        """A line's spans on the background of `base`."""
        return [
            Segment(as_ascii(span.text) if self.is_ascii else span.text, self._on(base, span.role)) for span in content
        ]

    def strip(self, content: Line, width: int, base: Style) -> Strip:
        """A line as wide as its widget; one that is too long ends in an ellipsis."""
        if width_of(content) > width:
            content = fitted(content, width)
        return Strip(self.segments(content, base)).adjust_cell_length(width, base)

    def _on(self, base: Style, role: Role) -> Style:
        known = self._combined.get((role, base))
        if known is None:
            known = self._combined[role, base] = base + self._styles[role]
        return known


class Painted(Protocol):
    """An application that has inks."""

    inks: Inks


def inks_of(widget: Widget) -> Inks:
    """The inks of a widget's application."""
    return cast("Painted", widget.app).inks
