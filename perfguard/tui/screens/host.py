"""Host: the machine of the run with its topology, and the doctor's rows for this one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from perfguard.errors import PerfguardError
from perfguard.records.machine.fingerprint import CheckResult, CheckStatus, CpuSelection, Fingerprint
from perfguard.report.messages.catalog import describe
from perfguard.tui.drawing.host import host_lines
from perfguard.tui.drawing.spans import Line, Role, Span, labelled, line, wrapped
from perfguard.tui.drawing.verdicts import WordStyle
from perfguard.tui.keymap import KeyScope
from perfguard.tui.screens.base import ViewScreen
from perfguard.tui.tables.columns import Column, TableSpec
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Pane, bindings_in
from perfguard.watch.view.watching import RunWatch

_LABELS = 6  # Columns of `seen  `
_MARKS = {
    CheckStatus.OK: WordStyle("✓", "ok", Role.SAME),
    CheckStatus.WARN: WordStyle("!", "warn", Role.OPEN),
    CheckStatus.FAIL: WordStyle("✗", "fail", Role.BROKEN),
    CheckStatus.UNKNOWN: WordStyle("?", "unknown", Role.MUTED),
    CheckStatus.NOT_APPLICABLE: WordStyle("·", "does not apply", Role.MUTED),
}


class _Answer(NamedTuple):
    found: Fingerprint | None = None
    selection: CpuSelection | None = None
    rows: tuple[CheckResult, ...] = ()
    state: str = "asking the doctor"


@lru_cache(maxsize=4)
def _checks_table(empty: str) -> TableSpec[CheckResult]:
    """Sign and status, what was checked, what was seen."""
    return TableSpec(
        columns=(
            Column("status", "doctor", _status, 9),
            Column("check", "check", lambda row, _: line(Span(row.id, Role.STRONG)), 14),
            Column("observed", "seen", lambda row, _: line(describe(row.observed)), 20, stretch=1),
        ),
        key_of=lambda row: row.id,
        text_of=lambda row: f"{row.id} {row.status.value} {describe(row.observed)}",
        empty=empty,
    )


def _status(row: CheckResult, width: int) -> Line:
    mark = _MARKS[row.status]
    word = mark.word if len(mark.word) + 2 <= width else "n/a"
    return line(Span(f"{mark.sign} {word}", mark.role))


class HostScreen(ViewScreen):
    """Facts at the left, checks at the right."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_in(KeyScope.HOST)
    mode = "host"

    def __init__(self) -> None:
        self._answer = _Answer()
        self._asked_for: RunWatch | None = None
        table = RowTable(_checks_table(self._answer.state), id="checks", classes="pane")
        super().__init__(table, Pane(id="detail", classes="pane"))
        self.facts = Pane(id="facts", classes="pane")
        self.facts.entitle("machine")
        self.table.entitle("checks")
        self.detail.entitle("selected check")

    def is_flagged(self, row: Any) -> bool:
        """What is not as it should be."""
        return row.status in (CheckStatus.WARN, CheckStatus.FAIL)

    def compose_body(self) -> Iterable[Widget]:
        """Facts beside checks; the check under the cursor in full below."""
        yield Container(self.facts, Container(self.table, self.detail, classes="stacked holder"), classes="body host")

    def action_ask_doctor(self) -> None:
        """Read the machine and the doctor's rows, in a thread."""
        self.in_thread(self._ask, self._show, "host")

    def _ask(self) -> _Answer:
        options, watch = self.session.options, self.session.watch
        rows: tuple[CheckResult, ...] = ()
        state = "this host is not the one that was measured"
        if options.read_checks is not None:
            try:
                rows, state = options.read_checks(), ""
            except PerfguardError as error:
                state = f"the doctor could not be asked: {error}"
        return _Answer(found=watch.host(), selection=watch.selection(), rows=rows, state=state)

    def _show(self, answer: _Answer) -> None:
        self._answer = answer
        self.update_body(resort=True)

    def update_body(self, *, resort: bool) -> None:
        """Show facts and checks; ask once for each run, again only when the user wants it."""
        if self._asked_for is not self.session.watch:
            self._asked_for = self.session.watch
            self.action_ask_doctor()
        self.facts.show(self._facts)
        self.table.show(self._answer.rows, spec=_checks_table(self._answer.state), resort=resort)
        self.update_details()

    def _facts(self, width: int, _height: int) -> list[Line]:
        return host_lines(self._answer.found, self._answer.selection, width, self.glyphs, now=self.perfguard.host_text)

    def draw_detail(self, width: int, _height: int) -> list[Line]:
        """The check under the cursor: what was seen, why it matters, what fixes it."""
        row: CheckResult | None = self.table.cursor_row
        if row is None:
            return wrapped(self._answer.state, width, Role.MUTED)
        mark = _MARKS[row.status]
        return [
            line(Span(f"{mark.sign} {mark.word}  ", mark.role), Span(row.id, Role.STRONG)),
            *labelled("seen", describe(row.observed), width, _LABELS),
            *labelled("why", describe(row.why), width, _LABELS),
            *(labelled("fix", describe(row.fix), width, _LABELS, Role.ACCENT) if row.fix else ()),
        ]
