"""Both arms' samples as empirical distribution functions: how the whole distribution moved, not only its middle."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from perfguard.report.scales import bounds_of
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.grid import Canvas, Grid
from perfguard.tui.drawing.spans import Line, Role, Span, line, width_of
from perfguard.units import format_seconds
from perfguard.watch.view.run_view import CaseSeries

_LABELS = 5
"""Columns left of the plot: `100 %`."""
_DOTTED = 3
"""One point of so many is drawn of a dotted curve, so that curves can be distinguished without colour."""


def plot_ecdf(series: CaseSeries, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Two curves from 0 to 100 %, with axes and a legend; the outermost hundredth of samples is cut off.

    Args:
        series: Samples of both arms; the baseline may have none.
        width: Columns, labels included.
        height: Lines, axis and legend included.
        glyphs: What to draw with.
    """
    values = sorted(value for value in (*series.baseline_s, *series.candidate_s) if math.isfinite(value))
    if not values:
        return [line(Span("no samples yet", Role.MUTED))]
    inner_width, inner_height = width - _LABELS - 1, height - 3
    if inner_width < 8 or inner_height < 2:
        return [line(Span("too little room for this plot; z makes more", Role.MUTED))]
    low, high = bounds_of(_without_tails(values))
    canvas = Canvas(inner_width, inner_height, glyphs)
    _draw_curve(canvas, series.baseline_s, (low, high), Role.BASELINE, "b")
    _draw_curve(canvas, series.candidate_s, (low, high), Role.CANDIDATE, "c")
    rows = [(*_label(row, inner_height, glyphs), *content) for row, content in enumerate(canvas.lines())]
    head = legend(width, has_baseline=bool(series.baseline_s), glyphs=glyphs)
    return [head, *rows, *_axis(width, low, high, glyphs)]


def legend(width: int, *, has_baseline: bool, glyphs: Glyphs) -> Line:
    """Which curve is which arm, with as many words before that as there is room for."""
    marks = ("b", "c") if glyphs.is_ascii else ("⠂⠂", "⠒⠒")
    arms = line(Span(f"{marks[1]} candidate", Role.CANDIDATE))
    if has_baseline:
        arms = line(Span(f"{marks[0]} baseline", Role.BASELINE), "  ", *arms)
    heads = (line(words, *arms) for words in ("samples of an iteration  ", "samples  "))
    return next((head for head in heads if width_of(head) <= width), arms)


def _without_tails(values: Sequence[float]) -> Sequence[float]:
    tail = len(values) // 100
    return values[tail : len(values) - tail]


def _draw_curve(canvas: Canvas, values: Sequence[float], bounds: tuple[float, float], role: Role, letter: str) -> None:
    """Steps of the curve at every column, joined from one column to the next."""
    ordered = sorted(value for value in values if math.isfinite(value))
    if not ordered:
        return
    is_dotted = role is Role.BASELINE
    heights = [_share_below(ordered, bounds, column / (canvas.columns - 1)) for column in range(canvas.columns)]
    rows = [round(height * (canvas.rows - 1)) for height in heights]
    points = 0
    for column, (before, now) in enumerate(pairwise([rows[0], *rows])):
        for row in range(min(before + 1, now), now + 1):
            points += 1
            if not is_dotted or canvas.columns < 16 or points % _DOTTED == 0:
                canvas.mark(column, row, role, letter)


def _share_below(ordered: Sequence[float], bounds: tuple[float, float], place: float) -> float:
    low, high = bounds
    return bisect_right(ordered, low + place * (high - low)) / len(ordered)


def _label(row: int, height: int, glyphs: Glyphs) -> Line:
    text = {0: "100 %", height // 2: " 50 %", height - 1: "  0 %"}.get(row, "") if height > 2 else ""
    return line(Span(f"{text:>{_LABELS}}{glyphs.vertical}", Role.AXIS))


def _axis(width: int, low: float, high: float, glyphs: Glyphs) -> list[Line]:
    grid = Grid(width, 2)
    grid.write(_LABELS, 0, glyphs.corner + glyphs.horizontal * (width - _LABELS - 1), Role.AXIS)
    left, right = format_seconds(low), format_seconds(high)
    grid.write(_LABELS + 1, 1, left, Role.AXIS)
    if len(left) + len(right) + _LABELS + 2 < width:
        grid.write(width - len(right), 1, right, Role.AXIS)
    return grid.lines()
