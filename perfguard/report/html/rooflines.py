"""Rooflines: the problems of a step below what the CPUs can do at best, one picture for each dtype."""

from __future__ import annotations

from collections.abc import Sequence

from perfguard.records.steps.projection import CaseProjection, RooflineCeilings, RooflinePoint
from perfguard.report.html.axes import LogAxis
from perfguard.report.html.charts import Cell, Chart, Table, gridlines, levels, numbers
from perfguard.report.html.svg import Element, element, percent, picture, stretched
from perfguard.units import format_bandwidth, format_count, format_flops, format_number, format_seconds, format_share

_HEIGHT, _TOP, _FLOOR = 260, 18, 232
_DECADES_BELOW = 1000.0
"""Lower end of the picture below the peak, unless a problem is lower."""
_SHOWN = 60
_SMALLEST, _LARGEST = 1e-12, 1e21


def rooflines(projection: CaseProjection) -> tuple[Chart, ...]:
    """One picture for each dtype whose peak was measured; nothing without ceilings."""
    ceilings = projection.ceilings
    if ceilings is None:
        return ()
    points = projection.roofline[:_SHOWN]
    dtypes = sorted({point.dtype for point in points})
    charts = (_chart([point for point in points if point.dtype == dtype], ceilings, dtype) for dtype in dtypes)
    return tuple(chart for chart in charts if chart is not None)


def _chart(points: Sequence[RooflinePoint], ceilings: RooflineCeilings, dtype: str) -> Chart | None:
    peak = ceilings.flops_per_s.get(dtype)
    timed = [point for point in points if _is_drawable(point.call_s) and _is_drawable(point.best_s)]
    shown = [point for point in timed if _is_drawable(point.intensity) and _is_drawable(point.achieved_flops_per_s)]
    if not peak or not shown or not (_is_drawable(peak) and _is_drawable(ceilings.bytes_per_s)):
        return None
    ridge = peak / ceilings.bytes_per_s
    x, y = _axes(shown, peak, ridge)
    parts = [
        *gridlines([(x.at(tick), f"{tick:g}") for tick in x.ticks()], _FLOOR, top=_TOP),
        *levels([(_y(y, tick), format_flops(tick)) for tick in y.ticks()]),
        stretched(_roof(x, y, peak, ridge), (0, 1), (_TOP, _FLOOR), class_="curve roof"),
        *(_point(point, number, x, y) for number, point in reversed(list(enumerate(shown, 1)))),
    ]
    return Chart(
        kind="roofline",
        title=f"How far from what these CPUs can do? {dtype}",
        figure=picture(f"Roofline of {dtype}: {len(shown)} problems below {format_flops(peak)}", _HEIGHT, parts),
        note=f"Peak {format_flops(peak)}, memory {format_bandwidth(ceilings.bytes_per_s)}, "
        f"{format_count(ceilings.threads, 'thread')}; ridge at {ridge:.1f} FLOP a byte. Across: FLOP a byte. "
        "Up: FLOP a second. The numbers are the rows of the table below.",
        data=_data(shown),
    )


def _is_drawable(value: float | None) -> bool:
    """Whether it has a place on a logarithmic axis; a damaged profile may hold any number."""
    return value is not None and _SMALLEST < value < _LARGEST


def _axes(points: Sequence[RooflinePoint], peak: float, ridge: float) -> tuple[LogAxis, LogAxis]:
    intensities = [point.intensity or ridge for point in points]
    rates = [point.achieved_flops_per_s or peak for point in points]
    x = LogAxis(low=min(ridge / 10, *(value / 2 for value in intensities)), high=max(ridge * 10, *intensities) * 2)
    y = LogAxis(low=min(peak / _DECADES_BELOW, *(rate / 2 for rate in rates)), high=max(peak, *rates) * 2)
    return x, y


def _y(axis: LogAxis, rate: float) -> float:
    return _FLOOR - axis.at(rate) * (_FLOOR - _TOP)


def _roof(x: LogAxis, y: LogAxis, peak: float, ridge: float) -> str:
    """From where the memory's slope enters the picture to its right end, in a box of 1000 by 1000."""
    bandwidth = peak / ridge
    start = max(x.low, y.low / bandwidth)
    corners = ((start, start * bandwidth), (ridge, peak), (x.high, peak))
    return "M" + "L".join(f"{x.at(a) * 1000:.1f} {1000 - y.at(b) * 1000:.1f}" for a, b in corners)


def _point(point: RooflinePoint, number: int, x: LogAxis, y: LogAxis) -> Element:
    share = percent(x.at(point.intensity or x.low))
    height = _y(y, point.achieved_flops_per_s or y.low)
    title = element("title", f"{number}. {point.name} {point.detail}: {format_flops(point.achieved_flops_per_s)}")
    return element(
        "g",
        title,
        element("circle", cx=share, cy=height, r=8, class_="problem"),
        element("text", str(number), x=share, y=height + 4, text_anchor="middle", class_="problem-number"),
    )


def _data(points: Sequence[RooflinePoint]) -> Table:
    rows = (
        (
            *numbers((str(number), float(number))),
            Cell(content=point.name),
            Cell(content=point.detail, class_="tensors"),
            *numbers(
                (format_number(point.calls), point.calls),
                (format_seconds(point.calls * point.call_s), point.calls * point.call_s),
                (format_flops(point.achieved_flops_per_s), point.achieved_flops_per_s),
                (format_share(point.share_ratio), point.share_ratio),
                (format_share(point.alone_share_ratio), point.alone_share_ratio),
            ),
            Cell(content=point.roof.value),
        )
        for number, point in enumerate(points, 1)
    )
    columns = (
        ">no.",
        "op",
        "tensors",
        ">calls",
        ">time a step",
        ">rate",
        ">of the ceiling",
        ">of it alone",
        "bound by",
    )
    return Table(columns=columns, rows=tuple(rows), is_sortable=True)
