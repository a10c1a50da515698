"""What a table shows, as Markdown, CSV, JSON or plain text. No textual."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from perfguard.codec import to_builtins
from perfguard.errors import UsageError
from perfguard.tui.drawing.spans import plain
from perfguard.tui.tables.columns import Column, TableSpec

FORMATS = (".md", ".csv", ".json", ".txt", ".svg")
"""Endings of files that an export may have; `.svg` is a picture of the screen."""
_WIDE = 400


def as_markdown(spec: TableSpec[Any], rows: Sequence[Any]) -> str:
    """A Markdown table; numbers at the right."""
    columns = _texts(spec)
    head = [column.id for column in columns]
    rule = ["--:" if column.align_right else "---" for column in columns]
    body = [[_escaped(cell) for cell in _cells(columns, row)] for row in rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *body))


def as_csv(spec: TableSpec[Any], rows: Sequence[Any]) -> str:
    """Comma-separated values with a head."""
    columns = _texts(spec)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.id for column in columns])
    writer.writerows(_cells(columns, row) for row in rows)
    return out.getvalue()


def as_json(rows: Sequence[Any]) -> str:
    """Everything that is known of the rows, not only what is shown."""
    return json.dumps([to_builtins(row) for row in rows], indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def as_text(spec: TableSpec[Any], rows: Sequence[Any]) -> str:
    """Columns side by side."""
    columns = _texts(spec)
    table = [[column.id for column in columns], *(_cells(columns, row) for row in rows)]
    widths = [max(len(cells[index]) for cells in table) for index in range(len(columns))]
    return "".join(f"{_padded(cells, widths)}\n" for cells in table)


def exported(spec: TableSpec[Any], rows: Sequence[Any], ending: str) -> str:
    """The rows in the format of a file's ending.

    Raises:
        UsageError: No such format.
    """
    makers = {
        ".md": lambda: as_markdown(spec, rows),
        ".csv": lambda: as_csv(spec, rows),
        ".json": lambda: as_json(rows),
        ".txt": lambda: as_text(spec, rows),
    }
    if ending not in makers:
        raise UsageError(f"{ending or 'a file without an ending'} is no format; end the name in {', '.join(FORMATS)}")
    return makers[ending]()


def _texts(spec: TableSpec[Any]) -> list[Column[Any]]:
    return [column for column in spec.columns if column.text is not None or not column.is_picture]


def _cells(columns: Sequence[Column[Any]], row: Any) -> list[str]:
    return [(column.text(row) if column.text else plain(column.draw(row, _WIDE))).strip() for column in columns]


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")
