"""Tables as every output for a terminal draws them: never wider than it, and no cell folded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from perfguard.report.shown import Number
from perfguard.units import cut_middle, printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

_LEAST_CHARACTERS = 12
"""What a column that may be shortened keeps for each `~`, as long as another one can be dropped instead."""
_BETWEEN, _EDGES = 3, 2  # Columns of the terminal between two cells, and at both ends of a row together


class _Column(Struct, frozen=True, kw_only=True):
    name: str
    is_right: bool
    least: int | None  # Characters that it keeps when it is shortened; None where it is not
    rank: int  # What does not fit is dropped from the highest rank down; 0 stays


class FittedTable:
    """A table that takes the width of the terminal that it is printed on.

    Where it is wider, flexible columns are shortened in the middle; where that is not enough, columns are dropped.
    """

    def __init__(self, columns: tuple[_Column, ...]) -> None:
        self._columns = columns
        self._rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: str | Number | Text) -> None:
        """A row; strings are taken as they are, never for markup."""
        from rich.text import Text

        texts = (cell.text if isinstance(cell, Number) else cell for cell in cells)
        pairs = zip(texts, self._columns, strict=True)
        self._rows.append(tuple(Text(printable(text)) if isinstance(text, str) else text for text, _ in pairs))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it; rich calls this."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        widths = self._widths(options.max_width)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for index, width in widths.items():
            column = self._columns[index]
            table.add_column(
                Text(column.name, no_wrap=True, overflow="ellipsis"),
                justify="right" if column.is_right else "left",
                width=width,
                no_wrap=True,
                overflow="ellipsis",
            )
        for row in self._rows:
            table.add_row(*(_fitted(row[index], width) for index, width in widths.items()))
        yield table

    def _widths(self, room: int) -> dict[int, int]:
        """Width of each column that stays, by its index."""
        natural = {
            index: max(column_width([column.name, *(row[index].plain for row in self._rows)]), 1)
            for index, column in enumerate(self._columns)
        }
        flexible = {index: column.least for index, column in enumerate(self._columns) if column.least is not None}
        while True:
            least = {index: min(width, flexible.get(index, width)) for index, width in natural.items()}
            droppable = max(natural, key=lambda index: self._columns[index].rank)
            if _total(least) <= room or not self._columns[droppable].rank:
                break
            del natural[droppable]
        widths = dict(natural)
        while _total(widths) > room:
            widest = max(widths, key=lambda index: (_spare(widths[index], flexible.get(index)), widths[index]))
            if widths[widest] <= 1:
                break
            widths[widest] -= 1
        return widths


def plain_table(*columns: str, rows: Iterable[Sequence[str | Number | Text]] = ()) -> FittedTable:
    """A table without vertical lines.

    A column whose name begins with `>` is right-aligned, one that begins with `~` may be shortened, one with `~~` to
    twice as many characters. Where it ends with `/2`, it is dropped where the table does not fit, before columns with
    `/1` and after those with `/3`.
    """
    table = FittedTable(tuple(map(_column, columns)))
    for row in rows:
        table.add_row(*row)
    return table


def _column(text: str) -> _Column:
    name, slash, rank = text.rpartition("/")
    is_ranked = bool(slash) and rank.isdigit()
    return _Column(
        name=(name if is_ranked else text).lstrip(">~"),
        is_right=text.startswith(">"),
        least=_LEAST_CHARACTERS * text.count("~") or None,
        rank=int(rank) if is_ranked else 0,
    )


def texts(*lines: str, style: str = "") -> list[RenderableType]:
    """Lines without control characters, never read as markup."""
    from rich.text import Text

    return [Text(printable(line), style=style) for line in lines]


def column_width(lines: Iterable[str]) -> int:
    """Columns of a terminal that the widest line takes."""
    from rich.cells import cell_len

    return max(map(cell_len, lines), default=0)


def fit(text: str, width: int) -> str:
    """A text at most so many columns wide, shortened in the middle; of a path the file is left."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return text
    _, slash, file = text.rpartition("/")
    if slash and cell_len(file) + 2 <= width:
        return f"…/{file}"
    most = width
    while cell_len(shown := cut_middle(text, max(most, 1))) > width and most > 1:
        most -= 1
    return shown


def _spare(width: int, least: int | None) -> int:
    """Who gives way first: columns above their least width, then other flexible ones, then the rest."""
    if least is None or width <= 1:
        return 0
    return 2 if width > least else 1


def _fitted(cell: Text, width: int) -> Text:
    if cell.cell_len <= width:
        return cell
    from rich.text import Text

    style = cell.style or (cell.spans[0].style if cell.spans else "")
    return Text(fit(cell.plain, width), style=style)


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + _BETWEEN * (len(widths) - 1) + _EDGES
