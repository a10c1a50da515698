"""The runs of a project as a table: what each came to, when it began, what was typed. No textual."""

from __future__ import annotations

from functools import lru_cache

from perfguard.tui.drawing.spans import Line, Role, Span, line, shortened
from perfguard.tui.drawing.verdicts import mark_of_gate
from perfguard.tui.tables.columns import Column, TableSpec
from perfguard.units import format_ago, printable
from perfguard.watch.sources.recorded_runs import RecordedRun


@lru_cache(maxsize=1)
def runs_table() -> TableSpec[RecordedRun]:
    """Verdict, age, command, name."""
    return TableSpec(
        columns=(
            Column("verdict", "verdict", lambda row, _: _verdict(row), 16),
            Column("began", "began", lambda row, _: line(_began(row)), 16, sort=lambda row: -(row.started_at or 0.0)),
            Column("command", "command", lambda row, width: line(shortened(_command(row), width)), 24, stretch=3),
            Column("run", "run", lambda row, width: line(Span(shortened(row.name, width), Role.MUTED)), 22, rank=1),
        ),
        key_of=lambda row: row.name,
        text_of=lambda row: f"{row.name} {_command(row)} {row.outcome or ''}",
        empty="no run is recorded here yet",
    )


def _verdict(row: RecordedRun) -> Line:
    if row.outcome is None:
        return line(Span("○ unfinished", Role.MUTED))
    return line(mark_of_gate(row.outcome).span)


def _began(row: RecordedRun) -> str:
    return format_ago(row.started_at) if row.started_at is not None else "-"


def _command(row: RecordedRun) -> str:
    return printable(" ".join(row.command))
