"""The characters that pictures are made of: Unicode, or ASCII for terminals and fonts that lack it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from rich.cells import cell_len


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """One set of characters, each one column wide."""

    is_ascii: bool
    """Whether all of them are ASCII."""
    bar: str
    """Full cell of an interval."""
    bar_left: str
    """Its left half only."""
    bar_right: str
    """Its right half only."""
    point: str
    """Estimate within an interval, a point of a plot."""
    clipped_left: str
    """The interval goes on to the left."""
    clipped_right: str
    """The interval goes on to the right."""
    vertical: str
    """An axis from top to bottom."""
    crossing: str
    """An interval over the axis."""
    margin: str
    """Edge of what counts as unchanged."""
    horizontal: str
    """An axis from left to right."""
    dotted: str
    """A horizontal line to compare with."""
    corner: str
    """Where the axes meet."""
    whisker: str
    """Spread around a point."""
    block: str
    """Full cell of a bar."""
    levels: str
    """From the lowest to the highest cell of a sparkline."""
    pinned: str
    """A CPU that is measured on."""
    free: str
    """A CPU that is left alone."""
    housekeeping: str
    """A CPU that is left to the system."""
    cursor: str
    """Marks the row that the cursor is on."""
    opened: str
    """A node whose children are shown."""
    closed: str
    """A node whose children are hidden."""
    done: str
    """Finished part of a progress bar."""
    ahead: str
    """The part of it that is ahead."""


UNICODE = Glyphs(
    is_ascii=False,
    bar="━",
    bar_left="╸",
    bar_right="╺",
    point="●",
    clipped_left="◀",
    clipped_right="▶",
    vertical="│",
    crossing="┿",
    margin="┊",
    horizontal="─",
    dotted="┄",
    corner="└",
    whisker="│",
    block="█",
    levels="▁▂▃▄▅▆▇█",
    pinned="■",
    free="□",
    housekeeping="◇",
    cursor="▸",
    opened="▾",
    closed="+",
    done="━",
    ahead="─",
)

ASCII = Glyphs(
    is_ascii=True,
    bar="=",
    bar_left="=",
    bar_right="=",
    point="o",
    clipped_left="<",
    clipped_right=">",
    vertical="|",
    crossing="+",
    margin=":",
    horizontal="-",
    dotted="-",
    corner="+",
    whisker="|",
    block="#",
    levels="_.-~=+*#",
    pinned="#",
    free=".",
    housekeeping="h",
    cursor=">",
    opened="-",
    closed="+",
    done="=",
    ahead="-",
)

_LIKE = dict(zip("…→←↑↓µμΔ≤≥·∞±×▲▼△≠∅✗✓●○–—’“”⏎⌫│─█░", '~><^vuud<>-8~x^v^#0xvoo--\'""<<|-#:', strict=True))  # noqa: RUF001
"""What a character of the project's sentences looks like most."""


def as_ascii(text: str) -> str:
    """A text as wide as before, all of it ASCII; `?` for what has no likeness."""
    if text.isascii():
        return text
    return "".join(character if character.isascii() else _likeness(character) for character in text)


def _likeness(character: str) -> str:
    known = _LIKE.get(character)
    if known is not None:
        return known
    width = cell_len(character)
    bare = unicodedata.normalize("NFKD", character)[:1]
    return bare if width == 1 and bare.isascii() and bare.isprintable() else "?" * width
