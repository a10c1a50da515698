"""A step as a flame graph in text: one row a level, width by the candidate's time, role by what changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perfguard.report.op_tree import Frame
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.grid import Grid
from perfguard.tui.drawing.spans import Line, Role, Span, cut, line

_CHANGED_RATIO = 0.02
"""A frame counts as slower or faster from this part of its own time on."""


class _Room(NamedTuple):
    level: int
    start: int
    width: int


def plot_flame(root: Frame, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The root on top; frames narrower than a column are left out, names are cut to their frames.

    Slower frames begin with `+`, faster ones with `-`, so that no colour is needed.
    """
    if root.value_s <= 0 or width < 8 or height < 2:
        return [line(Span("too little room for this plot; z makes more", Role.MUTED))]
    grid = Grid(width, height - 1)
    _place(grid, (root,), _Room(0, 0, width), root.value_s)
    legend = line(
        "width: time in the candidate's step  ",
        Span("+ slower", Role.SLOWER),
        "  ",
        Span("- faster", Role.FASTER),
        "  ",
        Span(f"{glyphs.vertical} the same", Role.MUTED),
    )
    return [legend, *grid.lines()]


def _place(grid: Grid, frames: Sequence[Frame], room: _Room, whole_s: float) -> None:
    """Frames side by side; what is left at the end is their caller's own time."""
    if room.level >= grid.height or room.width < 1 or whole_s <= 0:
        return
    at_s = 0.0
    for frame in frames:
        first = room.start + round(min(1.0, at_s / whole_s) * room.width)
        at_s += max(0.0, frame.value_s)
        last = room.start + round(min(1.0, at_s / whole_s) * room.width)
        if last > first:
            _write(grid, frame, _Room(room.level, first, last - first))
            _place(grid, frame.below, _Room(room.level + 1, first, last - first), frame.value_s)


def _write(grid: Grid, frame: Frame, room: _Room) -> None:
    sign, role = _look(frame)
    text = cut(f"{sign}{frame.name}", room.width) if room.width > 1 else sign
    grid.write(room.start, room.level, text.ljust(room.width), role)


def _look(frame: Frame) -> tuple[str, Role]:
    if frame.delta_s > _CHANGED_RATIO * frame.value_s:
        return "+", Role.SLOWER
    if -frame.delta_s > _CHANGED_RATIO * frame.value_s:
        return "-", Role.FASTER
    return "|", Role.MUTED
