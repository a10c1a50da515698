"""One case over the recorded runs: medians, their spread, the stored baseline, and where host or software changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfguard.records.verdict import Outcome
from perfguard.report.case_history import changes_before
from perfguard.report.scales import bounds_of
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.grid import Grid, position
from perfguard.tui.drawing.spans import Line, Role, Span, line
from perfguard.units import format_count, format_seconds
from perfguard.watch.view.run_view import HistoryPoint

_LABELS = 9
"""Columns left of the plot: `12.34 ms `."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    grid: Grid
    low: float
    high: float
    height: int
    step: int

    def column(self, index: int) -> int:
        return _LABELS + 1 + index * self.step + self.step // 2

    def row(self, value: float) -> int:
        return self.height - 1 - position(value, self.low, self.high, self.height)


def plot_series(
    points: Sequence[HistoryPoint], baseline_s: float | None, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """One column a run, oldest first; where there are more runs than columns, the latest ones.

    Args:
        points: Of one case, sorted by time.
        baseline_s: Median of the stored baseline; None without one.
        width: Columns, labels included.
        height: Lines, legend and marks included.
        glyphs: What to draw with.
    """
    if not points:
        return [line(Span("this case was measured in no recorded run", Role.MUTED))]
    inner_width, inner_height = width - _LABELS - 1, height - 4
    if inner_width < 4 or inner_height < 3:
        return [line(Span("too little room for this plot; z makes more", Role.MUTED))]
    shown = points[-inner_width:]
    frame = _frame(shown, baseline_s, width, inner_height)
    _draw_axes(frame, glyphs)
    _draw_changes(frame, shown, glyphs)
    if baseline_s is not None:
        _draw_baseline(frame, baseline_s, glyphs)
    for index, point in enumerate(shown):
        _draw_point(frame, index, point, glyphs)
    hidden = len(points) - len(shown)
    return [_legend(len(shown), hidden, baseline_s, glyphs), *frame.grid.lines()]


def _frame(points: Sequence[HistoryPoint], baseline_s: float | None, width: int, height: int) -> _Frame:
    values = [point.median_s for point in points] + ([baseline_s] if baseline_s is not None else [])
    values += [end for point in points for end in point.spread_s]
    low, high = bounds_of(values)
    step = max(1, min(6, (width - _LABELS - 1) // len(points)))
    return _Frame(grid=Grid(width, height + 3), low=low, high=high, height=height, step=step)


def _draw_axes(frame: _Frame, glyphs: Glyphs) -> None:
    grid = frame.grid
    for row in range(frame.height):
        grid.put(_LABELS, row, glyphs.vertical, Role.AXIS)
    for column in range(_LABELS + 1, grid.width):
        grid.put(column, frame.height, glyphs.horizontal, Role.AXIS)
    grid.put(_LABELS, frame.height, glyphs.corner, Role.AXIS)
    for row in {0, frame.height // 2, frame.height - 1}:
        value = frame.low + (frame.high - frame.low) * (frame.height - 1 - row) / (frame.height - 1)
        grid.write(0, row, f"{format_seconds(value):>{_LABELS}}", Role.AXIS)


def _draw_changes(frame: _Frame, points: Sequence[HistoryPoint], glyphs: Glyphs) -> None:
    for index, change in enumerate(changes_before(points)):
        if change:
            column = frame.column(index)
            for row in range(frame.height):
                frame.grid.put(column, row, glyphs.margin, Role.AXIS)
            for depth, letter in enumerate(change):
                frame.grid.put(column, frame.height + 1 + depth, letter, Role.ACCENT)


def _draw_baseline(frame: _Frame, baseline_s: float, glyphs: Glyphs) -> None:
    row = frame.row(baseline_s)
    for column in range(_LABELS + 1, frame.grid.width):
        if frame.grid.at(column, row) == " ":
            frame.grid.put(column, row, glyphs.dotted, Role.BASELINE)


def _draw_point(frame: _Frame, index: int, point: HistoryPoint, glyphs: Glyphs) -> None:
    column = frame.column(index)
    role = {Outcome.REGRESSED.value: Role.SLOWER, Outcome.IMPROVED.value: Role.FASTER}.get(
        point.outcome or "", Role.CANDIDATE
    )
    ends = point.spread_s
    if ends:
        for row in range(frame.row(ends[1]), frame.row(ends[0]) + 1):
            frame.grid.put(column, row, glyphs.whisker, Role.MUTED)
    sign = {Role.SLOWER: "▲", Role.FASTER: "▼"}.get(role, glyphs.point)
    frame.grid.put(column, frame.row(point.median_s), sign, role)


def _legend(shown: int, hidden: int, baseline_s: float | None, glyphs: Glyphs) -> Line:
    latest = f"the latest {shown} of {shown + hidden} runs" if hidden else format_count(shown, "run")
    parts: list[str | Span] = [f"{latest}, oldest first  "]
    if baseline_s is not None:
        parts += [Span(f"{glyphs.dotted * 2} baseline {format_seconds(baseline_s)}", Role.BASELINE), "  "]
    parts.append(Span("H other host  S other software", Role.ACCENT))
    return line(*parts)
