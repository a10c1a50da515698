"""The paper's charts, each with the paper's own figures beside those of this machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from perfguard.report.html.charts import Cell, Chart, LinearAxis, Table, cells, gridlines, height_of, levels
from perfguard.report.html.op_charts import arc
from perfguard.report.html.svg import Element, element, percent, picture
from perfguard.report.scales import nice_above
from perfguard.report.shown import Number
from perfguard.report.study.rows import (
    VARIANT_NAMES,
    BarRow,
    CaseStudyRow,
    KernelRow,
    SliceRow,
    kernel_rows,
    phase_rows,
    slice_rows,
)
from perfguard.study.evidence import StudyEvidence
from perfguard.study.items import VARIANTS
from perfguard.study.paper import Convergence, Paper
from perfguard.study.shapes.scaling import fitted
from perfguard.units import format_factor, format_seconds, format_share

_COLOURS = 9  # Classes `part-0` to `part-8`
_WHOLE = 0.99999  # An arc cannot end where it begins
_SHOWN = 0.005  # Parts of a donut below this are too thin to be seen
_BAR_ROW = 26
_TICK = 0.25  # Of the axis of kernel times
_PANEL, _TOP, _FLOOR = 230, 14.0, 178.0  # Pixels of a chart with upright bars
_KEY = (("key-paper", "paper"), ("key-here", "this machine"))


def donut_charts(evidence: StudyEvidence, paper: Paper) -> list[Chart]:
    """Fig. 2: two rings a model, with one colour a kind of work."""
    charts = []
    for published in paper.donuts:
        donut = evidence.donut(published.model)
        rows = slice_rows(published.slices, donut)
        name = published.label
        centre = "not measured" if donut is None else f"{format_seconds(donut.step_s)} a step"
        label = f"{name}: " + ", ".join(
            f"{r.name} {format_share(r.paper)} in the paper, {format_share(r.here)} here" for r in rows
        )
        charts.append(
            Chart(
                kind="study-donut",
                title=name,
                figure=element(
                    "svg",
                    *_ring(rows, [row.paper for row in rows], -115.0, ("paper", "")),
                    *_ring(rows, [row.here for row in rows], 115.0, ("here", centre)),
                    viewBox="-215 -100 430 200", width="100%", height=200, class_="donut", role="img", aria_label=label,
                ),
                legend=tuple(
                    (f"key-part part-{min(index, _COLOURS - 1)}", _slice_text(row)) for index, row in enumerate(rows)
                ),
                note="" if donut is None else _whole_text(donut.breakdown.step_s, sum(s.time_s for s in donut.slices)),
                data=_step_table(evidence, published.model),
            )
        )  # fmt: skip
    return charts


def _slice_text(row: SliceRow) -> str:
    return f"{row.name}: paper {_or_dash(row.paper)}, here {_or_dash(row.here)}"


def _or_dash(share: float) -> str:
    return format_share(share) if share else "-"


def _whole_text(step_s: float, library_s: float) -> str:
    share = min(1.0, library_s / step_s) if step_s else 0.0
    return f"Of the time that oneDNN and MKL report, {format_share(share)} of the profiled step here."


def _ring(rows: Sequence[SliceRow], shares: Sequence[float], x: float, centre: tuple[str, str]) -> Iterator[Element]:
    at = 0.0
    parts = []
    for index, (row, share) in enumerate(zip(rows, shares, strict=True)):
        if share >= _SHOWN:
            title = element("title", f"{row.name}: {format_share(share)}")
            path = arc(at, min(at + share, at + _WHOLE))
            parts.append(element("path", title, d=path, class_=f"part-{min(index, _COLOURS - 1)}"))
        at += share
    if not parts:
        parts.append(element("circle", cx=0, cy=0, r=79, class_="donut-none"))
    lines = [element("text", centre[0], x=0, y=4, text_anchor="middle", class_="donut-total")]
    if centre[1]:
        lines.append(element("text", centre[1], x=0, y=22, text_anchor="middle", class_="tick"))
    yield element("g", *parts, *lines, transform=f"translate({x:g} 0)")


def _step_table(evidence: StudyEvidence, model: str) -> Table | None:
    """The whole step here, with what calls no library."""
    donut = evidence.donut(model)
    if donut is None:
        return None
    rows = (
        cells(s.name, s.direction, Number.of(format_seconds, s.time_s), Number.of(format_share, s.share))
        for s in donut.breakdown.slices
    )
    columns = ("kind of work", "direction", ">time", ">share of the step")
    return Table(columns=columns, rows=tuple(rows), caption=donut.case_id, is_sortable=True)


def ratio_bars(kind: str, title: str, rows: Sequence[BarRow], *, note: str) -> Chart:
    """A row for each ratio: two bars on one axis from 0, the machine's with its interval."""
    most = max([1.0, *(r.paper or 0.0 for r in rows), *(r.ends[1] if r.ends else (r.factor or 0.0) for r in rows)])
    axis = LinearAxis(low=0.0, high=most * 1.04)
    return Chart(
        kind=kind,
        title=title,
        figure=Table(
            columns=("", f"0 to {format_factor(axis.high)}", ">paper", ">here", ">95 % interval"),
            rows=tuple(
                cells(
                    Cell(content=row.name, class_="name"),
                    Cell(content=_bars(row, axis), class_="bars"),
                    Number.of(format_factor, row.paper),
                    Number.of(format_factor, row.factor),
                    Number(row.interval),
                )
                for row in rows
            ),
            class_="study-bars",
        ),
        legend=(*_KEY, ("key-interval", "95 % interval")),
        note=note,
    )


def _bars(row: BarRow, axis: LinearAxis) -> Element:
    parts = [element("line", x1=percent(axis.at(1)), x2=percent(axis.at(1)), y1=0, y2=_BAR_ROW, class_="grid")]
    if row.paper is not None:
        parts.append(element("rect", x=0, y=3, width=percent(axis.at(row.paper)), height=8, class_="bar-paper"))
    if row.factor is not None:
        parts.append(element("rect", x=0, y=14, width=percent(axis.at(row.factor)), height=8, class_="bar-here"))
    if row.ends is not None:
        lower, upper = (percent(axis.at(end)) for end in row.ends)
        parts.append(element("line", x1=lower, x2=upper, y1=18, y2=18, class_="whisker"))
    label = f"{row.name}: {format_factor(row.paper)} in the paper, {format_factor(row.factor)} here"
    return picture(label, _BAR_ROW, parts)


def phases_chart(evidence: StudyEvidence, paper: Paper) -> Chart:
    """Fig. 4."""
    return ratio_bars(
        "study-phases",
        "Time with 264 classes over time with 91",
        phase_rows(evidence, paper),
        note="The line is at 1: as long as with few classes. The steps here load nothing.",
    )


def cases_chart(rows: Sequence[CaseStudyRow]) -> Chart:
    """Gains of the case studies that have one on either side."""
    shown = [row.bar for row in rows if row.bar.paper is not None or row.bar.here is not None]
    return ratio_bars(
        "study-cases", "How many times as fast", shown, note="The line is at 1: no gain. Right of it is faster."
    )


def kernel_charts(evidence: StudyEvidence, paper: Paper) -> list[Chart]:
    """Fig. 6, there and here, on one axis."""
    rows = kernel_rows(evidence, paper)
    values = [value for row in rows for value in (row.bar.paper, row.bar.factor, *(row.bar.ends or ()))]
    most = max(value for value in values if value is not None)
    high = math.ceil(most * 1.02 / _TICK) * _TICK
    here = [row.bar.factor for row in rows]
    charts = [_grouped("Paper", rows, [row.bar.paper for row in rows], high, with_intervals=False)]
    if any(value is not None for value in here):
        charts.append(_grouped("This machine", rows, here, high, with_intervals=True))
    return charts


def _grouped(
    title: str, rows: Sequence[KernelRow], values: Sequence[float | None], high: float, *, with_intervals: bool
) -> Chart:
    axis = LinearAxis(low=0.0, high=high)
    parts = list(levels((height_of(axis, tick, _TOP, _FLOOR), f"{tick:g}") for tick in axis.ticks()))
    groups = len(rows) // len(VARIANTS)
    for index, (row, value) in enumerate(zip(rows, values, strict=True)):
        group, place = divmod(index, len(VARIANTS))
        left, width = (group + 0.16 + 0.23 * place) / groups, 0.2 / groups
        if value is not None:
            y = height_of(axis, value, _TOP, _FLOOR)
            name = element("title", f"{row.bar.name}: {value:.2f}")
            parts.append(
                element(
                    "rect", name, x=percent(left), y=y, width=percent(width), height=_FLOOR - y, class_=f"part-{place}"
                )
            )
        if with_intervals and row.bar.ends is not None:
            lower, upper = (height_of(axis, end, _TOP, _FLOOR) for end in row.bar.ends)
            x = percent(left + width / 2)
            parts.append(element("line", x1=x, x2=x, y1=lower, y2=upper, class_="whisker"))
        if place == 0:
            words = ("forward" if row.is_forward else "backward", row.dtype)
            for line, word in enumerate(words):
                middle = percent((group + 0.5) / groups)
                y = _FLOOR + 18 + 16 * line
                parts.append(element("text", word, x=middle, y=y, text_anchor="middle", class_="tick"))
    label = f"{title}: " + ", ".join(
        f"{row.bar.name} {format_factor(value)}" for row, value in zip(rows, values, strict=True)
    )
    return Chart(
        kind="study-kernels",
        title=title,
        figure=picture(label, _PANEL, parts),
        legend=tuple((f"key-part part-{index}", VARIANT_NAMES[name]) for index, name in enumerate(VARIANTS)),
        note="Time over that of the default's forward in float32; backward is forward and backward, less forward.",
    )


def ranks_table(evidence: StudyEvidence, paper: Paper) -> Table:
    """Table 2: the paper's cells, and below them those of this machine."""
    ranks = sorted({count for row in paper.ranks for count in row.ranks} | {cell.ranks for cell in evidence.ranks})
    first = evidence.ranks[0].throughput_per_s if evidence.ranks else math.nan
    own = {(cell.threads, cell.ranks): cell.throughput_per_s / first for cell in evidence.ranks}
    there = {
        (row.threads, count): value
        for row in paper.ranks
        for count, value in zip(row.ranks, row.throughput, strict=True)
    }
    rows = [
        cells(side, Number.whole(threads), *(Number.of(format_factor, table.get((threads, count))) for count in ranks))
        for side, table in (("paper", there), ("here", own))
        for threads in sorted({threads for threads, _ in table})
    ]
    columns = ("", ">threads a rank", *(f">{count} rank{'' if count == 1 else 's'}" for count in ranks))
    return Table(columns=columns, rows=tuple(rows), caption="Throughput over that of the first cell")


def convergence_chart(published: Sequence[Convergence]) -> Chart:
    """Fig. 7: points with fitted lines."""
    widest = max(points.batch[-1] / points.batch[0] for points in published)
    highest = max(max(points.ratio) for points in published)
    x_axis = LinearAxis(low=0.0, high=nice_above(widest / 6) * 6 if widest < 48 else math.ceil(widest / 10) * 10.0)
    y_axis = LinearAxis(low=0.0, high=math.ceil(highest) + 0.0)
    top, floor, height = 14.0, 250.0, 290
    parts = list(gridlines(((x_axis.at(tick), f"{tick:g}") for tick in x_axis.ticks(6)), top, floor))
    parts += levels((height_of(y_axis, tick, top, floor), f"{tick:g}") for tick in y_axis.ticks())
    for index, points in enumerate(published):
        slope, intercept = fitted(points)
        ends = (1.0, points.batch[-1] / points.batch[0])
        (x1, y1), (x2, y2) = (
            (percent(x_axis.at(x)), height_of(y_axis, intercept + slope * x, top, floor)) for x in ends
        )
        parts.append(element("line", x1=x1, x2=x2, y1=y1, y2=y2, class_=f"fit line-{index}"))
        for batch, ratio in zip(points.batch, points.ratio, strict=True):
            x = batch / points.batch[0]
            title = element("title", f"{points.benchmark}, batch {batch:,}: {ratio:.3f}")
            y = height_of(y_axis, ratio, top, floor)
            parts.append(element("circle", title, cx=percent(x_axis.at(x)), cy=y, r=4, class_=f"part-{index}"))
    label = "Epochs to converge by batch size: " + ", ".join(
        f"{p.benchmark} {p.ratio[-1]:.2f} at {p.batch[-1] / p.batch[0]:.0f} times the smallest batch" for p in published
    )
    return Chart(
        kind="study-convergence",
        title="Epochs to converge over those at the smallest batch, by batch size over the smallest",
        figure=picture(label, height, parts),
        legend=tuple((f"key-part part-{index}", p.benchmark) for index, p in enumerate(published)),
        note="MLPerf Training's published reference convergence points; lines are least-squares fits.",
        data=Table(
            columns=("benchmark", ">batch", ">over the smallest", ">epochs over the first"),
            rows=tuple(
                cells(p.benchmark, Number.whole(batch), Number.of(format_factor, batch / p.batch[0]),
                      Number.of(format_factor, ratio))
                for p in published
                for batch, ratio in zip(p.batch, p.ratio, strict=True)
            ),
            is_sortable=True,
        ),
    )  # fmt: skip
