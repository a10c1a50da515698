"""A step as rings: by kind of work, and by phase. The shares of a ring add up to the whole step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from perfguard.records.steps.profile import Breakdown, PhaseShare, Slice
from perfguard.report.html.charts import Cell, Chart, Table, numbers
from perfguard.report.html.svg import Element, element
from perfguard.units import format_number, format_seconds

_SHOWN = 9
"""Parts of a ring; the others are one part together, which the table tells apart."""
_OUTER, _INNER = 98.0, 60.0
_HOW_TO_READ = "Of a profiled step, in which the profiler's own cost is."
_LONGEST_S = 1e15
_WHOLE = 0.99999
"""An arc cannot end where it begins."""


class Wedge(NamedTuple):
    """One part of a ring."""

    name: str
    share: float
    time_s: float


def donuts(breakdown: Breakdown) -> tuple[Chart, ...]:
    """By kind of work with its direction, and by phase; nothing where the step has no time, or the parts are none."""
    parts: list[Slice | PhaseShare] = [*breakdown.slices, *breakdown.phases]
    if breakdown.step_s <= 0 or not all(0 <= part.share <= 1 and 0 <= part.time_s < _LONGEST_S for part in parts):
        return ()
    works = [Wedge(f"{s.name} {s.direction}".rstrip(), s.share, s.time_s) for s in breakdown.slices]
    phases = [Wedge(p.phase.value, p.share, p.time_s) for p in breakdown.phases if p.time_s > 0]
    return (
        _chart("work", "What is a step's time spent on?", works, _work_table(breakdown)),
        _chart("phases", "In which phase?", phases, None),
    )


def wedges_of(parts: Sequence[Wedge], most: int = _SHOWN) -> list[Wedge]:
    """At most so many parts, largest first; what is beyond is one part."""
    ordered = sorted(parts, key=lambda part: (-part.share, part.name))
    if len(ordered) <= most:
        return ordered
    rest = ordered[most - 1 :]
    whole = Wedge("further kinds", math.fsum(p.share for p in rest), math.fsum(p.time_s for p in rest))
    return [*ordered[: most - 1], whole]


def _chart(kind: str, title: str, parts: Sequence[Wedge], data: Table | None) -> Chart:
    wedges = wedges_of(parts)
    ring = element(
        "svg", *_ring(wedges), viewBox="-100 -100 200 200", width=200, height=200, class_="donut", role="img",
        aria_label=f"{title} " + ", ".join(f"{w.name} {w.share * 100:.1f} %" for w in wedges),
    )  # fmt: skip
    return Chart(
        kind=f"donut-{kind}",
        title=title,
        figure=ring,
        legend=tuple(
            (f"key-part part-{index}", f"{wedge.name}: {wedge.share * 100:.1f} %, {format_seconds(wedge.time_s)}")
            for index, wedge in enumerate(wedges)
        ),
        note=_HOW_TO_READ,
        data=data,
    )


def _ring(wedges: Sequence[Wedge]) -> list[Element]:
    parts = []
    at = 0.0
    for index, wedge in enumerate(wedges):
        title = element("title", f"{wedge.name}: {wedge.share * 100:.1f} %")
        parts.append(element("path", title, d=_arc(at, min(at + wedge.share, at + _WHOLE)), class_=f"part-{index}"))
        at += wedge.share
    total_s = math.fsum(wedge.time_s for wedge in wedges)
    parts.append(element("text", format_seconds(total_s), x=0, y=0, text_anchor="middle", class_="donut-total"))
    parts.append(element("text", "a step", x=0, y=18, text_anchor="middle", class_="tick"))
    return parts


def _arc(start: float, end: float) -> str:
    """A part of the ring, clockwise from the top; shares of the whole."""
    (ax, ay), (bx, by) = _place(start), _place(end)
    large = 1 if end - start > 0.5 else 0
    return (
        f"M{ax * _OUTER:.2f} {ay * _OUTER:.2f}A{_OUTER:g} {_OUTER:g} 0 {large} 1 {bx * _OUTER:.2f} {by * _OUTER:.2f}"
        f"L{bx * _INNER:.2f} {by * _INNER:.2f}A{_INNER:g} {_INNER:g} 0 {large} 0 {ax * _INNER:.2f} {ay * _INNER:.2f}Z"
    )


def _place(share: float) -> tuple[float, float]:
    angle = 2 * math.pi * share
    return math.sin(angle), -math.cos(angle)


def _work_table(breakdown: Breakdown) -> Table:
    rows = (
        (
            Cell(content=piece.name),
            Cell(content=piece.direction or "-"),
            *numbers(
                (format_number(piece.calls), piece.calls),
                (format_seconds(piece.time_s), piece.time_s),
                (f"{piece.share * 100:.1f} %", piece.share),
            ),
        )
        for piece in breakdown.slices
    )
    columns = ("kind of work", "direction", ">calls", ">time", ">share")
    return Table(columns=columns, rows=tuple(rows), is_sortable=True)
