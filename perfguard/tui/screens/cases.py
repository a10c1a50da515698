"""What the screens with a table of cases share: the table follows the selected case, and the other way round."""

from __future__ import annotations

from typing import Any, ClassVar

from perfguard.tui.drawing.glyphs import UNICODE, Glyphs
from perfguard.tui.drawing.intervals import EffectAxis
from perfguard.tui.drawing.verdicts import is_worth_a_look
from perfguard.tui.screens.base import ViewScreen
from perfguard.tui.tables.cases import axis_for
from perfguard.tui.tables.columns import TableSpec
from perfguard.tui.widgets.row_table import RowTable
from perfguard.watch.view.run_view import CaseView

_MUCH_SMALLER = 0.25


class CaseScreen(ViewScreen):
    """A screen whose main table is one of cases."""

    next_mode: ClassVar[str] = ""
    """Where the key to look closer leads."""

    def __init__(self) -> None:
        super().__init__()
        self._axis = axis_for(())
        self._is_ascii: bool | None = None
        self.cases: RowTable[CaseView] = RowTable(self.make_spec(self._axis, UNICODE), id="cases", classes="pane")

    @staticmethod
    def make_spec(axis: EffectAxis, glyphs: Glyphs) -> TableSpec[CaseView]:
        """Its columns."""
        raise NotImplementedError

    @property
    def table(self) -> RowTable[Any]:
        """The cases."""
        return self.cases

    def is_flagged(self, row: Any) -> bool:
        """Red cases."""
        return is_worth_a_look(row)

    def update_body(self, *, resort: bool) -> None:
        """Show the cases, on the axis that fits them."""
        session = self.session
        axis = self._next_axis()
        spec = None
        if axis != self._axis or self._is_ascii != self.glyphs.is_ascii:
            self._axis, self._is_ascii = axis, self.glyphs.is_ascii
            spec = self.make_spec(axis, self.glyphs)
        if session.selected not in {case.case_id for case in session.cases}:
            session.selected = self.cases.cursor_key
        if session.selected is not None and session.selected != self.cases.cursor_key:
            self.cases.go_to(session.selected)
        self.cases.show(session.cases, spec=spec, resort=resort)
        self.update_details()

    def _next_axis(self) -> EffectAxis:
        """The axis changes where intervals would not fit, or would leave most of it empty; else it stays as it was."""
        axis = axis_for(self.session.cases)
        is_too_wide = axis.limit_ratio <= _MUCH_SMALLER * self._axis.limit_ratio
        return axis if axis.limit_ratio > self._axis.limit_ratio or is_too_wide else self._axis

    def update_details(self) -> None:
        """Show what stands beside the table."""
        raise NotImplementedError

    def on_row_table_highlighted(self, event: RowTable.Highlighted) -> None:
        """Another case is selected."""
        event.stop()
        if event.key is not None and event.key == self.cases.cursor_key:
            self.session.select(event.key, is_chosen=event.is_chosen)
            self.update_details()

    def on_row_table_opened(self, event: RowTable.Opened) -> None:
        """Look closer."""
        event.stop()
        self.session.select(event.key, is_chosen=True)
        self.perfguard.action_show_screen(self.next_mode)
