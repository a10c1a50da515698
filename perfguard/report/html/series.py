"""One case over the recorded runs, one picture for each machine: times of different machines say nothing together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from perfguard.records.history import HistoryPoint
from perfguard.records.verdict import Outcome
from perfguard.report.case_history import CaseHistory, changes_before, short_source
from perfguard.report.html.charts import Cell, Chart, LinearAxis, Table, cells, height_of, levels
from perfguard.report.html.svg import Element, element, percent, picture
from perfguard.report.rows import MARKS
from perfguard.report.scales import bounds_of
from perfguard.report.shown import Number
from perfguard.units import format_count, format_ratio, format_seconds

_HEIGHT, _TOP, _FLOOR = 190, 22, 166
_MOST = 120  # Runs of one picture; the latest ones
_CHANGED = {outcome.value: MARKS[outcome] for outcome in (Outcome.REGRESSED, Outcome.IMPROVED)}


def moment(t_wall: float | None) -> str:
    """`2026-09-21 14:26 UTC`; `-` for None."""
    if t_wall is None:
        return "-"
    try:
        return datetime.fromtimestamp(t_wall, tz=timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, OSError, ValueError):
        return "-"


def series(case: CaseHistory, *, machine_id: str | None = None, run_id: str = "") -> tuple[Chart, ...]:
    """Medians over the runs, a picture for each machine: times of different machines say nothing together.

    The picture of `machine_id` comes first, that of the stored baseline for None; the point of `run_id` is marked.
    """
    first = machine_id or case.baseline_machine_id
    charts = []
    for machine in sorted({point.machine_id for point in case.points}, key=lambda m: (m != first, m is None, m or "")):
        points = [point for point in case.points if point.machine_id == machine and point.median_s > 0]
        baseline_s = case.baseline_s if machine == case.baseline_machine_id else None
        if points:
            charts.append(_chart(points[-_MOST:], len(points), baseline_s, run_id))
    return tuple(charts)


def _chart(points: Sequence[HistoryPoint], total: int, baseline_s: float | None, run_id: str) -> Chart:
    known = [*([baseline_s] if baseline_s else ()), *(end for point in points for end in point.spread_s)]
    low, high = bounds_of([*known, *(point.median_s for point in points)])
    axis = LinearAxis(low=low, high=high)
    stored = _y(axis, baseline_s) if baseline_s else None
    parts = [
        *levels([(_y(axis, tick), format_seconds(tick)) for tick in axis.ticks(4)]),
        *([element("line", x1="0%", x2="100%", y1=stored, y2=stored, class_="stored")] if baseline_s else ()),
        *_software_changes(points),
        *(part for index in range(len(points)) for part in _point(points, index, axis, run_id)),
        *_dates(points),
    ]
    latest = f"the latest {len(points)} of {total} runs" if total > len(points) else format_count(total, "run")
    outcomes = {point.outcome for point in points}
    legend = [("key-run", "run")]
    legend += [
        (f"key-sign {mark.class_}", f"{mark.sign} {word}") for word, mark in _CHANGED.items() if word in outcomes
    ]
    if any(point.run_id == run_id for point in points):
        legend.append(("key-this", "this run"))
    if baseline_s:
        legend.append(("key-stored", f"stored baseline, {format_seconds(baseline_s)}"))
    if any("S" in change for change in changes_before(points)):
        legend.append(("key-stage", "S: other software from here on"))
    rows = (
        cells(
            Cell(content=moment(point.t_wall), sort=point.t_wall),
            point.run_id,
            Number.of(format_seconds, point.median_s),
            Number.of(format_ratio, point.spread_ratio),
            point.outcome or "-",
            short_source(point.source_id, point.commit),
        )
        for point in reversed(points)
    )
    columns = ("date", "run", ">median", ">spread", "verdict", "source")
    return Chart(
        kind="history",
        title=f"Since when? On {points[0].machine_id or 'an unknown machine'}",
        figure=picture(f"Median of {latest}, oldest first", _HEIGHT, parts),
        legend=tuple(legend),
        note=f"{latest}, oldest first: median of an iteration in the candidate and its spread between blocks. Times of "
        "different days hold the host's changes, too; what the code did is in each run's own pairs.",
        data=Table(columns=columns, rows=tuple(rows), is_sortable=True),
    )


def _y(axis: LinearAxis, value_s: float) -> float:
    return height_of(axis, value_s, _TOP, _FLOOR)


def _x(points: Sequence[HistoryPoint], index: int) -> float:
    return 0.1 + 0.87 * (index + 0.5) / len(points)


def _software_changes(points: Sequence[HistoryPoint]) -> Iterable[Element]:
    """A line where the software is another one than in the run before."""
    for index, change in enumerate(changes_before(points)):
        if "S" in change:
            x = percent((_x(points, index - 1) + _x(points, index)) / 2)
            yield element("line", x1=x, x2=x, y1=12, y2=_FLOOR, class_="stage")
            yield element("text", "S", x=x, y=10, text_anchor="middle", class_="tick")


def _point(points: Sequence[HistoryPoint], index: int, axis: LinearAxis, run_id: str) -> Iterable[Element]:
    point = points[index]
    x, y = percent(_x(points, index)), _y(axis, point.median_s)
    if ends := point.spread_s:
        yield element("line", x1=x, x2=x, y1=_y(axis, ends[0]), y2=_y(axis, ends[1]), class_="whisker")
    said = f", {point.outcome}" if point.outcome else ""
    title = element("title", f"{moment(point.t_wall)}, run {point.run_id}: {format_seconds(point.median_s)}{said}")
    if point.run_id == run_id:
        yield element("circle", cx=x, cy=y, r=8, class_="this-run")
    if mark := _CHANGED.get(point.outcome or ""):
        yield element("text", title, mark.sign, x=x, y=y + 4, text_anchor="middle", class_=f"sign {mark.class_}")
    else:
        yield element("circle", title, cx=x, cy=y, r=4, class_="point candidate")


def _dates(points: Sequence[HistoryPoint]) -> list[Element]:
    first, last = (moment(point.t_wall).partition(" ")[0] for point in (points[0], points[-1]))
    ends = [(0, first, "start"), (len(points) - 1, last, "end")]
    return [
        element("text", date, x=percent(_x(points, index)), y=_HEIGHT - 6, text_anchor=anchor, class_="tick")
        for index, date, anchor in (ends if last != first else ends[:1])
    ]
