"""What every chart of a page is: a picture with a title, what it says in words, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfguard.report.html.svg import Element, element, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table."""

    content: str | Element
    """Text, or a picture."""
    sort: float | str | None = None
    """What it is sorted by, where that is not its text."""
    class_: str = ""
    """Its class; `num` aligns numbers."""
    link: str = ""
    """Where it leads: `#anchor`, or a relative address; empty for nowhere. Never what others wrote."""
    title: str = ""
    """What it stands for in full, where its text is shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under names."""

    columns: tuple[str, ...]
    """Names; one that begins with `>` is right-aligned."""
    rows: tuple[tuple[Cell, ...], ...]
    """One cell a column."""
    keys: tuple[str, ...] = ()
    """What each row is filtered by; empty where the table is not filtered."""
    caption: str = ""
    """What it shows."""
    is_sortable: bool = False
    """Whether its names are buttons."""
    class_: str = ""
    """Its class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture with its words and numbers."""

    kind: str
    """`pairs`, `ecdf`, …: names it in the page."""
    title: str
    """What it answers."""
    figure: Element | Table
    """The picture, or a table of pictures."""
    legend: tuple[tuple[str, str], ...] = ()
    """Class of a sign and what it stands for."""
    note: str = ""
    """How to read it, one or two sentences."""
    data: Table | None = None
    """Its numbers, folded away; None where they stand beside it."""


def text_cells(*values: str) -> tuple[Cell, ...]:
    """A row of text."""
    return tuple(Cell(content=value) for value in values)


def numbers(*values: tuple[str, float | None]) -> tuple[Cell, ...]:
    """Numbers as they are shown, with what they are sorted by."""
    return tuple(Cell(content=text, sort=value, class_="num") for text, value in values)


def gridlines(places: Sequence[tuple[float, str]], height: float, *, top: float = 0.0) -> list[Element]:
    """Vertical lines over the whole height, with their values below.

    Args:
        places: Share of the width, and what is written there.
        height: Where the lines end, pixels; the words stand below.
        top: Where they begin.
    """
    parts = []
    for share, text in places:
        x = percent(share)
        parts.append(element("line", x1=x, x2=x, y1=top, y2=height, class_="grid"))
        anchor = "start" if share < 0.08 else "end" if share > 0.92 else "middle"
        parts.append(element("text", text, x=x, y=height + 14, text_anchor=anchor, class_="tick"))
    return parts


def levels(places: Sequence[tuple[float, str]]) -> list[Element]:
    """Horizontal lines over the whole width, each with its value above its beginning.

    Args:
        places: Pixels from the top, and what is written there.
    """
    parts = []
    for y, text in places:
        parts.append(element("line", x1="0%", x2="100%", y1=y, y2=y, class_="grid"))
        parts.append(element("text", text, x=2, y=y - 3, class_="tick"))
    return parts
