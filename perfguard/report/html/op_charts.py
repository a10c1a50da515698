"""Where a step's time is and what of it changed: rings, waterfall, icicle, rooflines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perfguard.records.steps.ops import Attribution, ChangeClass
from perfguard.records.steps.profile import Breakdown
from perfguard.records.steps.projection import CaseProjection, RooflineCeilings, RooflinePoint
from perfguard.report.culprits import Part, parts_of
from perfguard.report.html.charts import Cell, Chart, LinearAxis, LogAxis, Table, cells, gridlines, height_of, levels
from perfguard.report.html.svg import Element, element, percent, picture, stretched
from perfguard.report.op_tree import Frame, frames_of, tree_of
from perfguard.report.rows import op_names, percentage, slice_row
from perfguard.report.shown import Number
from perfguard.report.terminal.ops import balance_line
from perfguard.units import (
    format_bandwidth,
    format_change,
    format_count,
    format_flops,
    format_number,
    format_seconds,
    format_share,
    format_signed_seconds,
)

_SHOWN_WEDGES = 9  # Parts of a ring; the others are one part together, which the table lists
_OUTER, _INNER = 98.0, 60.0
_LONGEST_S = 1e15
_WHOLE = 0.99999  # An arc cannot end where it begins


class Wedge(NamedTuple):
    """One part of a ring."""

    name: str
    share: float
    time_s: float


def donuts(breakdown: Breakdown) -> tuple[Chart, ...]:
    """Rings by kind of work with its direction, and by phase; each adds up to the whole step.

    Nothing where the step has no time, or a damaged profile has parts that are none.
    """
    works = [Wedge(f"{s.name} {s.direction}".rstrip(), s.share, s.time_s) for s in breakdown.slices]
    phases = [Wedge(p.phase.value, p.share, p.time_s) for p in breakdown.phases if p.time_s]
    parts = [*works, *phases]
    if breakdown.step_s <= 0 or not all(0 <= part.share <= 1 and 0 <= part.time_s < _LONGEST_S for part in parts):
        return ()
    table = Table(
        columns=("kind of work", "direction", ">calls", ">time", ">share"),
        rows=tuple(cells(*slice_row(piece)) for piece in breakdown.slices),
        is_sortable=True,
    )
    return (
        _donut("work", "What is a step's time spent on?", wedges_of(works), table),
        _donut("phases", "In which phase?", wedges_of(phases), None),
    )


def wedges_of(parts: Sequence[Wedge]) -> list[Wedge]:
    """The largest parts in order; what is beyond is one part."""
    ordered = sorted(parts, key=lambda part: (-part.share, part.name))
    if len(ordered) <= _SHOWN_WEDGES:
        return ordered
    shown, rest = ordered[: _SHOWN_WEDGES - 1], ordered[_SHOWN_WEDGES - 1 :]
    return [*shown, Wedge("further kinds", math.fsum(p.share for p in rest), math.fsum(p.time_s for p in rest))]


def _donut(kind: str, title: str, wedges: Sequence[Wedge], data: Table | None) -> Chart:
    label = f"{title} " + ", ".join(f"{wedge.name} {percentage(wedge.share)}" for wedge in wedges)
    return Chart(
        kind=f"donut-{kind}",
        title=title,
        figure=element(
            "svg", *_ring(wedges), viewBox="-100 -100 200 200", width=200, height=200, class_="donut", role="img",
            aria_label=label,
        ),
        legend=tuple(
            (f"key-part part-{index}", f"{wedge.name}: {percentage(wedge.share)}, {format_seconds(wedge.time_s)}")
            for index, wedge in enumerate(wedges)
        ),
        note="Of a profiled step, in which the profiler's own cost is.",
        data=data,
    )  # fmt: skip


def _ring(wedges: Sequence[Wedge]) -> Iterator[Element]:
    at = 0.0
    for index, wedge in enumerate(wedges):
        title = element("title", f"{wedge.name}: {percentage(wedge.share)}")
        yield element("path", title, d=arc(at, min(at + wedge.share, at + _WHOLE)), class_=f"part-{index}")
        at += wedge.share
    total = format_seconds(math.fsum(wedge.time_s for wedge in wedges))
    yield element("text", total, x=0, y=0, text_anchor="middle", class_="donut-total")
    yield element("text", "a step", x=0, y=18, text_anchor="middle", class_="tick")


def arc(start: float, end: float) -> str:
    """A part of a ring, clockwise from the top; shares of the whole."""
    (ax, ay), (bx, by) = ((math.sin(2 * math.pi * at), -math.cos(2 * math.pi * at)) for at in (start, end))
    large = 1 if end - start > 0.5 else 0
    return (
        f"M{ax * _OUTER:.2f} {ay * _OUTER:.2f}A{_OUTER:g} {_OUTER:g} 0 {large} 1 {bx * _OUTER:.2f} {by * _OUTER:.2f}"
        f"L{bx * _INNER:.2f} {by * _INNER:.2f}A{_INNER:g} {_INNER:g} 0 {large} 0 {ax * _INNER:.2f} {ay * _INNER:.2f}Z"
    )


_BAR = 24
_NOTHING = 1e-6  # Parts of the difference that are smaller than this share of it are rounding


def waterfall(attribution: Attribution) -> Chart | None:
    """From the baseline's step to the candidate's, part by part, as a table with a bar in each row.

    None where the steps' difference is unknown.
    """
    balance = attribution.balance
    if not all(math.isfinite(value) for value in (balance.baseline_s, balance.candidate_s, balance.delta_s)):
        return None
    parts = all_parts(attribution)
    ends = [balance.baseline_s]
    for part in parts:
        ends.append(ends[-1] + part.value_s)
    low, high = min(*ends, balance.candidate_s), max(*ends, balance.candidate_s)
    room = (high - low) * 0.06 or abs(high) * 0.01 or 1.0
    axis = LinearAxis(low=max(0.0, low - 4 * room), high=high + room)
    # Of a difference that is within its noise nothing is a part.
    whole_s = 0.0 if balance.is_in_doubt else balance.delta_s
    begin = f" Bars begin at {format_seconds(axis.low)}, not at zero." if axis.low > 0 else ""
    return Chart(
        kind="waterfall",
        title="Which ops?",
        figure=Table(
            columns=("part of a step", "from the baseline's step to the candidate's", ">time", ">of the difference"),
            rows=(
                _total("baseline", balance.baseline_s, axis),
                *(_part(part, start, axis, whole_s) for start, part in zip(ends, parts, strict=False)),
                _total("candidate", balance.candidate_s, axis),
            ),
            caption="The difference between the steps, part by part",
            class_="waterfall",
        ),
        note=f"{balance_line(attribution)}.{begin}",
    )


def all_parts(attribution: Attribution) -> list[Part]:
    """Parts whose sum is the difference: those of `parts_of`, and what these leave out because it is small."""
    parts = parts_of(attribution)
    rest = attribution.balance.delta_s - math.fsum(part.value_s for part in parts)
    if abs(rest) > _NOTHING * abs(attribution.balance.delta_s):
        parts.append(Part("smaller parts", rest))
    return parts


def _part(part: Part, start_s: float, axis: LinearAxis, whole_s: float) -> tuple[Cell, ...]:
    class_ = "slower" if part.value_s > 0 else "faster"
    text = format_signed_seconds(part.value_s)
    bar = _bar(start_s, start_s + part.value_s, axis, class_, f"{part.name}: {text}")
    share = format_share(part.value_s / whole_s) if whole_s else "-"
    return _classed((part.name, "name"), (bar, "picture"), (text, f"num {class_}"), (share, "num"))


def _total(name: str, value_s: float, axis: LinearAxis) -> tuple[Cell, ...]:
    text = format_seconds(value_s)
    bar = _bar(axis.low, value_s, axis, name, f"{name}: {text}")
    return _classed((name, "name total"), (bar, "picture"), (text, "num total"), ("", "num"))


def _classed(*parts: tuple[str | Element, str]) -> tuple[Cell, ...]:
    return tuple(Cell(content=content, class_=class_) for content, class_ in parts)


def _bar(from_s: float, to_s: float, axis: LinearAxis, class_: str, label: str) -> Element:
    left, right = sorted((axis.at(from_s), axis.at(to_s)))
    width = percent(max(0.002, right - left))
    bar = element("rect", x=percent(left), width=width, y=5, height=_BAR - 10, class_=f"bar {class_}")
    return picture(label, _BAR, [bar])


FRAME = 24  # Height of a level, pixels
_MOST_FRAMES = 400  # The widest ones; of a step with more, the others are hardly wider than a pixel
_DEEPEST = 14
_CHANGES = ((0.25, 3), (0.1, 2), (0.02, 1))
"""From so much of its own time on, a frame's colour has so many of three strengths."""
_SHOWN_ELIDED = 40


class _Placed(NamedTuple):
    level: int
    left: float  # Share of the whole width
    width: float
    frame: Frame


def icicle(attribution: Attribution) -> Chart | None:
    """Phase, module, op, as wide as the candidate's time in them, coloured by what changed; None without ops.

    Where a page would grow too large, the widest frames stay: none is wider than the one that calls it.
    """
    root = frames_of(tree_of(attribution.deltas), "step")
    if root.value_s <= 0:
        return None
    everything = sorted(_placed(root), key=lambda placed: placed[:2])
    widest = sorted(everything, key=lambda placed: -placed.width)[:_MOST_FRAMES]
    frames = sorted(widest, key=lambda placed: placed[:2])
    hidden = len(everything) - len(frames)
    left_out = f" {format_count(hidden, 'frame')} too narrow to be seen are left out." if hidden else ""
    return Chart(
        kind="icicle",
        title="Where in the step?",
        figure=picture(
            f"Icicle of {format_count(len(frames), 'frame')} of a step",
            (1 + max(placed.level for placed in frames)) * FRAME,
            [_drawn(placed, number) for number, placed in enumerate(frames)],
            class_="plot icicle",
            role="group",
        ),
        legend=(("key-slower", "+ slower"), ("key-faster", "- faster"), ("key-same", "as before")),
        note="Width: time in the candidate's step. Each row is called by the one above: phase, module, op, shapes. "
        f"Stronger colour: larger part of the frame's own time. What only the baseline does is listed below.{left_out}",
    )


def elided(attribution: Attribution) -> Table | None:
    """Ops that only the baseline executes, which have no width in the icicle; None where there are none."""
    gone = [delta for delta in attribution.deltas if delta.change is ChangeClass.GONE]
    gone.sort(key=lambda delta: (-delta.baseline_s, delta.key.op, delta.key.module, delta.key.shapes))
    more = f"; the longest {_SHOWN_ELIDED} of {len(gone)}" if len(gone) > _SHOWN_ELIDED else ""
    rows = tuple(
        cells(
            *op_names(delta.key)._replace(op=delta.key.op),
            Number(format_number(delta.baseline_calls), delta.baseline_calls),
            Number.of(format_seconds, delta.baseline_s),
        )
        for delta in gone[:_SHOWN_ELIDED]
    )
    columns = ("op", "phase", "module", "tensors", ">calls", ">time in the baseline")
    return Table(columns=columns, rows=rows, caption=f"Only in the baseline{more}", is_sortable=True) if rows else None


def _placed(frame: Frame, *, level: int = 0, left: float = 0.0, width: float = 1.0) -> Iterator[_Placed]:
    """The frame, and all below it."""
    yield _Placed(level, left, width, frame)
    if level + 1 >= _DEEPEST or frame.value_s <= 0:
        return
    for child in frame.below:
        share = width * min(1.0, max(0.0, child.value_s) / frame.value_s)
        if share > 0:
            yield from _placed(child, level=level + 1, left=left, width=share)
        left += share


def _drawn(placed: _Placed, number: int) -> Element:
    frame = placed.frame
    share = abs(frame.delta_s) / frame.value_s if frame.value_s > 0 else 0.0
    strength = next((strength for least, strength in _CHANGES if share > least), 0)
    direction, sign = ("slower", "+ ") if frame.delta_s > 0 else ("faster", "- ")
    class_ = f"{direction}-{strength}" if strength else "same"
    before_s = frame.value_s - frame.delta_s
    part = format_change(frame.delta_s / before_s) if before_s > 0 else "new"
    title = f"{frame.name}: {format_seconds(frame.value_s)}, {format_signed_seconds(frame.delta_s)} ({part})"
    return element(
        "svg",
        element("title", title),
        element("rect", width="100%", height=FRAME - 2, rx=2, class_=f"frame {class_}"),
        element("text", f"{sign if strength else ''}{frame.name}", x=5, y=15, class_="frame-name"),
        x=percent(placed.left), width=percent(placed.width), y=placed.level * FRAME, height=FRAME - 1,
        class_="step-frame", tabindex=0 if number == 0 else -1, role="img",
        data_level=placed.level, data_left=f"{placed.left:.7f}", data_width=f"{placed.width:.7f}",
    )  # fmt: skip


_HEIGHT, _TOP, _FLOOR = 260, 18, 232
_DECADES_BELOW = 1000.0  # Lower end of the picture below the peak, unless a problem is lower
_SHOWN_PROBLEMS = 60
_SMALLEST, _LARGEST = 1e-12, 1e21


def rooflines(projection: CaseProjection) -> tuple[Chart, ...]:
    """The problems of a step below what the CPUs can do at best: one picture for each dtype whose peak is known."""
    ceilings = projection.ceilings
    if ceilings is None:
        return ()
    points = projection.roofline[:_SHOWN_PROBLEMS]
    dtypes = sorted({point.dtype for point in points})
    charts = (_roofline([point for point in points if point.dtype == dtype], ceilings, dtype) for dtype in dtypes)
    return tuple(chart for chart in charts if chart is not None)


def _roofline(points: Sequence[RooflinePoint], ceilings: RooflineCeilings, dtype: str) -> Chart | None:
    peak = ceilings.flops_per_s.get(dtype)
    shown = [
        (point, point.intensity, point.achieved_flops_per_s)
        for point in points
        if _is_drawable(point.call_s, point.best_s, point.intensity, point.achieved_flops_per_s)
        and point.intensity
        and point.achieved_flops_per_s
    ]
    if not peak or not shown or not _is_drawable(peak, ceilings.bytes_per_s):
        return None
    ridge = peak / ceilings.bytes_per_s
    intensities, rates = [intensity for _, intensity, _ in shown], [rate for _, _, rate in shown]
    x = LogAxis(low=min(ridge / 10, min(intensities) / 2), high=max(ridge * 10, *intensities) * 2)
    y = LogAxis(low=min(peak / _DECADES_BELOW, min(rates) / 2), high=max(peak, *rates) * 2)
    parts = [
        *gridlines([(x.at(tick), f"{tick:g}") for tick in x.ticks()], _TOP, _FLOOR),
        *levels([(height_of(y, tick, _TOP, _FLOOR), format_flops(tick)) for tick in y.ticks()]),
        stretched(_roof(x, y, peak, ridge), _TOP, _FLOOR, class_="curve roof"),
        *(
            _problem(point, number, percent(x.at(intensity)), height_of(y, rate, _TOP, _FLOOR))
            for number, (point, intensity, rate) in reversed(list(enumerate(shown, 1)))
        ),
    ]
    return Chart(
        kind="roofline",
        title=f"How far from what these CPUs can do? {dtype}",
        figure=picture(f"Roofline of {dtype}: {len(shown)} problems below {format_flops(peak)}", _HEIGHT, parts),
        note=f"Peak {format_flops(peak)}, memory {format_bandwidth(ceilings.bytes_per_s)}, "
        f"{format_count(ceilings.threads, 'thread')}; ridge at {ridge:.1f} FLOP a byte. Across: FLOP a byte. "
        "Up: FLOP a second. The numbers are the rows of the table below.",
        data=Table(
            columns=(">no.", "op", "tensors", ">calls", ">time a step", ">rate", ">of the ceiling", ">of it alone",
                     "bound by"),
            rows=tuple(_problem_cells(point, number) for number, (point, _, _) in enumerate(shown, 1)),
            is_sortable=True,
        ),
    )  # fmt: skip


def _is_drawable(*values: float | None) -> bool:
    """Whether all have a place on a logarithmic axis; a damaged profile may hold any number."""
    return all(value is not None and _SMALLEST < value < _LARGEST for value in values)


def _roof(x: LogAxis, y: LogAxis, peak: float, ridge: float) -> str:
    """From where the memory's slope enters the picture to its right end, in a box of 1000 by 1000."""
    bandwidth = peak / ridge
    start = max(x.low, y.low / bandwidth)
    corners = ((start, start * bandwidth), (ridge, peak), (x.high, peak))
    return "M" + "L".join(f"{x.at(a) * 1000:.1f} {1000 - y.at(b) * 1000:.1f}" for a, b in corners)


def _problem(point: RooflinePoint, number: int, x: str, y: float) -> Element:
    return element(
        "g",
        element("title", f"{number}. {point.name} {point.detail}: {format_flops(point.achieved_flops_per_s)}"),
        element("circle", cx=x, cy=y, r=8, class_="problem"),
        element("text", str(number), x=x, y=y + 4, text_anchor="middle", class_="problem-number"),
    )


def _problem_cells(point: RooflinePoint, number: int) -> tuple[Cell, ...]:
    return cells(
        Number.whole(number),
        point.name,
        Cell(content=point.detail, class_="tensors"),
        Number(format_number(point.calls), point.calls),
        Number.of(format_seconds, point.calls * point.call_s),
        Number.of(format_flops, point.achieved_flops_per_s),
        Number.of(format_share, point.share_ratio),
        Number.of(format_share, point.alone_share_ratio),
        point.roof.value,
    )
