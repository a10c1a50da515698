"""Log: what happened, in words, and what is wrong with the recording."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from textual.containers import Container
from textual.widget import Widget

from perfguard.report.event_lines import line_text
from perfguard.tui.drawing.spans import Line, Role, Span, line, wrapped
from perfguard.tui.screens.base import ViewScreen
from perfguard.tui.tables.log import elapsed_text, is_grave, log_table, mark_of_level
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Pane
from perfguard.watch.view.run_view import LogLine


class LogScreen(ViewScreen):
    """The latest lines; the cursor follows the end while it stands there."""

    mode = "log"

    def __init__(self) -> None:
        super().__init__()
        self._started_at: float | None = None
        self._names: dict[str, str] = {}
        self.lines: RowTable[LogLine] = RowTable(log_table(None, {}), id="lines", classes="pane")
        self.detail = Pane(id="detail", classes="pane")

    @property
    def table(self) -> RowTable[Any]:
        """The lines."""
        return self.lines

    def is_flagged(self, row: Any) -> bool:
        """Warnings and errors."""
        return is_grave(row)

    def compose_body(self) -> Iterable[Widget]:
        """Lines, and the one under the cursor in full."""
        yield Container(self.lines, self.detail, classes="body log")

    def update_body(self, *, resort: bool) -> None:
        """Show the lines."""
        view = self.session.view
        spec = None
        names = {case.case_id: case.title for case in view.cases}
        if (view.started_at, names) != (self._started_at, self._names):
            self._started_at, self._names = view.started_at, names
            spec = log_table(view.started_at, names)
        rows = self.lines.rows
        is_at_end = not rows or self.lines.cursor_row is rows[-1]
        self.lines.show(view.log, spec=spec, resort=resort)
        if is_at_end and self.lines.sort_id is None:
            self.lines.action_last()
        self.detail.show(self._detail)

    def on_row_table_highlighted(self, event: RowTable.Highlighted) -> None:
        """Another line."""
        event.stop()
        self.detail.show(self._detail)

    def on_row_table_opened(self, event: RowTable.Opened) -> None:
        """There is nothing behind a line."""
        event.stop()

    def _detail(self, width: int, _height: int) -> list[Line]:
        row = self.lines.cursor_row
        if row is None:
            return []
        mark = mark_of_level(row.level)
        at = elapsed_text(row.t_wall - self._started_at) if self._started_at is not None else "-"
        number = f"event {row.seq}" if row.seq >= 0 else "said by the reader"
        head = line(Span(f"{mark.sign} {mark.word}", mark.role), Span(f"  {at} after the start, {number}", Role.MUTED))
        return [head, *wrapped(line_text(row, self._names), width)]
