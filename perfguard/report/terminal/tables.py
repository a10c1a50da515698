"""Tables as every output for a terminal draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def plain_table(*columns: str) -> Table:
    """An empty table without vertical lines.

    A column whose name begins with `>` is right-aligned, and one that begins with `~` is folded where the table is
    wider than the output; all others are cut off there.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(
            name.lstrip(">~"),
            justify="right" if name.startswith(">") else "left",
            no_wrap=not name.startswith("~"),
            overflow="fold",
        )
    return table
