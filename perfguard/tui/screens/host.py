"""Host: the machine of the run with its topology, and the doctor's rows for this one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.message import Message
from textual.widget import Widget

from perfguard.errors import PerfguardError
from perfguard.records.machine.fingerprint import CheckResult, CpuSelection, Fingerprint
from perfguard.tui.drawing.spans import Line, Role, wrapped
from perfguard.tui.keymap import Scope
from perfguard.tui.options import Watch
from perfguard.tui.panes.host import host_lines
from perfguard.tui.screens.base import ViewScreen
from perfguard.tui.tables.checks import check_lines, checks_table, is_bad
from perfguard.tui.widgets.bindings import bindings_in
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Pane


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    found: Fingerprint | None = None
    selection: CpuSelection | None = None
    rows: tuple[CheckResult, ...] = ()
    state: str = "asking the doctor"


class HostScreen(ViewScreen):
    """Facts at the left, checks at the right."""

    class Answered(Message):
        """A thread has read the machine and asked the doctor."""

        def __init__(self, answer: _Answer) -> None:
            super().__init__()
            self.answer = answer

    BINDINGS: ClassVar[list[BindingType]] = bindings_in(Scope.HOST)
    mode = "host"

    def __init__(self) -> None:
        super().__init__()
        self.facts = Pane(id="facts", classes="pane")
        self.checks: RowTable[CheckResult] = RowTable(checks_table(), id="checks", classes="pane")
        self.detail = Pane(id="detail", classes="pane")
        self._answer = _Answer()
        self._asked_for: Watch | None = None

    @property
    def table(self) -> RowTable[Any]:
        """The doctor's rows."""
        return self.checks

    def is_flagged(self, row: Any) -> bool:
        """What is not as it should be."""
        return is_bad(row)

    def compose_body(self) -> Iterable[Widget]:
        """Facts beside checks; the check under the cursor in full below."""
        yield Container(self.facts, Container(self.checks, self.detail, classes="stacked holder"), classes="body host")

    def action_ask_doctor(self) -> None:
        """Read the machine and the doctor's rows, in a thread."""
        self.in_thread(self._ask, "host")

    def _ask(self) -> None:
        options = self.session.options
        state = "" if options.read_checks is not None else "no doctor for a run that is elsewhere"
        rows: tuple[CheckResult, ...] = ()
        found = options.read_fingerprint() if options.read_fingerprint is not None else None
        selection = options.read_cpus() if options.read_cpus is not None else None
        try:
            rows = options.read_checks() if options.read_checks is not None else ()
        except PerfguardError as error:
            state = f"the doctor could not be asked: {error}"
        self.post_message(self.Answered(_Answer(found=found, selection=selection, rows=rows, state=state)))

    def on_host_screen_answered(self, event: Answered) -> None:
        """Show what was found."""
        self._answer = event.answer
        self.update_body(resort=True)

    def update_body(self, *, resort: bool) -> None:
        """Show facts and checks; ask once for each run, again only when told to."""
        if self._asked_for is not self.session.watch:
            self._asked_for = self.session.watch
            self.action_ask_doctor()
        self.facts.show(self._facts)
        spec = replace(checks_table(), empty=self._answer.state)
        self.checks.show(self._answer.rows, spec=spec if spec.empty != self.checks.spec.empty else None, resort=resort)
        self.detail.show(self._detail)

    def on_row_table_highlighted(self, event: RowTable.Highlighted) -> None:
        """Another check."""
        event.stop()
        self.detail.show(self._detail)

    def on_row_table_opened(self, event: RowTable.Opened) -> None:
        """There is nothing behind a check."""
        event.stop()

    def _facts(self, width: int, _height: int) -> list[Line]:
        return host_lines(self._answer.found, self._answer.selection, width, self.glyphs, now=self.perfguard.host_text)

    def _detail(self, width: int, _height: int) -> list[Line]:
        row = self.checks.cursor_row
        return check_lines(row, width) if row is not None else wrapped(self._answer.state, width, Role.MUTED)
