"""One case over the recorded runs, one picture for each machine: times of different machines say nothing together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from perfguard.records.verdict import Outcome
from perfguard.report.case_history import CaseHistory, changes_before, short_source
from perfguard.report.html.axes import LinearAxis
from perfguard.report.html.charts import Cell, Chart, Table, levels, numbers
from perfguard.report.html.svg import Element, element, percent, picture
from perfguard.report.scales import bounds_of
from perfguard.units import format_count, format_ratio, format_seconds
from perfguard.watch.view.run_view import HistoryPoint

_HEIGHT, _TOP, _FLOOR = 190, 22, 166
_MOST = 120
"""Runs of one picture; the latest ones."""
_SIGNS = {Outcome.REGRESSED.value: ("▲", "slower"), Outcome.IMPROVED.value: ("▼", "faster")}


def moment(t_wall: float | None) -> str:
    """`2026-09-21 14:26 UTC`; `-` for None."""
    if t_wall is None:
        return "-"
    try:
        return datetime.fromtimestamp(t_wall, tz=timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, OSError, ValueError):
        return "-"


def series(case: CaseHistory, *, machine_id: str | None = None, run_id: str = "") -> tuple[Chart, ...]:
    """A picture for each machine.

    Args:
        case: All its points.
        machine_id: The machine whose picture comes first; that of its stored baseline for None.
        run_id: The run whose point is marked.
    """
    first = machine_id or case.baseline_machine_id
    machines = sorted(
        {point.machine_id for point in case.points}, key=lambda known: (known != first, known is None, known or "")
    )
    charts = []
    for machine in machines:
        points = [point for point in case.points if point.machine_id == machine and point.median_s > 0]
        baseline_s = case.baseline_s if machine == case.baseline_machine_id else None
        if points:
            charts.append(_chart(points[-_MOST:], len(points), baseline_s, run_id))
    return tuple(charts)


def _chart(points: Sequence[HistoryPoint], total: int, baseline_s: float | None, run_id: str) -> Chart:
    known = [*([baseline_s] if baseline_s else ()), *(end for point in points for end in point.spread_s)]
    low, high = bounds_of([*known, *(point.median_s for point in points)])
    axis = LinearAxis(low=low, high=high)
    parts = [
        *levels([(_y(axis, tick), format_seconds(tick)) for tick in axis.ticks(4)]),
        *_baseline(axis, baseline_s),
        *_changes(points),
        *(part for index in range(len(points)) for part in _point(points, index, axis, run_id)),
        *_dates(points),
    ]
    latest = f"the latest {len(points)} of {total} runs" if total > len(points) else format_count(total, "run")
    return Chart(
        kind="history",
        title=f"Since when? On {points[0].machine_id or 'an unknown machine'}",
        figure=picture(f"Median of {latest}, oldest first", _HEIGHT, parts),
        legend=_legend(points, baseline_s, run_id),
        note=f"{latest}, oldest first: median of an iteration in the candidate and its spread between blocks. Times of "
        "different days hold the host's changes, too; what the code did is in each run's own pairs.",
        data=_data(points),
    )


def _y(axis: LinearAxis, value_s: float) -> float:
    return _FLOOR - axis.at(value_s) * (_FLOOR - _TOP)


def _x(points: Sequence[HistoryPoint], index: int) -> float:
    return 0.1 + 0.87 * (index + 0.5) / len(points)


def _baseline(axis: LinearAxis, baseline_s: float | None) -> list[Element]:
    if not baseline_s:
        return []
    y = _y(axis, baseline_s)
    return [element("line", x1="0%", x2="100%", y1=y, y2=y, class_="stored")]


def _changes(points: Sequence[HistoryPoint]) -> list[Element]:
    """A line where the software is another one than in the run before."""
    parts = []
    for index, change in enumerate(changes_before(points)):
        if "S" in change:
            x = percent((_x(points, index - 1) + _x(points, index)) / 2)
            parts.append(element("line", x1=x, x2=x, y1=12, y2=_FLOOR, class_="stage"))
            parts.append(element("text", "S", x=x, y=10, text_anchor="middle", class_="tick"))
    return parts


def _point(points: Sequence[HistoryPoint], index: int, axis: LinearAxis, run_id: str) -> Iterable[Element]:
    point = points[index]
    x, y = percent(_x(points, index)), _y(axis, point.median_s)
    ends = point.spread_s
    if ends:
        yield element("line", x1=x, x2=x, y1=_y(axis, ends[0]), y2=_y(axis, ends[1]), class_="whisker")
    said = f", {point.outcome}" if point.outcome else ""
    title = element("title", f"{moment(point.t_wall)}, run {point.run_id}: {format_seconds(point.median_s)}{said}")
    if point.run_id == run_id:
        yield element("circle", cx=x, cy=y, r=8, class_="this-run")
    sign = _SIGNS.get(point.outcome or "")
    if sign is None:
        yield element("circle", title, cx=x, cy=y, r=4, class_="point candidate")
    else:
        yield element("text", title, sign[0], x=x, y=y + 4, text_anchor="middle", class_=f"sign {sign[1]}")


def _dates(points: Sequence[HistoryPoint]) -> list[Element]:
    first, last = (moment(point.t_wall).partition(" ")[0] for point in (points[0], points[-1]))
    texts = [element("text", first, x=percent(_x(points, 0)), y=_HEIGHT - 6, text_anchor="start", class_="tick")]
    if last != first:
        x = percent(_x(points, len(points) - 1))
        texts.append(element("text", last, x=x, y=_HEIGHT - 6, text_anchor="end", class_="tick"))
    return texts


def _legend(points: Sequence[HistoryPoint], baseline_s: float | None, run_id: str) -> tuple[tuple[str, str], ...]:
    found = [("key-run", "run")]
    outcomes = [outcome for outcome in _SIGNS if any(point.outcome == outcome for point in points)]
    found += [(f"key-sign {_SIGNS[outcome][1]}", f"{_SIGNS[outcome][0]} {outcome}") for outcome in outcomes]
    if any(point.run_id == run_id for point in points):
        found.append(("key-this", "this run"))
    if baseline_s:
        found.append(("key-stored", f"stored baseline, {format_seconds(baseline_s)}"))
    if any("S" in change for change in changes_before(points)):
        found.append(("key-stage", "S: other software from here on"))
    return tuple(found)


def _data(points: Sequence[HistoryPoint]) -> Table:
    rows = (
        (
            Cell(content=moment(point.t_wall), sort=point.t_wall),
            Cell(content=point.run_id),
            *numbers(
                (format_seconds(point.median_s), point.median_s), (format_ratio(point.spread_ratio), point.spread_ratio)
            ),
            Cell(content=point.outcome or "-"),
            Cell(content=short_source(point.source_id, point.commit)),
        )
        for point in reversed(points)
    )
    columns = ("date", "run", ">median", ">spread", "verdict", "source")
    return Table(columns=columns, rows=tuple(rows), is_sortable=True)
