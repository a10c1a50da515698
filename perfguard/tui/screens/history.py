"""History: each case over the recorded runs, with changes of host and software marked."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from textual.containers import Container
from textual.widget import Widget

from perfguard.errors import PerfguardError
from perfguard.records.history import History
from perfguard.records.verdict import Outcome
from perfguard.report.case_history import CaseHistory, changes_text, histories_of, unread_runs
from perfguard.report.scales import bounds_of
from perfguard.tui.drawing.grid import sparkline
from perfguard.tui.drawing.series import plot_series
from perfguard.tui.drawing.spans import UNICODE, Glyphs, Line, Role, Span, line, shortened, wrapped
from perfguard.tui.drawing.verdicts import mark_of_outcome
from perfguard.tui.screens.base import ViewScreen
from perfguard.tui.tables.columns import Column, TableSpec, falling, number
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Pane
from perfguard.units import format_count, format_effect, format_seconds, printable

_TREND_RATIO = 0.05  # Least difference from the median that fills a sparkline
_SINCE = {"stored baseline": "baseline", "run before": "run before", None: "-"}


@lru_cache(maxsize=2)
def history_table(glyphs: Glyphs) -> TableSpec[CaseHistory]:
    """Case, runs, trend, newest median, its change since the baseline or the run before, last verdict."""
    return TableSpec(
        columns=(
            Column("case", "case", _case, 18, stretch=2, sort=lambda row: row.case_id),
            number("runs", lambda row: len(row.points), str, 5, rank=3),
            Column(
                "trend", "trend", lambda row, width: _trend(row, width, glyphs), 10, stretch=2, rank=1, is_picture=True
            ),
            number("latest", lambda row: row.latest.median_s, format_seconds, 9),
            falling("change", _change, lambda row: row.log_ratio or 0.0, 9),
            Column("since", "since", lambda row, _: line(Span(_SINCE[row.reference], Role.MUTED)), 12, rank=4),
            Column(
                "verdict", "last verdict", lambda row, _: line(mark_of_outcome(row.latest.outcome).span), 15, rank=2
            ),
        ),
        key_of=lambda row: row.case_id,
        text_of=lambda row: f"{row.case_id} {mark_of_outcome(row.latest.outcome).word}",
        empty="no recorded run holds a case; perfguard gate makes one",
    )


def _case(row: CaseHistory, width: int) -> Line:
    return line(shortened(printable(row.title), width))


def _trend(row: CaseHistory, width: int, glyphs: Glyphs) -> Line:
    values = [point.median_s for point in row.points]
    middle = statistics.median(values)
    # Noise of a tenth of a percent must not look like a landslide.
    low, high = bounds_of([*values, middle * (1 - _TREND_RATIO), middle * (1 + _TREND_RATIO)])
    return line(Span(sparkline(values, width, glyphs, low=low, high=high), Role.CANDIDATE))


def _change(row: CaseHistory) -> Line:
    ratio = row.log_ratio
    spread = max(row.latest.spread_ratio or 0.0, 0.02)
    role = Role.MUTED if ratio is None or abs(ratio) < spread else Role.SLOWER if ratio > 0 else Role.FASTER
    return line(Span(format_effect(ratio), role))


class HistoryScreen(ViewScreen):
    """Cases above, the series of the selected one below."""

    mode = "history"
    next_mode = "compare"

    def __init__(self) -> None:
        table = RowTable(history_table(UNICODE), id="histories", classes="pane")
        super().__init__(table, Pane(id="series", classes="pane plot"))
        self.table.entitle("cases in the recorded runs")
        self._rows: tuple[CaseHistory, ...] = ()
        self._problems: tuple[str, ...] = ()
        self._state = "reading the recorded runs"
        self._read_at: tuple[str | None, str | None] | None = None

    def is_flagged(self, row: Any) -> bool:
        """Cases whose newest run was slower."""
        return bool(row.latest.outcome == Outcome.REGRESSED.value)

    def compose_body(self) -> Iterable[Widget]:
        """Table and plot."""
        yield Container(self.table, self.detail, classes="body stacked")

    def _read(self) -> tuple[History, str]:
        read = self.session.options.read_history
        if read is None:
            return History(), "no recorded runs can be read from here"
        try:
            return read(), ""
        except PerfguardError as error:
            return History(), f"the recorded runs cannot be read: {error}"

    def _show(self, found: tuple[History, str]) -> None:
        history, self._state = found
        self._rows, self._problems = histories_of(history), unread_runs(history.problems)
        self.update_body(resort=True)

    def update_body(self, *, resort: bool) -> None:
        """Show the cases and the series of the selected one; read again, in a thread, when a run has ended."""
        newest = (self.session.view.run_id, self.session.view.outcome)
        if self._read_at != newest:
            self._read_at = newest
            self.in_thread(self._read, self._show, "history")
        self.follow_selection()
        self.table.show(self._rows, spec=history_table(self.glyphs), resort=resort)
        self.update_details()

    def update_details(self) -> None:
        """The series of the selected case."""
        row = self.table.cursor_row
        self.detail.entitle(row.title if row is not None else "no case is selected")
        super().update_details()

    def draw_detail(self, width: int, height: int) -> list[Line]:
        """The series of the selected case."""
        row = self.table.cursor_row
        if row is None:
            return wrapped(self._state or "nothing is recorded yet", width, Role.MUTED)
        notes = [line(Span(row.case_id, Role.STRONG))]
        changes = changes_text(row.points)
        notes += wrapped(changes, width, Role.ACCENT) if changes else []
        if self._problems:
            unread = f"{format_count(len(self._problems), 'run')} could not be read: {self._problems[0]}"
            notes += wrapped(unread, width, Role.OPEN)
        return [*notes, *plot_series(row.points, row.baseline_s, width, height - len(notes), self.glyphs)]
