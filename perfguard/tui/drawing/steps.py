"""Where a step's time went: a flame graph in text, and a waterfall from the baseline's step to the candidate's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from rich.cells import cell_len

from perfguard.records.steps.ops import Attribution
from perfguard.report.culprits import Part, parts_of
from perfguard.report.op_tree import Frame
from perfguard.tui.drawing.grid import NO_ROOM, Grid, position
from perfguard.tui.drawing.spans import Glyphs, Line, Role, Span, cut, fitted, line
from perfguard.units import format_seconds, format_signed_seconds

_CHANGED_RATIO = 0.02  # A frame counts as slower or faster from this part of its own time on
_VALUE_WIDTH = 11


def plot_flame(root: Frame, width: int, height: int) -> list[Line]:
    """One row a level, width by the candidate's time; frames narrower than a column are left out.

    Frames are filled, with a free column between neighbours. Slower ones begin with `+`, faster ones with `-`, so that
    no colour is needed.
    """
    if root.value_s <= 0 or width < 8 or height < 2:
        return [NO_ROOM]
    grid = Grid(width, height - 1)
    _place(grid, (root,), 0, range(width), root.value_s)
    legend = line("width: candidate's time  ", Span("+ slower", Role.SLOWER), "  ", Span("- faster", Role.FASTER))
    return [legend, *grid.lines()]


def _place(grid: Grid, frames: Sequence[Frame], level: int, room: range, whole_s: float) -> None:
    """Frames side by side; what is left at the end is their caller's own time."""
    if level >= grid.height or not room or whole_s <= 0:
        return
    ends_s = accumulate((max(0.0, frame.value_s) for frame in frames), initial=0.0)
    edges = [room.start + round(min(1.0, end_s / whole_s) * len(room)) for end_s in ends_s]
    for frame, (first, last) in zip(frames, pairwise(edges), strict=True):
        if last > first:
            sign, role = _look(frame)
            room_inside = max(1, last - first - 1)  # a free column divides neighbours
            grid.write(first, level, cut(f"{sign}{frame.name}", room_inside).ljust(room_inside), role)
            _place(grid, frame.below, level + 1, range(first, last), frame.value_s)


def _look(frame: Frame) -> tuple[str, Role]:
    if abs(frame.delta_s) <= _CHANGED_RATIO * frame.value_s:
        return " ", Role.SAME_FRAME
    return ("+", Role.SLOWER_FRAME) if frame.delta_s > 0 else ("-", Role.FASTER_FRAME)


def plot_waterfall(attribution: Attribution, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """One line a part, each bar beginning where the one above ends; both steps at top and bottom.

    Parts that do not fit into `height` lines are summed up as `further parts`. The differences fill the bars; the
    candidate's line is as long as their sum.
    """
    balance = attribution.balance
    parts = _joined(parts_of(attribution), max(1, height - 2))
    names = ["baseline", *(part.name for part in parts), "candidate"]
    name_width = min(max(cell_len(name) for name in names), max(8, width // 3))
    bar_width = width - name_width - _VALUE_WIDTH - 2
    ends = list(accumulate((part.value_s for part in parts), initial=balance.baseline_s))
    low, high = min(*ends, balance.candidate_s), max(*ends, balance.candidate_s)

    def label(name: str, role: Role) -> Line:
        return fitted(line(Span(cut(name, name_width), role)), name_width)

    def total(name: str, value_s: float, role: Role) -> Line:
        """A step, and a line from the baseline's to it."""
        first, last = sorted(position(end, low, high, bar_width) for end in (balance.baseline_s, value_s))
        length = last - first + 1 if value_s != balance.baseline_s and bar_width >= 2 else 0
        whole = Span(" " * first + glyphs.bar * length, role)
        return (*label(name, role), Span(f" {format_seconds(value_s):>{_VALUE_WIDTH}} ", role), whole)

    lines = [total("baseline", balance.baseline_s, Role.BASELINE)]
    for part, span in zip(parts, pairwise(ends), strict=True):
        role = Role.SLOWER if part.value_s > 0 else Role.FASTER
        bar: Line = ()
        if bar_width >= 2:
            first, last = sorted(position(end, low, high, bar_width) for end in span)
            length = max(1, last - first)
            bar = line(" " * min(first, bar_width - length), Span(glyphs.block * length, role))
        value = f" {format_signed_seconds(part.value_s):>{_VALUE_WIDTH}} "
        lines.append((*label(part.name, Role.PLAIN), Span(value, role), *bar))
    changed = Role.SLOWER if balance.candidate_s > balance.baseline_s else Role.FASTER
    lines.append(total("candidate", balance.candidate_s, changed))
    return lines[: max(1, height)]


def _joined(parts: Sequence[Part], most: int) -> list[Part]:
    if len(parts) <= most:
        return list(parts)
    rest = parts[most - 1 :]
    return [*parts[: most - 1], Part("further parts", sum(part.value_s for part in rest))]
