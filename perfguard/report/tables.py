"""Tables as every output for a terminal draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def plain_table(*columns: str) -> Table:
    """An empty table without vertical lines; a column whose name begins with `>` is right-aligned."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        right = name.startswith(">")
        table.add_column(
            name.lstrip(">"), justify="right" if right else "left", no_wrap=name != "case", overflow="fold"
        )
    return table
