"""History: each case over the recorded runs, with changes of host and software marked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from textual.containers import Container
from textual.message import Message
from textual.widget import Widget

from perfguard.errors import PerfguardError
from perfguard.report.case_history import CaseHistory, changes_text, histories_of, unread_runs
from perfguard.tui.drawing.glyphs import UNICODE
from perfguard.tui.drawing.series import plot_series
from perfguard.tui.drawing.spans import Line, Role, Span, line, wrapped
from perfguard.tui.screens.base import ViewScreen
from perfguard.tui.tables.history import history_table
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Pane
from perfguard.units import format_count
from perfguard.watch.view.run_view import History


class HistoryScreen(ViewScreen):
    """Cases above, the series of the selected one below."""

    mode = "history"

    class WasRead(Message):
        """A thread has read the recorded runs."""

        def __init__(self, history: History, state: str) -> None:
            super().__init__()
            self.history, self.state = history, state

    def __init__(self) -> None:
        super().__init__()
        self.cases: RowTable[CaseHistory] = RowTable(history_table(UNICODE), id="histories", classes="pane")
        self.plot = Pane(id="series", classes="pane plot")
        self._rows: tuple[CaseHistory, ...] = ()
        self._problems: tuple[str, ...] = ()
        self._state = "reading the recorded runs"
        self._is_ascii = False
        self._read_at: tuple[str | None, str | None] | None = None

    @property
    def table(self) -> RowTable[Any]:
        """The cases."""
        return self.cases

    def is_flagged(self, row: Any) -> bool:
        """Cases whose newest run was slower."""
        return bool(row.latest.outcome == "regressed")

    def compose_body(self) -> Iterable[Widget]:
        """Table and plot."""
        yield Container(self.cases, self.plot, classes="body stacked")

    def _read(self) -> None:
        options = self.session.options
        history, state = History(), "no recorded runs can be read from here"
        if options.read_history is not None:
            state = ""
            try:
                history = options.read_history()
            except PerfguardError as error:
                state = f"the recorded runs cannot be read: {error}"
        self.post_message(self.WasRead(history, state))

    def on_history_screen_was_read(self, event: WasRead) -> None:
        """Show the series."""
        self._rows, self._problems = histories_of(event.history), unread_runs(event.history)
        self._state = event.state
        self.update_body(resort=True)

    def update_body(self, *, resort: bool) -> None:
        """Show the cases and the series of the selected one; read again, in a thread, when a run has ended."""
        newest = (self.session.view.run_id, self.session.view.outcome)
        if self._read_at != newest:
            self._read_at = newest
            self.in_thread(self._read, "history")
        spec = None
        if self._is_ascii != self.glyphs.is_ascii:
            self._is_ascii = self.glyphs.is_ascii
            spec = history_table(self.glyphs)
        selected = self.session.selected
        if selected is not None and selected != self.cases.cursor_key:
            self.cases.go_to(selected)
        self.cases.show(self._rows, spec=spec, resort=resort)
        self.plot.show(self._plot)

    def on_row_table_highlighted(self, event: RowTable.Highlighted) -> None:
        """Another case; other screens show it, too, where the run holds it."""
        event.stop()
        if event.key is not None and event.key == self.cases.cursor_key:
            self.session.select(event.key, is_chosen=event.is_chosen)
            self.plot.show(self._plot)

    def on_row_table_opened(self, event: RowTable.Opened) -> None:
        """See what the present run says of the case."""
        event.stop()
        self.session.select(event.key, is_chosen=True)
        self.perfguard.action_show_screen("compare")

    def _plot(self, width: int, height: int) -> list[Line]:
        row = self.cases.cursor_row
        if row is None:
            return wrapped(self._state or "nothing is recorded yet", width, Role.MUTED)
        notes = [line(Span(row.case_id, Role.STRONG))]
        changes = changes_text(row.points)
        notes += wrapped(changes, width, Role.ACCENT) if changes else []
        if self._problems:
            unread = f"{format_count(len(self._problems), 'run')} could not be read: {self._problems[0]}"
            notes += wrapped(unread, width, Role.OPEN)
        return [*notes, *plot_series(row.points, row.baseline_s, width, height - len(notes), self.glyphs)]
