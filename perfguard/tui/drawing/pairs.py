"""Paired differences, one point a block, in the order of measuring: shows drift, warm-up and outliers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfguard.report.scales import limit_for, ratio_of
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.grid import Grid, position
from perfguard.tui.drawing.intervals import format_limit
from perfguard.tui.drawing.spans import Line, Role, Span, line
from perfguard.tui.drawing.sparklines import thinned
from perfguard.units import format_count
from perfguard.watch.view.run_view import CaseSeries

_LABELS = 7
"""Columns left of the plot: `-100 %`."""
_WIDEST_STEP = 8
"""Columns from one block to the next."""


def plot_pairs(
    series: CaseSeries, effect_log_ratio: float | None, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """Effect of each block as a point over or under zero, with the case's effect as a dotted line.

    Args:
        series: Its block log-ratios are shown, but those of voided blocks; where there are more than columns, means
            of neighbours.
        effect_log_ratio: What the gate's estimator makes of them; None before it has one.
        width: Columns, labels included.
        height: Lines, title and axis included.
        glyphs: What to draw with.
    """
    pairs = zip(series.blocks, series.block_log_ratios, strict=True)
    shown = [pair for pair in pairs if math.isfinite(pair[1]) and pair[0] not in series.voided]
    blocks, ratios = [number for number, _ in shown], [ratio_of(value) for _, value in shown]
    if not ratios:
        return [line(Span("no pair of blocks yet" if series.baseline_s else "one arm: nothing is paired", Role.MUTED))]
    inner_width, inner_height = width - _LABELS - 1, height - 3
    if inner_width < 5 or inner_height < 3:
        return [line(Span("too little room for this plot; z makes more", Role.MUTED))]
    effect = ratio_of(effect_log_ratio) if effect_log_ratio is not None and math.isfinite(effect_log_ratio) else None
    limit = limit_for(ratios, covered=1.0)
    grid = Grid(width, inner_height + 2)
    _draw_axes(grid, limit, inner_height, glyphs)
    if effect is not None and abs(effect) <= limit:
        _draw_effect(grid, effect, limit, inner_height, glyphs)
    _draw_points(grid, thinned(ratios, inner_width), limit, inner_height, glyphs)
    _write_blocks(grid, blocks, inner_height + 1)
    title = f"{format_count(len(ratios), 'block')}, in order"
    title += f", without {len(series.voided)} voided" if series.voided else ""
    title += f"; {glyphs.dotted * 2} the effect" if effect is not None else ""
    return [line(title), *grid.lines()]


def _draw_axes(grid: Grid, limit: float, height: int, glyphs: Glyphs) -> None:
    middle = height // 2
    for row in range(height):
        grid.put(_LABELS, row, glyphs.vertical, Role.AXIS)
    for column in range(_LABELS + 1, grid.width):
        grid.put(column, middle, glyphs.horizontal, Role.AXIS)
        grid.put(column, height, glyphs.horizontal, Role.AXIS)
    grid.put(_LABELS, height, glyphs.corner, Role.AXIS)
    for row, ratio in ((0, limit), (height - 1, -limit)):
        grid.write(0, row, f"{format_limit(ratio):>{_LABELS}}", Role.AXIS)
    grid.write(0, middle, f"{'0':>{_LABELS}}", Role.AXIS)


def _draw_effect(grid: Grid, effect: float, limit: float, height: int, glyphs: Glyphs) -> None:
    row = _row(effect, limit, height)
    if row != height // 2:
        for column in range(_LABELS + 1, grid.width):
            grid.put(column, row, glyphs.dotted, Role.MUTED)


def _draw_points(grid: Grid, ratios: Sequence[float], limit: float, height: int, glyphs: Glyphs) -> None:
    step = _step(grid, len(ratios))
    for index, ratio in enumerate(ratios):
        role = Role.SLOWER if ratio > 0 else Role.FASTER
        grid.put(_LABELS + 1 + index * step + step // 2, _row(ratio, limit, height), glyphs.point, role)


def _step(grid: Grid, points: int) -> int:
    return max(1, min(_WIDEST_STEP, (grid.width - _LABELS - 1) // points))


def _row(ratio: float, limit: float, height: int) -> int:
    """The middle is zero, whatever the height."""
    half = height // 2
    if ratio >= 0:
        return half - position(ratio, 0, limit, half + 1)
    return half + position(-ratio, 0, limit, height - half)


def _write_blocks(grid: Grid, blocks: Sequence[int], row: int) -> None:
    if not blocks:
        return
    first, last = f"block {blocks[0] + 1}", str(blocks[-1] + 1)
    grid.write(_LABELS + 1, row, first, Role.AXIS)
    step = _step(grid, len(blocks))
    shown = min(len(blocks), grid.width - _LABELS - 1)
    end = min(grid.width - len(last), _LABELS + 1 + (shown - 1) * step + step // 2)
    if len(blocks) > 1 and end > _LABELS + 2 + len(first):
        grid.write(end, row, last, Role.AXIS)
