"""Columns of a table, the room that each gets (which depends on the terminal, never on the rows), filters, exports."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import Struct

from perfguard.codec import to_builtins
from perfguard.errors import UsageError
from perfguard.tui.drawing.spans import Line, Span, plain

T = TypeVar("T")

GAP = 1  # Columns between two columns
FORMATS = (".md", ".csv", ".json", ".txt", ".svg")
"""Endings of files that an export may have; `.svg` is a picture of the screen."""
_WIDE = 400


class Column(Struct, Generic[T], frozen=True):
    """One column."""

    id: str  # Its name, for sorting by it
    head: str | Callable[[int], Line]  # Its title, or what draws that for a width
    draw: Callable[[T, int], Line]  # Its cell, for a row and a width
    width: int  # Narrowest width
    stretch: int = 0  # Share of the room that is left; 0 to stay narrow
    rank: int = 0  # Columns of a higher rank are left out first; the pane beside the table says what they would
    align_right: bool = False
    is_picture: bool = False
    """Whether its cells are pictures, which exports leave out where they have no `text`."""
    text: Callable[[T], str] | None = None  # What exports write; None for the cell's own text
    sort: Callable[[T], Any] | None = None
    """What rows are sorted by, smallest first; None where one cannot sort by it."""
    is_falling: bool = False  # Whether that puts the largest of what is shown first


class ColumnPlace(NamedTuple):
    """Where a column is drawn."""

    column: Column[Any]
    x: int
    width: int


class TableSpec(Struct, Generic[T], frozen=True, kw_only=True):
    """A kind of table."""

    columns: tuple[Column[T], ...]  # From left to right
    key_of: Callable[[T], str]  # Names a row; the cursor and the order stay with it when its values change
    text_of: Callable[[T], str]  # What a filter looks at
    empty: str = "nothing to show"  # Said where there are no rows
    whole: Callable[[T], Line | None] = lambda _: None
    """A row that is one sentence over all columns; None for one of cells."""


def falling(
    title: str, draw: Callable[[T], Line], value: Callable[[T], float | None], width: int, *, rank: int = 0
) -> Column[T]:
    """A column that puts the largest number first; what is unknown comes last."""
    return Column(
        title,
        title,
        lambda row, _: draw(row),
        width,
        rank=rank,
        align_right=True,
        sort=lambda row: descending(value(row)),
        is_falling=True,
    )


def number(
    title: str, value: Callable[[T], Any], text: Callable[[Any], str], width: int, *, rank: int = 0
) -> Column[T]:
    """A `falling` column of plain numbers."""
    return falling(title, lambda row: (Span(text(value(row))),), value, width, rank=rank)


def descending(value: float | None) -> float:
    """What a number is sorted by where the largest comes first; what is unknown comes last."""
    return math.inf if value is None or math.isnan(value) else -value


def place_columns(columns: Sequence[Column[Any]], width: int) -> list[ColumnPlace]:
    """Which columns fit into `width`, and where; columns of the lowest rank are always there, cut if they must be."""
    chosen: list[Column[Any]] = []
    used = -GAP
    for column in sorted(columns, key=lambda known: known.rank):
        if column.rank == 0 or used + column.width + GAP <= width:
            chosen.append(column)
            used += column.width + GAP
    chosen.sort(key=columns.index)
    places: list[ColumnPlace] = []
    x = 0
    for column, own in zip(chosen, _stretched(chosen, width - used), strict=True):
        if x < width:
            places.append(ColumnPlace(column, x, min(own, width - x)))
        x += own + GAP
    return places


def _stretched(columns: Sequence[Column[Any]], spare: int) -> list[int]:
    """Narrowest widths plus shares of what is left; what is missing is taken from the columns that stretch."""
    total = sum(column.stretch for column in columns)
    widths = [column.width for column in columns]
    if not total:
        return widths
    widths = [max(1, column.width + int(spare * column.stretch / total)) for column in columns]
    rest = spare - sum(widths) + sum(column.width for column in columns)
    first = next(index for index, column in enumerate(columns) if column.stretch)
    widths[first] += max(0, rest)
    return widths


class Filter(Struct, frozen=True, kw_only=True):
    """A filter as typed, ready to be used."""

    text: str
    accepts: Callable[[str], bool]  # Whether a row's text is shown
    problem: str = ""  # Why it is taken as plain text; empty where it is a regular expression


def parse_filter(text: str) -> Filter:
    """`conv.*bf16` or `!unchanged`; capitals do not matter. What is no regular expression is looked for as it is."""
    wanted = text.removeprefix("!")
    problem = ""
    try:
        pattern = re.compile(wanted, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        problem = f"{wanted!r} is no regular expression ({error}); it is looked for as it is"
        pattern = re.compile(re.escape(wanted), re.IGNORECASE)
    if not wanted:
        return Filter(text=text, accepts=lambda _: True)
    is_inverse = text.startswith("!")
    return Filter(text=text, accepts=lambda row: bool(pattern.search(row)) is not is_inverse, problem=problem)


def as_markdown(spec: TableSpec[Any], rows: Sequence[Any]) -> str:
    """A Markdown table; numbers at the right."""
    head, *body = _cells(spec, rows)
    rule = ["--:" if column.align_right else "---" for column in _columns(spec)]
    escaped = [[cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells] for cells in body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *escaped))


def as_csv(spec: TableSpec[Any], rows: Sequence[Any]) -> str:
    """Comma-separated values with a head."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(_cells(spec, rows))
    return out.getvalue()


def as_json(_spec: TableSpec[Any], rows: Sequence[Any]) -> str:
    """Everything that is known of the rows, not only what is shown."""
    return json.dumps([to_builtins(row) for row in rows], indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def as_text(spec: TableSpec[Any], rows: Sequence[Any]) -> str:
    """Columns side by side."""
    table = _cells(spec, rows)
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    padded = (map(str.ljust, cells, widths) for cells in table)
    return "".join("  ".join(cells).rstrip() + "\n" for cells in padded)


_MAKERS: dict[str, Callable[[TableSpec[Any], Sequence[Any]], str]] = {
    ".md": as_markdown,
    ".csv": as_csv,
    ".json": as_json,
    ".txt": as_text,
}


def exported(spec: TableSpec[Any], rows: Sequence[Any], ending: str) -> str:
    """The rows in the format of a file's ending.

    Raises:
        UsageError: No such format.
    """
    if ending not in _MAKERS:
        raise UsageError(f"{ending or 'a file without an ending'} is no format; end the name in {', '.join(FORMATS)}")
    return _MAKERS[ending](spec, rows)


def _columns(spec: TableSpec[Any]) -> list[Column[Any]]:
    return [column for column in spec.columns if column.text is not None or not column.is_picture]


def _cells(spec: TableSpec[Any], rows: Sequence[Any]) -> list[list[str]]:
    """The head, then the rows."""
    columns = _columns(spec)
    body = [
        [(column.text(row) if column.text else plain(column.draw(row, _WIDE))).strip() for column in columns]
        for row in rows
    ]
    return [[column.id for column in columns], *body]
