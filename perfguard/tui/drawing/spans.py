"""What is drawn: lines of text whose parts have roles, which a theme turns into colours, and the signs of pictures."""

from __future__ import annotations

import re
import unicodedata
from enum import Enum
from typing import NamedTuple

from msgspec import Struct
from rich.cells import cell_len, chop_cells, set_cell_size

from perfguard.units import printable

ELLIPSIS = "…"
_PARAMETER_NAME = re.compile(r"([\[,])\w+=")


class Role(str, Enum):
    """What a piece of text stands for. Colour alone never says it: a word or sign does, too."""

    PLAIN = "plain"
    MUTED = "muted"
    STRONG = "strong"
    TITLE = "title"
    ACCENT = "accent"
    AXIS = "axis"
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    OPEN = "open"
    BROKEN = "broken"
    BASELINE = "baseline"
    CANDIDATE = "candidate"
    ACTIVE = "active"  # The screen that is shown, among the names of all
    SLOWER_FRAME = "slower-frame"  # Frames of a flame graph
    FASTER_FRAME = "faster-frame"
    SAME_FRAME = "same-frame"


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    role: Role = Role.PLAIN


Line = tuple[Span, ...]  # One line on the screen

EMPTY: Line = ()


def line(*parts: str | Span) -> Line:
    """A line of its parts; text without a role is plain. Control characters become spaces."""
    spans = (part if isinstance(part, Span) else Span(part) for part in parts)
    return tuple(Span(printable(span.text), span.role) for span in spans if span.text)


def plain(content: Line) -> str:
    """The text of a line."""
    return "".join(span.text for span in content)


def width_of(content: Line) -> int:
    """Columns that a line takes."""
    return sum(cell_len(span.text) for span in content)


def fitted(content: Line, width: int, *, align_right: bool = False) -> Line:
    """A line that takes exactly `width` columns: padded, or cut with an ellipsis."""
    missing = width - width_of(content)
    if missing > 0:
        padding = Span(" " * missing)
        return (padding, *content) if align_right else (*content, padding)
    if missing == 0:
        return content
    kept: list[Span] = []
    left = width - 1
    for span in content if width > 0 else ():
        length = cell_len(span.text)
        if length > left:
            return (*kept, Span(set_cell_size(span.text, left) + ELLIPSIS, span.role))
        kept.append(span)
        left -= length
    return tuple(kept)


def cut(text: str, most: int) -> str:
    """The beginning of a text, at most so many columns, with an ellipsis where some is missing."""
    if cell_len(text) <= most:
        return text
    return set_cell_size(text, most - 1) + ELLIPSIS if most > 0 else ""


def tail(text: str, most: int) -> str:
    """The end of a text; of a path it says more than the beginning."""
    if cell_len(text) <= most:
        return text
    if most <= 0:
        return ""
    while cell_len(text) > most - 1:
        text = text[1:]
    return ELLIPSIS + text


def shortened(text: str, most: int) -> str:
    """A case's name in so many columns: its parameters lose their names first, since the values distinguish cases.

    Then the middle is left out; beginning and end stay.
    """
    if cell_len(text) > most and text.endswith("]"):
        text = _PARAMETER_NAME.sub(r"\1", text)
    if cell_len(text) <= most or most < 5:
        return cut(text, most)
    head = (most - 1) // 2
    return set_cell_size(text, head) + tail(text, most - head)


def wrapped(text: str, width: int, role: Role = Role.PLAIN, *, indent: int = 0) -> list[Line]:
    """A sentence over several lines, broken between words (longer words anywhere); further lines are indented."""
    rows = [""]
    for word in printable(text).split():
        for piece in filter(None, chop_cells(word, max(1, width - indent))):
            candidate = f"{rows[-1]} {piece}" if rows[-1] else piece
            room = width - (indent if len(rows) > 1 else 0)
            if rows[-1] and cell_len(candidate) > room:
                rows.append(piece)
            else:
                rows[-1] = candidate
    return [line(" " * indent if number else "", Span(row, role)) for number, row in enumerate(rows)]


def labelled(label: str, text: str, width: int, room: int, role: Role = Role.MUTED) -> list[Line]:
    """A text over several lines of `width` columns, the first `room` of which hold its label."""
    return [
        (Span(f"{'' if number else label:<{room}}", role), *content)
        for number, content in enumerate(wrapped(text, width - room))
    ]


class Glyphs(Struct, frozen=True, kw_only=True):
    """One set of characters, each one column wide; the defaults are Unicode."""

    is_ascii: bool = False
    bar: str = "━"  # Full cell of an interval or a progress bar, then its left and its right half only
    bar_left: str = "╸"
    bar_right: str = "╺"
    point: str = "●"  # Estimate within an interval, a point of a plot
    clipped_left: str = "◀"  # The interval goes on to the left, or to the right
    clipped_right: str = "▶"
    vertical: str = "│"  # Axes, and the corner where they meet
    horizontal: str = "─"
    corner: str = "└"
    crossing: str = "┿"  # An interval over the axis
    margin: str = "┊"  # Edge of what counts as unchanged
    dotted: str = "┄"  # A horizontal line to compare with
    block: str = "█"  # Full cell of a bar
    levels: str = "▁▂▃▄▅▆▇█"  # From the lowest to the highest cell of a sparkline
    pinned: str = "■"  # A CPU that is measured on, one that is left alone, one that is left to the system
    free: str = "□"
    housekeeping: str = "◇"
    cursor: str = "▸"  # Marks the row that the cursor is on
    opened: str = "▾"  # A node whose children are shown


UNICODE = Glyphs()
ASCII = Glyphs(
    is_ascii=True,
    bar="=",
    bar_left="=",
    bar_right="=",
    point="o",
    clipped_left="<",
    clipped_right=">",
    vertical="|",
    horizontal="-",
    corner="+",
    crossing="+",
    margin=":",
    dotted="-",
    block="#",
    levels="_.-~=+*#",
    pinned="#",
    free=".",
    housekeeping="h",
    cursor=">",
    opened="-",
)

_LIKE = dict(zip("…→←↑↓µμΔ≤≥·∞±×▲▼△≠∅✗✓●○–—’“”⏎⌫│─█░", '~><^vuud<>-8~x^v^#0xvoo--\'""<<|-#:', strict=True))  # noqa: RUF001
"""What a character of the project's sentences looks like most."""


def as_ascii(text: str) -> str:
    """A text as wide as before, all of it ASCII; `?` for what has no likeness."""
    if text.isascii():
        return text
    return "".join(character if character.isascii() else _likeness(character) for character in text)


def _likeness(character: str) -> str:
    if character in _LIKE:
        return _LIKE[character]
    width = cell_len(character)
    bare = unicodedata.normalize("NFKD", character)[:1]
    return bare if width == 1 and bare.isascii() and bare.isprintable() else "?" * width
