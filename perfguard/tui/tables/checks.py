"""The doctor's rows."""

from __future__ import annotations

from perfguard.records.machine.fingerprint import CheckResult, CheckStatus
from perfguard.report.messages.catalog import describe
from perfguard.tui.drawing.spans import Line, Role, Span, line, wrapped
from perfguard.tui.drawing.verdicts import Mark
from perfguard.tui.tables.columns import Column, TableSpec, titled

_MARKS = {
    CheckStatus.OK: Mark("✓", "ok", Role.SAME),
    CheckStatus.WARN: Mark("!", "warn", Role.OPEN),
    CheckStatus.FAIL: Mark("✗", "fail", Role.BROKEN),
    CheckStatus.UNKNOWN: Mark("?", "unknown", Role.MUTED),
    CheckStatus.NOT_APPLICABLE: Mark("·", "does not apply", Role.MUTED),
}


def checks_table() -> TableSpec[CheckResult]:
    """Sign and status, what was checked, what was seen."""
    return TableSpec(
        columns=(
            Column(id="status", head=titled("doctor"), draw=_status, width=9),
            Column(id="check", head=titled("check"), draw=lambda row, _: line(Span(row.id, Role.STRONG)), width=14),
            Column(
                id="observed",
                head=titled("seen"),
                draw=lambda row, _: line(describe(row.observed)),
                width=20,
                stretch=1,
            ),
        ),
        key_of=lambda row: row.id,
        text_of=lambda row: f"{row.id} {row.status.value} {describe(row.observed)}",
        empty="no checks",
    )


def is_bad(row: CheckResult) -> bool:
    """Whether the key for the next flag stops here."""
    return row.status in (CheckStatus.WARN, CheckStatus.FAIL)


def check_lines(row: CheckResult, width: int) -> list[Line]:
    """All that a row says: what was seen, why it matters, what fixes it."""
    mark = _MARKS[row.status]
    lines = [line(Span(f"{mark.sign} {mark.word}  ", mark.role), Span(row.id, Role.STRONG))]
    lines += wrapped(f"seen  {describe(row.observed)}", width, indent=6)
    lines += wrapped(f"why   {describe(row.why)}", width, Role.MUTED, indent=6)
    return [*lines, *(wrapped(f"fix   {describe(row.fix)}", width, Role.ACCENT, indent=6) if row.fix else ())]


def _status(row: CheckResult, width: int) -> Line:
    mark = _MARKS[row.status]
    word = mark.word if len(mark.word) + 2 <= width else "n/a"
    return line(Span(f"{mark.sign} {word}", mark.role))
