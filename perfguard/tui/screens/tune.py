"""Tune: what the newest `perfguard tune` has tried so far, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from textual.containers import Container
from textual.widget import Widget

from perfguard.errors import PerfguardError
from perfguard.records.tuning import TrialVerdict, TriedTrial, TuningNow
from perfguard.report.messages.catalog import describe_all
from perfguard.report.terminal.tuning import hint_text, interval_text, result_text, setting_text, trial_name
from perfguard.tui.drawing.spans import Line, Role, Span, line, shortened, wrapped
from perfguard.tui.screens.base import ViewScreen
from perfguard.tui.tables.columns import Column, TableSpec, number
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Pane
from perfguard.units import format_ago, format_duration, format_effect, format_seconds, printable

_READ_AGAIN_S = 2.0
_ROLES = {
    TrialVerdict.FASTER: Role.FASTER,
    TrialVerdict.SLOWER: Role.SLOWER,
    TrialVerdict.DIFFERENT: Role.OPEN,
    TrialVerdict.FAILED: Role.BROKEN,
}


@lru_cache(maxsize=4)
def trials_table(empty: str) -> TableSpec[TriedTrial]:
    """Trial, what it was tried on top of, effect, interval, blocks, result."""
    return TableSpec(
        columns=(
            Column(
                "trial", "trial", lambda row, width: line(shortened(printable(trial_name(row)), width)), 16, stretch=2
            ),
            Column(
                "base",
                "on top of",
                lambda row, width: line(Span(shortened(printable(setting_text(row.trial.before)), width), Role.MUTED)),
                13,
                stretch=2,
                rank=2,
            ),
            number("effect", lambda row: row.outcome.log_ratio, format_effect, 9),
            Column("interval", "95 % interval", lambda row, _: line(interval_text(row.outcome)), 20, rank=1),
            number("blocks", lambda row: row.outcome.blocks, str, 6, rank=3),
            Column("result", "result", lambda row, _: line(_result(row)), 17),
        ),
        key_of=lambda row: repr((row.trial.purpose.value, row.trial.before, row.trial.after)),
        text_of=lambda row: f"{trial_name(row)} {setting_text(row.trial.before)} {result_text(row, None)}",
        empty=empty,
    )


def _result(row: TriedTrial) -> Span:
    return Span(result_text(row, None), _ROLES.get(row.outcome.verdict, Role.MUTED))


class TuneScreen(ViewScreen):
    """Trials above; the target and the selected trial below."""

    mode = "tune"

    def __init__(self) -> None:
        super().__init__(
            RowTable(trials_table("reading the trials"), id="trials", classes="pane"),
            Pane(id="trial", classes="pane plot"),
        )
        self.table.entitle("trials")
        self.detail.entitle("what is tuned, and the selected trial")
        self._now: TuningNow | None = None
        self._state = "reading the trials"
        self._read_at = -_READ_AGAIN_S

    def is_flagged(self, row: Any) -> bool:
        """Trials that need a reason."""
        return row.outcome.verdict in (TrialVerdict.DIFFERENT, TrialVerdict.FAILED)

    def compose_body(self) -> Iterable[Widget]:
        """Trials and what is known of one."""
        yield Container(self.table, self.detail, classes="body stacked")

    def _read(self) -> tuple[TuningNow | None, str]:
        read = self.session.options.read_tuning
        if read is None:
            return None, "no tuning can be read from here"
        try:
            found = read()
        except PerfguardError as error:
            return None, f"the tuning cannot be read: {error}"
        return found, "" if found else "nothing was tuned in this project yet: perfguard tune CASE, or tune train.py"

    def _show(self, found: tuple[TuningNow | None, str]) -> None:
        self._now, self._state = found
        self.update_body(resort=False)

    def update_body(self, *, resort: bool) -> None:
        """Show the trials; read again, in a thread, every two seconds."""
        if time.monotonic() - self._read_at >= _READ_AGAIN_S:
            self._read_at = time.monotonic()
            self.in_thread(self._read, self._show, "tune")
        empty = self._state or "no trial has ended yet"
        self.table.show(self._now.trials if self._now else (), spec=trials_table(empty), resort=resort)
        self.update_details()

    def draw_detail(self, width: int, height: int) -> list[Line]:
        """What is tuned and what its profile found; then the selected trial."""
        if self._now is None:
            return wrapped(self._state, width, Role.MUTED)
        now, row = self._now, self.table.cursor_row
        hints = ", ".join(hint_text(hint.code, hint.share) for hint in now.hints) or "none"
        lines = [
            line(Span(shortened(printable(now.target), width), Role.STRONG)),
            *wrapped(f"findings: {hints}", width, indent=10),
            line(Span(f"written {format_ago(now.changed_at)}", Role.MUTED)),
        ]
        if row is not None:
            lines += self._trial_lines(row, width)
        return lines[:height]

    def _trial_lines(self, row: TriedTrial, width: int) -> list[Line]:
        outcome = row.outcome
        times = f"{format_seconds(outcome.before_s)} before, {format_seconds(outcome.after_s)} after"
        run = f"; run {outcome.run_id}" if outcome.run_id else ""
        lines = wrapped(f"trial: {times}, in {format_duration(outcome.duration_s)}{run}", width, indent=7)
        if outcome.reasons:
            lines += wrapped(f"reason: {describe_all(outcome.reasons)}", width, Role.OPEN, indent=8)
        return lines
