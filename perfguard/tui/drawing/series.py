"""A case over the recorded runs: medians with their spread, and what was new in between."""

from __future__ import annotations

from collections.abc import Sequence

from perfguard.records.history import HistoryPoint
from perfguard.records.verdict import Outcome
from perfguard.report.case_history import changes_before
from perfguard.report.scales import bounds_of, round_values
from perfguard.tui.drawing.grid import NO_ROOM, Canvas, Grid, draw_whisker, position
from perfguard.tui.drawing.spans import Glyphs, Line, Role, Span, line
from perfguard.units import format_count, format_day, format_seconds

_RUN_LABELS = 9  # Columns left of the plot: `12.34 ms `
_WIDEST_RUN = 12  # Columns from one run to the next
_OUTCOME_SIGNS = {Outcome.REGRESSED.value: ("▲", Role.SLOWER), Outcome.IMPROVED.value: ("▼", Role.FASTER)}


def plot_series(
    points: Sequence[HistoryPoint], baseline_s: float | None, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """Medians of one case with their spread, one column a run, oldest first; marks where host or software changed.

    Where there are more runs than columns, the latest ones are shown. Labels, legend and marks are included in `width`
    and `height`.
    """
    if not points:
        return [line(Span("this case was measured in no recorded run", Role.MUTED))]
    room, rows = width - _RUN_LABELS - 1, height - 4
    if room < 4 or rows < 3:
        return [NO_ROOM]
    shown = points[-room:]
    values = [point.median_s for point in shown] + [end for point in shown for end in point.spread_s]
    low, high = bounds_of(values if baseline_s is None else [*values, baseline_s])
    step = min(_WIDEST_RUN, room / len(shown))
    columns = [_RUN_LABELS + 1 + int((number + 0.5) * step) for number in range(len(shown))]

    def row_of(value: float) -> int:
        return rows - 1 - position(value, low, high, rows)

    grid = Grid(width, rows + 3)
    grid.draw_axes(_RUN_LABELS, rows, glyphs)
    for value in round_values(low, high, max(2, rows // 4)):
        grid.write(0, row_of(value), f"{format_seconds(value):>{_RUN_LABELS}}", Role.AXIS)
    changes = changes_before(shown)
    _join(
        grid, [(column, row_of(point.median_s)) for column, point in zip(columns, shown, strict=True)], changes, glyphs
    )
    for column, change in zip(columns, changes, strict=True):
        grid.fill([column], range(rows if change else 0), glyphs.margin, Role.AXIS)
        for depth, letter in enumerate(change):
            grid.put(column, rows + 1 + depth, letter, Role.ACCENT)
    _write_software(grid, shown, columns, changes, rows + 1)
    if baseline_s is not None:
        row = row_of(baseline_s)
        free = [column for column in range(_RUN_LABELS + 1, width) if grid.at(column, row) == " "]
        grid.fill(free, [row], glyphs.dotted, Role.BASELINE)
    _write_dates(grid, shown, columns[-1])
    for column, point in zip(columns, shown, strict=True):
        if point.spread_s:
            lower, upper = ((value - low) / (high - low) for value in point.spread_s)
            draw_whisker(grid, column, rows, (lower, upper), glyphs=glyphs, role=Role.MUTED)
        sign, role = _OUTCOME_SIGNS.get(point.outcome or "", (glyphs.point, Role.CANDIDATE))
        grid.put(column, row_of(point.median_s), sign, role)
    return [_series_legend(len(shown), len(points), baseline_s, changes, glyphs), *grid.lines()]


def _write_software(
    grid: Grid, shown: Sequence[HistoryPoint], columns: Sequence[int], changes: Sequence[str], row: int
) -> None:
    """What is new beside each `S`, where there is room for it before the next change."""
    marked = [index for index, change in enumerate(changes) if change]
    ends = [*(columns[following] - 1 for following in marked[1:]), grid.width]
    for index, end in zip(marked, ends, strict=False):
        stack, room = shown[index].stack_id, end - columns[index] - 2
        if changes[index] == "S" and stack is not None and len(stack) <= room:
            grid.write(columns[index] + 2, row, stack, Role.MUTED)


def _write_dates(grid: Grid, shown: Sequence[HistoryPoint], end: int) -> None:
    """Days of the first and the last run in the last line, the last one up to the column of its point."""
    first, last = format_day(shown[0].t_wall), format_day(shown[-1].t_wall)
    grid.write(_RUN_LABELS + 1, grid.height - 1, first, Role.AXIS)
    if end > _RUN_LABELS + 2 * len(first) + 3:
        grid.write(end + 1 - len(last), grid.height - 1, last, Role.AXIS)


def _join(grid: Grid, places: Sequence[tuple[int, int]], changes: Sequence[str], glyphs: Glyphs) -> None:
    """Thin lines from point to point, but for those before which host or software changed; none in ASCII."""
    if glyphs.is_ascii:
        return
    canvas = Canvas(grid.width, grid.height, glyphs)
    across, down = canvas.columns // grid.width, canvas.rows // grid.height
    for (left, before), (right, after), change in zip(places, places[1:], changes[1:], strict=False):
        for step in range(0 if change else (right - left) * across):
            row = before + (after - before) * step / ((right - left) * across)
            canvas.mark(left * across + step, canvas.rows - 1 - round((row + 0.5) * down), Role.AXIS, "")
    for column in range(grid.width):
        for row in range(grid.height):
            if (dots := canvas.at(column, row)) != " ":
                grid.put(column, row, dots, Role.AXIS)


def _series_legend(shown: int, total: int, baseline_s: float | None, changes: Sequence[str], glyphs: Glyphs) -> Line:
    latest = f"the latest {shown} of {total} runs" if shown < total else format_count(shown, "run")
    parts: list[str | Span] = [f"{latest}, oldest first  "]
    if baseline_s is not None:
        parts += [Span(f"{glyphs.dotted * 2} baseline {format_seconds(baseline_s)}", Role.BASELINE), "  "]
    marked = {letter for change in changes for letter in change}
    words = (f"{letter}: other {what}" for letter, what in (("H", "host"), ("S", "software")) if letter in marked)
    return line(*parts, Span("  ".join(words), Role.ACCENT))
