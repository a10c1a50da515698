"""Plots of cases: effects with their intervals, distributions, paired differences."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from perfguard.report.scales import bounds_of, limit_for, ratio_of
from perfguard.tui.drawing.grid import NO_ROOM, Canvas, Grid, position, thinned
from perfguard.tui.drawing.spans import EMPTY, Glyphs, Line, Role, Span, fitted, line, width_of
from perfguard.units import format_change, format_count, format_seconds
from perfguard.watch.view.run_view import CaseSeries, CaseView

_NARROWEST = 3  # Columns below which an axis says nothing
_NARROWEST_DENSITIES = 26  # Columns for the labels of both ends
_DENSITY_SAMPLES = 2000  # The latest of each arm: they are drawn again in each look at the run
_ECDF_LABELS = 5  # Columns left of the plot: `100 %`
_DOTTED = 3
"""One point of so many is drawn of a dotted curve, so that curves can be distinguished without colour."""
_PAIR_LABELS = 7  # Columns left of the plot: `-100 %`
_WIDEST_BLOCK = 8  # Columns from one block to the next


class EffectAxis(Struct, frozen=True, kw_only=True):
    """A symmetric axis of effects, the same for all rows of a table."""

    limit_ratio: float  # Effect at its ends; what lies beyond is drawn as an arrow
    margin_ratio: float | None = None  # Edges of what counts as unchanged; None where they are not drawn

    def cell(self, ratio: float, cells: int) -> int:
        """Cell of an effect."""
        return position(ratio, -self.limit_ratio, self.limit_ratio, cells)


def interval_bar(case: CaseView, width: int, axis: EffectAxis, glyphs: Glyphs) -> Line:
    """`      │  ╺━●━╸   `: where the effect is, and how sure that is."""
    if width < _NARROWEST:
        return EMPTY
    grid = Grid(_odd(width))
    margin = axis.margin_ratio
    if margin is not None and margin < axis.limit_ratio:
        grid.fill((axis.cell(-margin, grid.width), axis.cell(margin, grid.width)), [0], glyphs.margin, Role.AXIS)
    grid.put(axis.cell(0.0, grid.width), 0, glyphs.vertical, Role.AXIS)
    if case.log_ratio is not None and not math.isnan(case.log_ratio):
        role = role_of_interval(case)
        ends = ends_of(case)
        if ends is not None:
            _draw_bar(grid, ends, axis, glyphs, role=role)
        ratio = ratio_of(case.log_ratio)
        is_inside = abs(ratio) <= axis.limit_ratio
        sign = glyphs.point if is_inside else glyphs.clipped_right if ratio > 0 else glyphs.clipped_left
        grid.put(axis.cell(ratio, grid.width), 0, sign, role)
    return fitted(grid.line(), width)


def _odd(width: int) -> int:
    """The widest axis whose zero is the middle of a cell."""
    return width - 1 + width % 2


def axis_line(width: int, axis: EffectAxis) -> Line:
    """`-5 %      0      +5 %`: what the ends and the middle of the bars stand for."""
    left, right = format_limit(-axis.limit_ratio), format_limit(axis.limit_ratio)
    if width < len(right) + 1:
        return EMPTY
    grid = Grid(_odd(width))
    if width < len(left) + len(right) + 4:
        grid.write((width - len(right)) // 2, 0, f"±{right[1:]}", Role.AXIS)
        return fitted(grid.line(), width)
    grid.write(0, 0, left, Role.AXIS)
    grid.write(grid.width - len(right), 0, right, Role.AXIS)
    grid.write(axis.cell(0.0, grid.width), 0, "0", Role.AXIS)
    return fitted(grid.line(), width)


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


def role_of_candidate(case: CaseView) -> Role:
    """Role of the candidate's samples: that of the effect where it is clear."""
    role = role_of_interval(case)
    return Role.CANDIDATE if role is Role.SAME else role


def ends_of(case: CaseView) -> tuple[float, float] | None:
    """Both ends of the interval as ratios; None where one is unknown."""
    if case.lower is None or case.upper is None or not (math.isfinite(case.lower) and math.isfinite(case.upper)):
        return None
    return ratio_of(case.lower), ratio_of(case.upper)


def effect_text(case: CaseView) -> str:
    """`+6.20 % [5.11, 7.40]`, the interval left out where it is unknown; `-` without an effect."""
    if case.log_ratio is None:
        return "-"
    return format_change(ratio_of(case.log_ratio), *(ends_of(case) or ()))


def effect_span(case: CaseView) -> Span:
    """The effect alone, in the role of its interval."""
    text = "-" if case.log_ratio is None else format_change(ratio_of(case.log_ratio))
    return Span(text, role_of_interval(case) if case.log_ratio is not None else Role.MUTED)


def interval_line(case: CaseView) -> Line:
    """`[5.11, 7.40]`, percents; empty where it is unknown."""
    text = effect_text(case)
    start = text.find("[")
    return line(Span(text[start:], Role.MUTED)) if start >= 0 else EMPTY


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


def plot_ecdf(
    series: CaseSeries, width: int, height: int, glyphs: Glyphs, *, candidate: Role = Role.CANDIDATE
) -> list[Line]:
    """Empirical distribution functions from 0 to 100 %: how the whole distribution moved, not only its middle.

    The outermost hundredth of samples is cut off; the baseline may have none. `candidate` is the role of its curve.
    Labels, axis and legend are included in `width` and `height`.
    """
    values = sorted(value for value in (*series.baseline_s, *series.candidate_s) if math.isfinite(value))
    if not values:
        return [line(Span("no samples yet", Role.MUTED))]
    inner_width, inner_height = width - _ECDF_LABELS - 1, height - 3
    if inner_width < 8 or inner_height < 2:
        return [NO_ROOM]
    cut_off = len(values) // 100
    bounds = bounds_of(values[cut_off : len(values) - cut_off])
    canvas = Canvas(inner_width, inner_height, glyphs)
    _draw_curve(canvas, series.baseline_s, bounds, Role.BASELINE, "b")
    _draw_curve(canvas, series.candidate_s, bounds, candidate, "c")
    labels = {0: "100 %", inner_height // 2: "50 %", inner_height - 1: "0 %"} if inner_height > 2 else {}
    rows = [
        (Span(f"{labels.get(row, ''):>{_ECDF_LABELS}}{glyphs.vertical}", Role.AXIS), *content)
        for row, content in enumerate(canvas.lines())
    ]
    return [_ecdf_legend(series, width, glyphs, candidate), *rows, *_ecdf_axis(width, bounds, glyphs)]


def _ecdf_legend(series: CaseSeries, width: int, glyphs: Glyphs, candidate: Role) -> Line:
    """Which curve is which arm, with as many words before that as there is room for."""
    marks = ("b", "c") if glyphs.is_ascii else ("⠂⠂", "⠒⠒")
    arms = line(Span(f"{marks[1]} candidate", candidate))
    if series.baseline_s:
        arms = line(Span(f"{marks[0]} baseline", Role.BASELINE), "  ", *arms)
    heads = (line(words, *arms) for words in ("samples of an iteration  ", "samples  "))
    return next((head for head in heads if width_of(head) <= width), arms)


def _draw_curve(canvas: Canvas, values: Sequence[float], bounds: tuple[float, float], role: Role, letter: str) -> None:
    """Steps of the curve at every column, joined from one column to the next."""
    ordered = sorted(value for value in values if math.isfinite(value))
    if not ordered:
        return
    low, high = bounds
    places = (low + column / (canvas.columns - 1) * (high - low) for column in range(canvas.columns))
    rows = [round(bisect_right(ordered, place) / len(ordered) * (canvas.rows - 1)) for place in places]
    every = _DOTTED if role is Role.BASELINE and canvas.columns >= 16 else 1
    points = 0
    for column, (before, now) in enumerate(pairwise([rows[0], *rows])):
        for row in range(min(before + 1, now), now + 1):
            points += 1
            if points % every == 0:
                canvas.mark(column, row, role, letter)


def _ecdf_axis(width: int, bounds: tuple[float, float], glyphs: Glyphs) -> list[Line]:
    grid = Grid(width, 2)
    grid.draw_axes(_ECDF_LABELS, 0, glyphs)
    left, right = map(format_seconds, bounds)
    grid.write(_ECDF_LABELS + 1, 1, left, Role.AXIS)
    if len(left) + len(right) + _ECDF_LABELS + 2 < width:
        grid.write(width - len(right), 1, right, Role.AXIS)
    return grid.lines()


def plot_densities(
    series: CaseSeries, width: int, height: int, glyphs: Glyphs, *, case: CaseView | None = None
) -> list[Line]:
    """Kernel density estimates of each arm's latest samples on one axis; the outermost hundredth is cut off.

    The axis has a point at each arm's median, and between them the effect of `case`. Gaussian kernels, bandwidth by
    Silverman's rule (1986, eq. 3.28). Names and axis are included in `width` and `height`.
    """
    candidate = role_of_candidate(case) if case is not None else Role.CANDIDATE
    arms = (("baseline", series.baseline_s, Role.BASELINE), ("candidate", series.candidate_s, candidate))
    found = [(name, list(filter(math.isfinite, values[-_DENSITY_SAMPLES:])), role) for name, values, role in arms]
    shown = [arm for arm in found if arm[1]]
    if not shown:
        return [line(Span("no samples yet", Role.MUTED))]
    rows = (height - 2) // len(shown) - 1
    if width < _NARROWEST_DENSITIES or rows < 1:
        return [NO_ROOM]
    every = sorted(value for _, values, _ in shown for value in values)
    cut_off = len(every) // 100
    low, high = bounds_of(every[cut_off : len(every) - cut_off], margin=0.1)
    lines: list[Line] = []
    for name, values, role in shown:
        grid = Grid(width, rows + 1)
        grid.write(0, 0, name, role)
        densities = _densities(values, low, high, width)
        highest = max(densities)
        for column, density in enumerate(densities):
            eighths = round(density / highest * rows * len(glyphs.levels))
            for row in range(rows, 0, -1):
                filled = min(len(glyphs.levels), eighths - (rows - row) * len(glyphs.levels))
                if filled > 0:
                    grid.put(column, row, glyphs.levels[filled - 1], role)
        lines += grid.lines()
    axis = Grid(width, 2)
    axis.fill(range(width), [0], glyphs.horizontal, Role.AXIS)
    medians = [position(statistics.median(values), low, high, width) for _, values, _ in shown]
    if case is not None and case.log_ratio is not None and len(shown) == 2:
        _span_medians(axis, medians, effect_span(case).text, candidate, glyphs)
    for column, (_, _, role) in zip(medians, shown, strict=True):
        axis.put(column, 0, glyphs.point, role)
    axis.write(0, 1, format_seconds(low), Role.AXIS)
    axis.write(width - len(format_seconds(high)), 1, format_seconds(high), Role.AXIS)
    return [*lines, *axis.lines()]


def _span_medians(axis: Grid, medians: Sequence[int], effect: str, role: Role, glyphs: Glyphs) -> None:
    """`━━ +6.29 % ━━` from one median to the other; the effect is left out where it does not fit."""
    first, last = sorted(medians)
    axis.fill(range(first, last), [0], glyphs.bar, role)
    text = f" {effect} "
    if last - first >= len(text) + 4:
        axis.write((first + last + 1 - len(text)) // 2, 0, text, role)


def _densities(values: Sequence[float], low: float, high: float, columns: int) -> list[float]:
    counts = [0] * columns
    scale = (columns - 1) / (high - low)
    for value in values:
        counts[min(columns - 1, max(0, int((value - low) * scale + 0.5)))] += 1
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    width = max(0.8, 1.06 * spread * len(values) ** -0.2 / (high - low) * columns)
    weights = [math.exp(-0.5 * (distance / width) ** 2) for distance in range(columns)]
    taken = [(column, count) for column, count in enumerate(counts) if count]
    return [sum(count * weights[abs(column - at)] for at, count in taken) for column in range(columns)]


def plot_pairs(
    series: CaseSeries, effect_log_ratio: float | None, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """Effect of each block as a point over or under zero, in the order of measuring: shows drift, warm-up, outliers.

    Voided blocks are left out; where there are more blocks than columns, means of neighbours are shown. The dotted line
    is what the gate's estimator makes of them. Labels, title and axis are included in `width` and `height`.
    """
    pairs = zip(series.blocks, series.block_log_ratios, strict=True)
    shown = [pair for pair in pairs if math.isfinite(pair[1]) and pair[0] not in series.voided]
    if not shown:
        return [line(Span("no pair of blocks yet" if series.baseline_s else "one arm: nothing is paired", Role.MUTED))]
    room, rows = width - _PAIR_LABELS - 1, height - 3
    if room < 5 or rows < 3:
        return [NO_ROOM]
    ratios = [ratio_of(value) for _, value in shown]
    effect = ratio_of(effect_log_ratio) if effect_log_ratio is not None and math.isfinite(effect_log_ratio) else None
    limit = limit_for(ratios, covered=1.0)
    grid = Grid(width, rows + 2)
    grid.draw_axes(_PAIR_LABELS, rows, glyphs)
    middle, columns = rows // 2, range(_PAIR_LABELS + 1, width)
    grid.fill(columns, [middle], glyphs.horizontal, Role.AXIS)
    for row, label in ((0, format_limit(limit)), (rows - 1, format_limit(-limit)), (middle, "0")):
        grid.write(0, row, f"{label:>{_PAIR_LABELS}}", Role.AXIS)
    if effect is not None and abs(effect) <= limit and _pair_row(effect, limit, rows) != middle:
        grid.fill(columns, [_pair_row(effect, limit, rows)], glyphs.dotted, Role.MUTED)
    points = thinned(ratios, room)
    step = _step(room, len(points), _WIDEST_BLOCK)
    for index, ratio in enumerate(points):
        role = Role.SLOWER if ratio > 0 else Role.FASTER
        grid.put(columns[index * step + step // 2], _pair_row(ratio, limit, rows), glyphs.point, role)
    _write_blocks(grid, [number for number, _ in shown], columns[(len(points) - 1) * step + step // 2])
    title = f"{format_count(len(ratios), 'block')}, in order"
    title += f", without {len(series.voided)} voided" if series.voided else ""
    title += f"; {glyphs.dotted * 2} the effect" if effect is not None else ""
    return [line(title), *grid.lines()]


def _step(room: int, points: int, widest: int) -> int:
    """Columns from one point to the next."""
    return max(1, min(widest, room // points))


def _pair_row(ratio: float, limit: float, height: int) -> int:
    """The middle is zero, whatever the height."""
    half = height // 2
    if ratio >= 0:
        return half - position(ratio, 0, limit, half + 1)
    return half + position(-ratio, 0, limit, height - half)


def _write_blocks(grid: Grid, blocks: Sequence[int], end: int) -> None:
    """Numbers of the first and the last block below the axis, the last one at the column of its point."""
    first, last = f"block {blocks[0] + 1}", str(blocks[-1] + 1)
    grid.write(_PAIR_LABELS + 1, grid.height - 1, first, Role.AXIS)
    end = min(grid.width - len(last), end)
    if len(blocks) > 1 and end > _PAIR_LABELS + 2 + len(first):
        grid.write(end, grid.height - 1, last, Role.AXIS)
