"""Log: what happened, in words, and what is wrong with the recording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from textual.containers import Container
from textual.widget import Widget

from perfguard.report.event_lines import line_text
from perfguard.tui.drawing.head import elapsed_text
from perfguard.tui.drawing.spans import Line, Role, Span, line, wrapped
from perfguard.tui.drawing.verdicts import WordStyle
from perfguard.tui.screens.base import ViewScreen
from perfguard.tui.tables.columns import Column, TableSpec
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Pane
from perfguard.watch.view.run_view import LogLine

_LEVELS = {
    "info": WordStyle("·", "info", Role.MUTED),
    "warning": WordStyle("!", "warning", Role.OPEN),
    "error": WordStyle("✗", "error", Role.BROKEN),
}


def _log_table(started_at: float | None, names: Mapping[str, str]) -> TableSpec[LogLine]:
    """Time since the run started, how serious, the sentence."""

    def text(row: LogLine, _: int) -> Line:
        return line(Span(line_text(row, names), Role.MUTED if row.level == "info" else Role.PLAIN))

    def time(row: LogLine, _: int) -> Line:
        return line(Span(_elapsed(row, started_at), Role.MUTED))

    return TableSpec(
        columns=(
            Column("time", "since start", time, 11, rank=1, align_right=True),
            Column("level", "level", lambda row, _: line(_LEVELS[row.level].span), 9),
            Column("text", "what happened", text, 24, stretch=1),
        ),
        key_of=lambda row: f"{row.seq}/{row.t_wall}/{line_text(row)}" if row.seq < 0 else str(row.seq),
        text_of=lambda row: f"{row.level} {line_text(row, names)}",
        empty="no event yet",
    )


def _elapsed(row: LogLine, started_at: float | None) -> str:
    return elapsed_text(row.t_wall - started_at) if started_at is not None else "-"


class LogScreen(ViewScreen):
    """The latest lines; the cursor follows the end while it stands there."""

    mode = "log"

    def __init__(self) -> None:
        table = RowTable(_log_table(None, {}), id="lines", classes="pane")
        super().__init__(table, Pane(id="detail", classes="pane"))
        self.table.entitle("what happened")
        self.detail.entitle("selected line")
        self._started_at: float | None = None
        self._names: dict[str, str] = {}

    def is_flagged(self, row: Any) -> bool:
        """Warnings and errors."""
        return bool(row.level != "info")

    def compose_body(self) -> Iterable[Widget]:
        """Lines, and the one under the cursor in full."""
        yield Container(self.table, self.detail, classes="body log")

    def update_body(self, *, resort: bool) -> None:
        """Show the lines."""
        view, table = self.session.view, self.table
        spec = None
        names = {case.case_id: case.title for case in view.cases}
        if (view.started_at, names) != (self._started_at, self._names):
            self._started_at, self._names = view.started_at, names
            spec = _log_table(view.started_at, names)
        is_at_end = not table.rows or table.cursor_row is table.rows[-1]
        table.show(view.log, spec=spec, resort=resort)
        if is_at_end and table.sort_id is None:
            table.action_scroll_end()
        self.update_details()

    def draw_detail(self, width: int, _height: int) -> list[Line]:
        """The line under the cursor."""
        row = self.table.cursor_row
        if row is None:
            return []
        number = f"event {row.seq}" if row.seq >= 0 else "said by the reader"
        when = f"  {_elapsed(row, self._started_at)} after the start, {number}"
        head = line(_LEVELS[row.level].span, Span(when, Role.MUTED))
        return [head, *wrapped(line_text(row, self._names), width)]
