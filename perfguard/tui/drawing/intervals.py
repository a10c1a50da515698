"""An effect with its interval as a bar on a common axis: the column of a table, the row of a forest plot."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfguard.report.scales import ratio_of
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.grid import Grid, position
from perfguard.tui.drawing.spans import EMPTY, Line, Role, Span, line
from perfguard.units import format_change
from perfguard.watch.view.run_view import CaseView

_NARROWEST = 3
"""Columns below which an axis says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectAxis:
    """A symmetric axis of effects, the same for all rows of a table."""

    limit_ratio: float
    """Effect at its ends; what lies beyond is drawn as an arrow."""
    margin_ratio: float | None = None
    """Edges of what counts as unchanged; None where they are not drawn."""

    def cell(self, ratio: float, cells: int) -> int:
        """Cell of an effect."""
        return position(ratio, -self.limit_ratio, self.limit_ratio, cells)


def interval_bar(case: CaseView, width: int, axis: EffectAxis, glyphs: Glyphs) -> Line:
    """`      │  ╺━●━╸   `: where the effect is, and how sure that is."""
    if width < _NARROWEST:
        return EMPTY
    grid = Grid(width)
    _draw_axis(grid, axis, glyphs)
    if case.log_ratio is not None and not math.isnan(case.log_ratio):
        role = role_of_interval(case)
        ends = ends_of(case)
        if ends is not None:
            _draw_bar(grid, ends, axis, glyphs, role=role)
        _draw_point(grid, ratio_of(case.log_ratio), axis, glyphs, role=role)
    return grid.line()


def axis_line(width: int, axis: EffectAxis) -> Line:
    """`-5 %      0      +5 %`: what the ends and the middle of the bars stand for."""
    left, right = format_limit(-axis.limit_ratio), format_limit(axis.limit_ratio)
    if width < len(right) + 1:
        return EMPTY
    grid = Grid(width)
    if width < len(left) + len(right) + 4:
        grid.write((width - len(right)) // 2, 0, f"±{right[1:]}", Role.AXIS)
        return grid.line()
    grid.write(0, 0, left, Role.AXIS)
    grid.write(width - len(right), 0, right, Role.AXIS)
    grid.write(axis.cell(0.0, width), 0, "0", Role.AXIS)
    return grid.line()


def format_limit(ratio: float) -> str:
    """`+5 %`; full percents need no digits."""
    percent = ratio * 100
    return f"{percent:+.0f} %" if abs(percent) >= 1 else f"{percent:+.1f} %"


def role_of_interval(case: CaseView) -> Role:
    """Slower or faster where the whole interval is on one side of zero; else nothing is said."""
    if case.lower is not None and case.lower > 0:
        return Role.SLOWER
    if case.upper is not None and case.upper < 0:
        return Role.FASTER
    return Role.SAME


def ends_of(case: CaseView) -> tuple[float, float] | None:
    """Both ends of the interval as ratios; None where one is unknown."""
    if case.lower is None or case.upper is None or not (math.isfinite(case.lower) and math.isfinite(case.upper)):
        return None
    return ratio_of(case.lower), ratio_of(case.upper)


def effect_text(case: CaseView) -> str:
    """`+6.2 % [5.1, 7.4]`, the interval left out where it is unknown; `-` without an effect."""
    if case.log_ratio is None:
        return "-"
    return format_change(ratio_of(case.log_ratio), *(ends_of(case) or ()))


def effect_span(case: CaseView) -> Span:
    """The effect alone, in the role of its interval."""
    text = "-" if case.log_ratio is None else format_change(ratio_of(case.log_ratio))
    return Span(text, role_of_interval(case) if case.log_ratio is not None else Role.MUTED)


def interval_line(case: CaseView) -> Line:
    """`[5.1, 7.4]`, percents; empty where it is unknown."""
    text = effect_text(case)
    start = text.find("[")
    return line(Span(text[start:], Role.MUTED)) if start >= 0 else EMPTY


def _draw_axis(grid: Grid, axis: EffectAxis, glyphs: Glyphs) -> None:
    if axis.margin_ratio is not None and axis.margin_ratio < axis.limit_ratio:
        for ratio in (-axis.margin_ratio, axis.margin_ratio):
            grid.put(axis.cell(ratio, grid.width), 0, glyphs.margin, Role.AXIS)
    grid.put(axis.cell(0.0, grid.width), 0, glyphs.vertical, Role.AXIS)


def _draw_bar(grid: Grid, ends: tuple[float, float], axis: EffectAxis, glyphs: Glyphs, *, role: Role) -> None:
    """Fill the cells between both ends, the outermost ones by halves."""
    first, last = (axis.cell(end, 2 * grid.width) for end in ends)
    middle = axis.cell(0.0, grid.width)
    for cell in range(first // 2, last // 2 + 1):
        has_left, has_right = first <= 2 * cell, last > 2 * cell
        whole = glyphs.crossing if cell == middle else glyphs.bar
        grid.put(cell, 0, whole if has_left and has_right else glyphs.bar_left if has_left else glyphs.bar_right, role)
    if ends[0] < -axis.limit_ratio:
        grid.put(0, 0, glyphs.clipped_left, role)
    if ends[1] > axis.limit_ratio:
        grid.put(grid.width - 1, 0, glyphs.clipped_right, role)


def _draw_point(grid: Grid, ratio: float, axis: EffectAxis, glyphs: Glyphs, *, role: Role) -> None:
    sign = glyphs.point
    if ratio > axis.limit_ratio:
        sign = glyphs.clipped_right
    elif ratio < -axis.limit_ratio:
        sign = glyphs.clipped_left
    grid.put(axis.cell(ratio, grid.width), 0, sign, role)
