"""Live and Compare: the table of cases, and the selected case in words or in plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from textual.containers import Container
from textual.widget import Widget

from perfguard.tui.drawing.plots import EffectAxis, plot_densities, plot_ecdf, plot_pairs, role_of_candidate
from perfguard.tui.drawing.spans import UNICODE, Glyphs, Line, Role, Span, line
from perfguard.tui.drawing.tasks import task_lines
from perfguard.tui.drawing.training import training_lines
from perfguard.tui.drawing.verdicts import is_worth_a_look
from perfguard.tui.screens.base import ViewScreen
from perfguard.tui.tables.cases import axis_for, case_lines, forest_table, live_table
from perfguard.tui.tables.columns import TableSpec
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Pane
from perfguard.watch.view.run_view import CaseView

_MUCH_SMALLER = 0.25


class _CaseScreen(ViewScreen):
    """The table follows the selected case, and the other way round."""

    def __init__(self, make_spec: Callable[[EffectAxis, Glyphs], TableSpec[CaseView]], detail: Pane) -> None:
        self._axis = axis_for(())
        self._make_spec = make_spec
        super().__init__(RowTable(make_spec(self._axis, UNICODE), id="cases", classes="pane"), detail)

    def is_flagged(self, row: Any) -> bool:
        """Red cases."""
        return is_worth_a_look(row)

    def update_body(self, *, resort: bool) -> None:
        """Show the cases, on the axis that fits them."""
        session, table = self.session, self.table
        wanted = axis_for(session.cases)
        # The axis stays unless intervals would not fit, or would leave most of it empty.
        if not _MUCH_SMALLER * self._axis.limit_ratio < wanted.limit_ratio <= self._axis.limit_ratio:
            self._axis = wanted
        if session.selected not in {case.case_id for case in session.cases}:
            session.selected = table.cursor_key
        self.follow_selection()
        table.show(session.cases, spec=self._make_spec(self._axis, self.glyphs), resort=resort)
        self.update_details()


class LiveScreen(_CaseScreen):
    """The run as it is measured: effects and verdicts so far, and everything about the selected case."""

    mode = "live"
    next_mode = "compare"

    def __init__(self) -> None:
        super().__init__(live_table, Pane(id="detail", classes="pane"))
        self.plot = Pane(id="samples", classes="pane")
        self.table.entitle("cases")
        self.plot.entitle("samples")

    def compose_body(self) -> Iterable[Widget]:
        """Cases; beside or below them the selected one, in words and as a plot."""
        yield Container(self.table, Container(self.detail, self.plot, classes="selected holder"), classes="body beside")

    def update_body(self, *, resort: bool) -> None:
        """Show the cases; a run that trains, or one of a task, has none, and all the room for itself."""
        view = self.session.view
        self.table.display = view.training is None and view.task is None
        self.plot.set_class(not self.table.display, "-behind")
        super().update_body(resort=resort)

    def update_details(self) -> None:
        """The selected case in words, and its samples."""
        view = self.session.view
        self.detail.entitle("training" if view.training else "task" if view.task else "selected case")
        super().update_details()
        self.plot.show(self._draw_densities)

    def _draw_densities(self, width: int, height: int) -> list[Line]:
        case = self.session.case
        return plot_densities(self.session.series(case), width, height, self.glyphs, case=case) if case else []

    def draw_detail(self, width: int, height: int) -> list[Line]:
        """Everything about the selected case, or about a run that has none."""
        training, task = self.session.view.training, self.session.view.task
        if training is not None:
            return training_lines(training, width, height, self.glyphs)
        if task is not None:
            return task_lines(task, width)
        case = self.session.case
        if case is None:
            return [line(Span("no case is selected", Role.MUTED))]
        return case_lines(case, self.session.series(case), width, self.glyphs)


class CompareScreen(_CaseScreen):
    """A forest plot of all cases; of the selected one the paired differences and both distributions."""

    mode = "compare"
    next_mode = "ops"

    def __init__(self) -> None:
        super().__init__(forest_table, Pane(id="pairs", classes="pane plot"))
        self.ecdf = Pane(id="ecdf", classes="pane plot")
        self.table.entitle("effects")
        self.ecdf.entitle("distribution of the samples")

    def compose_body(self) -> Iterable[Widget]:
        """The forest above both plots."""
        plots = Container(self.detail, self.ecdf, classes="plots holder")
        yield Container(self.table, plots, classes="body stacked")

    def update_details(self) -> None:
        """Both plots of the selected case."""
        case = self.session.case
        self.detail.entitle(f"{case.title}: difference of each block" if case is not None else "no case is selected")
        super().update_details()
        self.ecdf.show(self._ecdf)

    def draw_detail(self, width: int, height: int) -> list[Line]:
        """Paired differences of the selected case."""
        case = self.session.case
        return plot_pairs(self.session.series(case), case.log_ratio, width, height, self.glyphs) if case else []

    def _ecdf(self, width: int, height: int) -> list[Line]:
        case = self.session.case
        if case is None:
            return []
        return plot_ecdf(self.session.series(case), width, height, self.glyphs, candidate=role_of_candidate(case))
