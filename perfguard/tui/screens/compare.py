"""Compare: a forest plot of all cases; of the selected one the paired differences and both distributions."""

from __future__ import annotations

from collections.abc import Iterable

from textual.containers import Container, Horizontal
from textual.widget import Widget

from perfguard.tui.drawing.ecdf import plot_ecdf
from perfguard.tui.drawing.pairs import plot_pairs
from perfguard.tui.drawing.spans import Line, Role, Span, line, shortened
from perfguard.tui.screens.cases import CaseScreen
from perfguard.tui.tables.cases import forest_table
from perfguard.tui.widgets.texts import Lines, Pane


class CompareScreen(CaseScreen):
    """Effects on one axis, and what they rest on."""

    mode = "compare"
    next_mode = "ops"
    make_spec = staticmethod(forest_table)

    def __init__(self) -> None:
        super().__init__()
        self.title_line = Lines(id="plots-title")
        self.pairs = Pane(id="pairs", classes="pane plot")
        self.ecdf = Pane(id="ecdf", classes="pane plot")

    def compose_body(self) -> Iterable[Widget]:
        """The forest above both plots."""
        yield Container(
            self.cases,
            self.title_line,
            Horizontal(self.pairs, self.ecdf, classes="plots holder"),
            classes="body stacked",
        )

    def update_details(self) -> None:
        """Both plots of the selected case."""
        case = self.session.case
        name = case.title if case is not None else "no case is selected"
        self.title_line.show(lambda width, _: [line(Span(shortened(f" {name}", width), Role.STRONG))])
        self.pairs.show(self._pairs)
        self.ecdf.show(self._ecdf)

    def _pairs(self, width: int, height: int) -> list[Line]:
        case = self.session.case
        if case is None:
            return []
        return plot_pairs(self.session.series(case), case.log_ratio, width, height, self.glyphs)

    def _ecdf(self, width: int, height: int) -> list[Line]:
        case = self.session.case
        return plot_ecdf(self.session.series(case), width, height, self.glyphs) if case is not None else []
