"""The first page of a site: all runs that have a page, and the series over the recorded ones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from perfguard.history.changes import ChangePoint
from perfguard.records.case_names import short_names
from perfguard.records.history import History
from perfguard.records.result import RunResult
from perfguard.report.case_history import CaseHistory, changes_text, histories_of, short_source, unread_runs
from perfguard.report.html.charts import Cell, Table, cells, mark_cell
from perfguard.report.html.content import RunContent
from perfguard.report.html.page import render_page
from perfguard.report.html.sections import verdict_of
from perfguard.report.html.series import moment, series
from perfguard.report.rows import mark_of_run
from perfguard.report.shown import Number
from perfguard.units import cut_middle, format_count, format_effect, format_seconds

PAGES = "runs"  # Folder of the runs' pages, beside the first page
_MOST_NAME_BYTES = 200
_MOST_CHARACTERS = 120  # Of each text of a row, which is kept in the first lines of its run's page


class SiteRow(Struct, frozen=True, kw_only=True):
    """One run in the table of runs."""

    run_id: str  # Name of its folder
    started_at: float | None  # Seconds since the epoch
    source: str  # Commit of the candidate, and what was changed since
    suite: str  # Suite or selection
    machine: str  # Identity of the machine
    verdict: str  # What was said of it
    worst: str  # The case with the largest slowdown; empty where nothing was compared
    worst_log_ratio: float | None  # Its effect on the log scale


def site_row(content: RunContent) -> SiteRow:
    """A run's row."""
    result, profile = content.result, content.profile
    candidate = result.arms.get("candidate") if result else None
    worst = _worst(result)
    machine = result or profile
    return SiteRow(
        run_id=content.run_id,
        started_at=content.started_at,
        source=cut_middle(short_source(candidate.source_id, candidate.commit), _MOST_CHARACTERS) if candidate else "-",
        suite=cut_middle(result.suite if result else "", _MOST_CHARACTERS),
        machine=cut_middle(machine.machine_id if machine else "", _MOST_CHARACTERS),
        verdict=cut_middle(verdict_of(content), _MOST_CHARACTERS),
        worst=cut_middle(worst[1], _MOST_CHARACTERS) if worst else "",
        worst_log_ratio=worst[0] if worst else None,
    )


def render_index(rows: Sequence[SiteRow], history: History, changes: Sequence[ChangePoint] = (), *, source: str) -> str:
    """The first page, from rows in any order; `source` says what it was made of, for its second line."""
    published = {row.run_id for row in rows}
    ordered = sorted(rows, key=lambda row: (-(row.started_at or 0.0), row.run_id))
    return render_page(
        "index.html",
        title=f"perfguard: {format_count(len(rows), 'run')}",
        source=source,
        data={"files": []},
        runs=Table(
            columns=("date", "run", "verdict", "worst case", ">effect", "suite", "source", "machine"),
            rows=tuple(map(_cells, ordered)),
            keys=tuple(f"{r.run_id} {r.verdict} {r.worst} {r.suite} {r.source} {r.machine}" for r in ordered),
            caption=format_count(len(rows), "run"),
            is_sortable=True,
        ),
        changes=_changes_table(changes, published) if changes else None,
        cases=[_case(case) for case in sorted(histories_of(history), key=lambda case: case.case_id)],
        problems=unread_runs(history.problems),
    )


def page_name(run_id: str) -> str:
    """File of a run's page; a run whose name leaves no room for an ending goes by its beginning and a hash."""
    name = run_id.encode("utf-8", "surrogatepass")  # names on disk need not be text
    if len(name) <= _MOST_NAME_BYTES:
        return f"{run_id}.html"
    beginning = name[: _MOST_NAME_BYTES // 2].decode("ascii", "ignore")
    return f"{beginning}-{hashlib.sha256(name).hexdigest()[:16]}.html"


def _cells(row: SiteRow) -> tuple[Cell, ...]:
    mark = mark_of_run(row.verdict)
    return cells(
        Cell(content=moment(row.started_at), sort=row.started_at, class_="date"),
        Cell(content=row.run_id, link=f"{PAGES}/{_address(page_name(row.run_id))}"),
        mark_cell(mark, f"{mark.sign} {mark.word}"),
        row.worst or "-",
        Number.of(format_effect, row.worst_log_ratio),
        row.suite or "-",
        row.source,
        row.machine or "-",
    )


def _changes_table(changes: Sequence[ChangePoint], published: AbstractSet[str]) -> Table:
    names = short_names(change.after.case_id for change in changes)
    return Table(
        columns=("since", "case", ">change", ">95 % interval", "cause", "state", "between", "machine"),
        rows=tuple(_change_cells(change, names[change.after.case_id], published) for change in changes),
        keys=tuple(f"{c.after.case_id} {c.cause.value} {c.state.value} {c.after.machine_id or ''}" for c in changes),
        caption=f"{format_count(len(changes), 'change')}, those that need a look first",
        is_sortable=True,
    )


def _change_cells(change: ChangePoint, name: str, published: AbstractSet[str]) -> tuple[Cell, ...]:
    before, after, said = change.before, change.after, change.stated
    ends = " … ".join(short_source(point.source_id, point.commit) for point in (before, after))
    link = f"{PAGES}/{_address(page_name(after.run_id))}" if after.run_id in published else ""
    return cells(
        Cell(content=moment(after.t_wall), sort=after.t_wall, class_="date", link=link),
        Cell(content=name, title=after.case_id),
        Number.of(format_effect, change.log_ratio),
        Cell(content=f"{format_effect(change.lower)} … {format_effect(change.upper)}", class_="num"),
        change.cause.value,
        Cell(content=change.state.value, title=f"{said.author}: {said.reason}" if said is not None else ""),
        cut_middle(ends, _MOST_CHARACTERS),
        after.machine_id or "-",
    )


def _address(name: str) -> str:
    """A file's name in a link; names on disk need not be text."""
    try:
        return quote(name, safe="", errors="surrogateescape")
    except UnicodeEncodeError:
        return quote(name, safe="", errors="replace")


def _case(case: CaseHistory) -> dict[str, Any]:
    """What the template shows of a case: its newest time with the change, its charts, what changed between runs."""
    change = f", {format_effect(case.log_ratio)} since the {case.reference}" if case.reference else ""
    summary = f"{format_seconds(case.latest.median_s)}{change}, {format_count(len(case.points), 'run')}"
    return {"case_id": case.case_id, "summary": summary, "charts": series(case), "note": changes_text(case.points)}


def _worst(result: RunResult | None) -> tuple[float, str] | None:
    """Effect and name of the case with the largest slowdown."""
    verdicts = result.gate.verdicts if result and result.gate else ()
    known = ((v.effect.log_ratio, v.case_id) for v in verdicts if v.effect is not None)
    return max((found for found in known if math.isfinite(found[0])), default=None)
