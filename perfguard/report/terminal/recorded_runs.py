"""What is recorded in the history: the log of runs, one run, two revisions, the database itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfguard.records.case_names import short_names
from perfguard.records.history import (
    CaseBetweenRevisions,
    CaseOverMachines,
    ComparedRevisions,
    DatabaseStatus,
    LoggedRun,
    MeasuredCode,
    RunRecord,
    Token,
)
from perfguard.report.case_history import short_source
from perfguard.report.messages.catalog import describe
from perfguard.report.shown import Number
from perfguard.report.terminal.tables import plain_table, texts
from perfguard.units import format_bytes, format_count, format_effect, format_ratio, format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

_KILLED = "did not end"


def render_log(found: Sequence[LoggedRun]) -> list[RenderableType]:
    """A row for each run."""
    if not found:
        return texts("no run is recorded; `perfguard gate` or `perfguard run` makes one")
    table = plain_table("started", "run", "~source", "~suite/2", ">cases", "~machine/3", "outcome")
    for logged in found:
        run = logged.run
        table.add_row(
            _moment(run.started_at),
            run.run_id,
            _source(run.candidate),
            run.suite or run.mode or "-",
            str(logged.cases),
            run.machine_id or "-",
            describe(run.problem) if run.problem else run.outcome or _KILLED,
        )
    return [table]


def render_run(run: RunRecord) -> list[RenderableType]:
    """One run: what was measured where, then a row for each case."""
    against = f" against {_source(run.baseline)}" if run.baseline else ""
    lines = [
        f"{run.run_id}: {run.outcome or _KILLED}, {_moment(run.started_at)} UTC",
        f"{run.project}: {_source(run.candidate)}{against}, suite {run.suite or '-'}",
        f"on {run.machine_id or 'an unknown machine'} with {run.candidate.stack_id or 'unknown software'}",
        *([describe(run.problem)] if run.problem else []),
    ]
    parts: list[RenderableType] = [part for line in lines for part in texts(line)]
    if not run.cases:
        return [*parts, *texts("no case was measured whole")]
    names = short_names(case.case_id for case in run.cases)
    table = plain_table("~~case", ">median", ">spread", ">blocks", ">effect", "interval/1", "outcome")
    for case in run.cases:
        table.add_row(
            names[case.case_id],
            Number.of(format_seconds, case.median_s),
            format_ratio(case.spread_ratio) if case.spread_ratio is not None else "-",
            str(case.blocks),
            format_effect(case.log_ratio) if case.log_ratio is not None else "-",
            _interval(case.lower, case.upper),
            case.outcome or "",
        )
    return [*parts, table]


def render_comparison(compared: ComparedRevisions) -> list[RenderableType]:
    """Cases with an interval, those of several machines pooled, then those with too little data."""
    found = compared.cases
    names = short_names(case.case_id for case in found)
    enough = [case for case in found if case.lower is not None]
    table = plain_table("~~case", "~machine/2", ">before", ">after", ">effect", "interval", "from")
    for case in enough:
        table.add_row(
            names[case.case_id],
            case.machine_id or "-",
            format_seconds(case.before_s) if case.before_s is not None else "-",
            Number.of(format_seconds, case.after_s),
            format_effect(case.log_ratio),
            _interval(case.lower, case.upper),
            _evidence(case),
        )
    rest = [case for case in found if case.lower is None]
    parts: list[RenderableType] = [table] if enough else []
    if compared.over_machines:
        parts += [*texts("Over all machines:"), _over_machines(compared.over_machines, names)]
    if rest:
        parts += texts("Too little data for an interval, which takes two runs of each revision:")
        few = plain_table("~~case", "~machine/2", ">before", ">after", ">effect", "from")
        for case in rest:
            before = format_seconds(case.before_s) if case.before_s is not None else "-"
            row = names[case.case_id], case.machine_id or "-", before, format_seconds(case.after_s)
            few.add_row(*row, format_effect(case.log_ratio), _evidence(case))
        parts.append(few)
    return parts


def _over_machines(found: Sequence[CaseOverMachines], names: Mapping[str, str]) -> RenderableType:
    table = plain_table("~~case", ">machines", ">effect", "interval", ">between machines/1", "")
    for case in found:
        table.add_row(
            names[case.case_id],
            str(len(case.machines)),
            format_effect(case.log_ratio),
            _interval(case.lower, case.upper),
            format_ratio(case.between_sd),
            _agreement(case),
        )
    return table


def _agreement(case: CaseOverMachines) -> str:
    if not case.differ:
        return "machines agree"
    if case.slower_on and len(case.slower_on) < len(case.machines):
        return f"slower on {', '.join(case.slower_on)} only"
    return "machines differ"


def render_tokens(found: Sequence[Token]) -> list[RenderableType]:
    """A row for each token."""
    if not found:
        return texts("no token; `perfguard db token add NAME --for read` makes one")
    table = plain_table(">id", "~name", "for", "~project/1", "made", "state")
    for token in found:
        state = f"revoked {_moment(token.revoked_at)}" if token.revoked_at is not None else "valid"
        table.add_row(
            str(token.id), token.name, token.scope.value, token.project or "all", _moment(token.created_at), state
        )
    return [table]


def render_status(found: DatabaseStatus) -> list[RenderableType]:
    """A line for each figure."""
    corrected = f", {found.corrected_runs} of them corrected later" if found.corrected_runs else ""
    lines = (
        f"database  {found.name}",
        f"version   {found.revision}",
        f"size      {format_bytes(found.size_bytes)}",
        f"projects  {found.projects}",
        f"runs      {found.runs}{corrected}",
        f"series    {found.series}",
        f"values    {found.values}",
        f"samples   of {format_count(found.samples, 'value')}",
    )
    return [part for line in lines for part in texts(line)]


def _evidence(case: CaseBetweenRevisions) -> str:
    if case.paired_runs:
        return f"{format_count(case.paired_runs, 'run')} with both"
    return f"{case.before_runs} and {format_count(case.after_runs, 'run')}"


def _interval(lower: float | None, upper: float | None) -> str:
    return "" if lower is None or upper is None else f"[{format_effect(lower)}, {format_effect(upper)}]"


def _source(code: MeasuredCode) -> str:
    return short_source(code.source_id, code.commit)


def _moment(t_wall: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(t_wall))
