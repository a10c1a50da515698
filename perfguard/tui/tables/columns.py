"""Columns of a table, the room that each gets (which depends on the terminal, never on the rows), and filters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from perfguard.tui.drawing.spans import Line, Role, Span

T = TypeVar("T")

GAP = 1
"""Columns between two columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[T]):
    """One column."""

    id: str
    """Its name, for sorting by it."""
    head: Callable[[int], Line]
    """Its title, for a width."""
    draw: Callable[[T, int], Line]
    """Its cell, for a row and a width."""
    width: int
    """Narrowest width."""
    stretch: int = 0
    """Share of the room that is left; 0 to stay narrow."""
    rank: int = 0
    """Columns of a higher rank are left out first; the pane beside the table says what they would."""
    align_right: bool = False
    """Whether its text ends at the right."""
    is_picture: bool = False
    """Whether its cells are pictures, which exports leave out where they have no `text`."""
    text: Callable[[T], str] | None = None
    """What exports write; None for the cell's own text."""
    sort: Callable[[T], Any] | None = None
    """What rows are sorted by, smallest first; None where one cannot sort by it."""
    is_falling: bool = False
    """Whether that puts the largest of what is shown first."""


class Place(NamedTuple):
    """Where a column is drawn."""

    column: int
    """Its place among the columns of the table."""
    x: int
    width: int


def _in_cells(_: Any) -> Line | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec(Generic[T]):
    """A kind of table."""

    columns: tuple[Column[T], ...]
    """From left to right."""
    key_of: Callable[[T], str]
    """Names a row; the cursor and the order stay with it when its values change."""
    text_of: Callable[[T], str]
    """What a filter looks at."""
    empty: str = "nothing to show"
    """Said where there are no rows."""
    whole: Callable[[T], Line | None] = _in_cells
    """A row that is one sentence over all columns; None for one of cells."""


def titled(title: str) -> Callable[[int], Line]:
    """The head of a column that is only a word."""
    return lambda _: (Span(title, Role.TITLE),)


def falling(
    title: str, draw: Callable[[T], Line], value: Callable[[T], float | None], *, width: int, rank: int = 0
) -> Column[T]:
    """A column of numbers that puts the largest first; what is unknown comes last."""
    return Column(
        id=title,
        head=titled(title),
        draw=lambda row, _: draw(row),
        width=width,
        rank=rank,
        align_right=True,
        sort=lambda row: descending(value(row)),
        is_falling=True,
    )


def descending(value: float | None) -> float:
    """What a number is sorted by where the largest comes first; what is unknown comes last."""
    return math.inf if value is None or math.isnan(value) else -value


def place_columns(columns: Sequence[Column[Any]], width: int) -> list[Place]:
    """Which columns fit into `width`, and where; columns of the lowest rank are always there, cut if they must be."""
    chosen: list[int] = []
    used = -GAP
    for index in sorted(range(len(columns)), key=lambda known: (columns[known].rank, known)):
        needed = columns[index].width + GAP
        if columns[index].rank == 0 or used + needed <= width:
            chosen.append(index)
            used += needed
    chosen.sort()
    widths = _stretched([columns[index] for index in chosen], width - used)
    places: list[Place] = []
    x = 0
    for index, own in zip(chosen, widths, strict=True):
        room = min(own, width - x)
        if room <= 0:
            break
        places.append(Place(index, x, room))
        x += own + GAP
    return places


def _stretched(columns: Sequence[Column[Any]], spare: int) -> list[int]:
    """Narrowest widths plus shares of what is left; what is missing is taken from the columns that stretch."""
    total = sum(column.stretch for column in columns)
    widths = [column.width for column in columns]
    if not total:
        return widths
    given = 0
    for index, column in enumerate(columns):
        share = int(spare * column.stretch / total)
        widths[index] = max(1, column.width + share)
        given += widths[index] - column.width
    first = next(index for index, column in enumerate(columns) if column.stretch)
    if spare > given:
        widths[first] += spare - given
    return widths


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter as typed, ready to be used."""

    text: str
    """As typed."""
    accepts: Callable[[str], bool]
    """Whether a row's text is shown."""
    problem: str = ""
    """Why it is taken as plain text; empty where it is a regular expression."""


def parse_filter(text: str) -> Filter:
    """`conv.*bf16` or `!unchanged`; capitals do not matter. What is no regular expression is looked for as it is."""
    is_inverse = text.startswith("!")
    wanted = text[1:] if is_inverse else text
    problem = ""
    try:
        pattern = re.compile(wanted, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        problem = f"{wanted!r} is no regular expression ({error}); it is looked for as it is"
        pattern = re.compile(re.escape(wanted), re.IGNORECASE)
    if not wanted:
        return Filter(text=text, accepts=lambda _: True)
    return Filter(text=text, accepts=lambda row: bool(pattern.search(row)) is not is_inverse, problem=problem)
