"""The table of the log."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.report.event_lines import line_text
from perfguard.tui.drawing.spans import Line, Role, Span, line
from perfguard.tui.drawing.verdicts import Mark
from perfguard.tui.tables.columns import Column, TableSpec, titled
from perfguard.watch.view.run_view import LogLine

_LEVELS = {
    "info": Mark("·", "info", Role.MUTED),
    "warning": Mark("!", "warning", Role.OPEN),
    "error": Mark("✗", "error", Role.BROKEN),
}


def log_table(started_at: float | None, names: Mapping[str, str]) -> TableSpec[LogLine]:
    """Time since the run started, how grave, the sentence."""
    return TableSpec(
        columns=(
            Column(
                id="time",
                head=titled("since start"),
                draw=lambda row, _: _time(row, started_at),
                width=11,
                rank=1,
                align_right=True,
            ),
            Column(id="level", head=titled("level"), draw=_level, width=9),
            Column(id="text", head=titled("what happened"), draw=lambda row, _: _text(row, names), width=24, stretch=1),
        ),
        key_of=_key,
        text_of=lambda row: f"{row.level} {line_text(row, names)}",
        empty="no event yet",
    )


def is_grave(row: LogLine) -> bool:
    """Whether the key for the next flag stops here."""
    return row.level != "info"


def mark_of_level(level: str) -> Mark:
    """How a level is shown."""
    return _LEVELS.get(level, Mark("?", level, Role.OPEN))


def elapsed_text(seconds: float) -> str:
    """`1:02:03`, as clocks count."""
    whole = max(0, int(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _key(row: LogLine) -> str:
    return f"{row.seq}/{row.t_wall}/{line_text(row)}" if row.seq < 0 else str(row.seq)


def _time(row: LogLine, started_at: float | None) -> Line:
    return line(Span(elapsed_text(row.t_wall - started_at) if started_at is not None else "-", Role.MUTED))


def _level(row: LogLine, _: int) -> Line:
    mark = mark_of_level(row.level)
    return line(Span(f"{mark.sign} {mark.word}", mark.role))


def _text(row: LogLine, names: Mapping[str, str]) -> Line:
    return line(Span(line_text(row, names), Role.PLAIN if is_grave(row) else Role.MUTED))
