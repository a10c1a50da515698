"""Cases over the recorded runs: one line a run, and where a level changed."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from perfguard.history.changes import CaseOnMachine, ChangeCause, ChangePoint
from perfguard.records.case_names import short_names
from perfguard.records.history import HistoryPoint
from perfguard.records.verdict import Outcome
from perfguard.report.case_history import changes_before, short_source
from perfguard.report.scales import bounds_of
from perfguard.report.shown import Number
from perfguard.report.terminal.tables import plain_table, texts
from perfguard.units import format_count, format_day, format_effect, format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

_PLOT = 41  # Columns
_SIGNS = {Outcome.REGRESSED.value: "▲ regressed", Outcome.IMPROVED.value: "▼ improved"}
_CAUSES = {
    ChangeCause.CODE: "the code differs",
    ChangeCause.SAME_CODE: "the code is the same, so the machine changed, or it is noise",
    ChangeCause.WITHIN_NOISE: "the code differs, but this machine changed the case as much without it",
    ChangeCause.UNKNOWN: "the code of one of them is not known",
}


def render_history(found: Sequence[CaseOnMachine], *, last: int) -> list[RenderableType]:
    """One case: its newest runs on each machine, then all changes of its level."""
    return [part for each in found for part in (*texts(_title(each), style="bold"), _runs(each, last), *_changes(each))]


def render_histories(found: Sequence[CaseOnMachine]) -> list[RenderableType]:
    """Many cases: a row for each and machine, with the newest change of its level."""
    if not found:
        return texts("no recorded run holds a case; `perfguard gate` or `perfguard run` makes one")
    names = short_names(each.case_id for each in found)
    table = plain_table("~~case", "~machine/2", ">runs", ">latest", ">change", "since/1", "state")
    for each in found:
        change = each.changes[-1] if each.changes else None
        table.add_row(
            names[each.case_id],
            each.machine_id or "-",
            str(len(each.points)),
            format_seconds(each.points[-1].median_s),
            format_effect(change.log_ratio) if change else "-",
            f"{_day(change.after)}, {_source(change.after)}" if change else "",
            _state(change) if change else "",
        )
    return [table]


def _title(each: CaseOnMachine) -> str:
    first, latest = each.points[0], each.points[-1]
    runs = format_count(len(each.points), "run")
    return f"{each.case_id} on {each.machine_id or 'an unknown machine'}: {runs}, {_day(first)} to {_day(latest)}"


def _runs(each: CaseOnMachine, last: int) -> RenderableType:
    shown = each.points[-last:]
    low, high = bounds_of([value_s for point in shown for value_s in (point.median_s, *point.spread_s)])
    changed = zip(each.points, changes_before(each.points), strict=True)
    marks = {point.run_id: "software changed" for point, letters in changed if letters}
    marks |= {change.after.run_id: _sign(change) for change in each.changes}
    table = plain_table("date", "~source", ">median", "level", "")
    for point in shown:
        mark = ", ".join(filter(None, (marks.get(point.run_id), _SIGNS.get(point.outcome or ""))))
        row = _row(point, low, high)
        table.add_row(_moment(point), _source(point), Number.of(format_seconds, point.median_s), row, mark)
    return table


def _row(point: HistoryPoint, low: float, high: float) -> str:
    """`   ──●──   `: the median and its spread between blocks."""
    cells = [" "] * _PLOT

    def place(value_s: float) -> int:
        return min(max(round((value_s - low) / (high - low) * (_PLOT - 1)), 0), _PLOT - 1)

    if point.spread_s:
        first, final = map(place, point.spread_s)
        cells[first : final + 1] = "─" * (final + 1 - first)
    cells[place(point.median_s)] = "●"
    return "".join(cells)


def _changes(each: CaseOnMachine) -> Iterable[RenderableType]:
    for change in each.changes:
        word = "slower" if change.log_ratio > 0 else "faster"
        interval = f"[{format_effect(change.lower)}, {format_effect(change.upper)}]"
        ends = f"{_source(change.before)} ({_day(change.before)}) and {_source(change.after)} ({_day(change.after)})"
        size = f"{format_effect(change.log_ratio)} {interval}"
        yield from texts(f"{_sign(change)}: {word}, {size}, between {ends}; {_CAUSES[change.cause]}")
        if change.stated is not None:
            said = change.stated
            yield from texts(
                f"  {said.state.value}: {said.reason} ({said.author}, {format_day(said.stated_at)})", style="dim"
            )
        elif change.is_of_the_code and change.before.commit and change.after.commit and change.log_ratio > 0:
            ends = shlex.join(["--good", change.before.commit[:12], "--bad", change.after.commit[:12]])
            yield from texts(f"  perfguard bisect {ends} -c {shlex.quote(each.case_id)}", style="dim")


def _state(change: ChangePoint) -> str:
    """What people or, without them, the runs say of a change."""
    if change.stated is not None:
        return change.state.value
    return change.state.value if change.is_of_the_code else change.cause.value


def _sign(change: ChangePoint) -> str:
    return f"{'▲' if change.log_ratio > 0 else '▼'} {format_effect(change.log_ratio)}"


def _source(point: HistoryPoint) -> str:
    return short_source(point.source_id, point.commit)


def _day(point: HistoryPoint) -> str:
    return format_day(point.t_wall)


def _moment(point: HistoryPoint) -> str:
    """Month, day and time in UTC; the year is in the title."""
    return time.strftime("%m-%d %H:%M", time.gmtime(point.t_wall))
