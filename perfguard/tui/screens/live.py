"""Live: the run as it is measured, one row a case, and everything about the selected one."""

from __future__ import annotations

from collections.abc import Iterable

from textual.containers import Container
from textual.widget import Widget

from perfguard.tui.drawing.pairs import plot_pairs
from perfguard.tui.drawing.spans import EMPTY, Line, Role, Span, line
from perfguard.tui.panes.case import case_lines
from perfguard.tui.screens.cases import CaseScreen
from perfguard.tui.tables.cases import live_table
from perfguard.tui.widgets.texts import Pane

_PLOT_HEIGHT = 8
"""Lines that must be left below a case for a plot of its blocks."""


class LiveScreen(CaseScreen):
    """The table of cases with effects and verdicts so far."""

    mode = "live"
    next_mode = "compare"
    make_spec = staticmethod(live_table)

    def __init__(self) -> None:
        super().__init__()
        self.detail = Pane(id="detail", classes="pane")

    def compose_body(self) -> Iterable[Widget]:
        """Cases, and the selected one beside or below."""
        yield Container(self.cases, self.detail, classes="body beside")

    def update_details(self) -> None:
        """Everything about the selected case."""
        self.detail.show(self._detail)

    def _detail(self, width: int, height: int) -> list[Line]:
        case = self.session.case
        if case is None:
            return [line(Span("no case is selected", Role.MUTED))]
        series = self.session.series(case)
        lines = case_lines(case, series, width, self.glyphs)
        room = height - len(lines) - 1
        if room >= _PLOT_HEIGHT and series.block_log_ratios:
            lines += [EMPTY, *plot_pairs(series, case.log_ratio, width, min(room, 2 * _PLOT_HEIGHT), self.glyphs)]
        return lines
