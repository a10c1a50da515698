"""A step as an icicle: phase, module, op, as wide as the candidate's time in them, coloured by what changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfguard.records.steps.ops import Attribution, ChangeClass, OpDelta
from perfguard.report.html.charts import Cell, Chart, Table, numbers, text_cells
from perfguard.report.html.svg import Element, element, percent, picture
from perfguard.report.op_tree import Frame, frames_of, tree_of
from perfguard.units import format_change, format_count, format_number, format_seconds

ROW = 24
"""Height of a level, pixels."""
_MOST_FRAMES = 400
"""The widest ones; of a step with more, the others are hardly wider than a pixel."""
_DEEPEST = 14
_CHANGES = ((0.25, 3), (0.1, 2), (0.02, 1))
"""From so much of its own time on, a frame's colour has so many of three strengths."""
_SHOWN_ELIDED = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    frame: Frame
    level: int
    left: float
    """Share of the whole width."""
    width: float


def icicle(attribution: Attribution) -> Chart | None:
    """The picture; None where the candidate's step has no ops."""
    root = frames_of(tree_of(attribution.deltas), "step")
    if root.value_s <= 0:
        return None
    everything = sorted(_placed(root), key=lambda placed: (placed.level, placed.left))
    frames = _widest(everything)
    height = (1 + max(placed.level for placed in frames)) * ROW
    drawn = [_drawn(placed, number) for number, placed in enumerate(frames)]
    hidden = len(everything) - len(frames)
    left_out = f" {format_count(hidden, 'frame')} too narrow to be seen are left out." if hidden else ""
    return Chart(
        kind="icicle",
        title="Where in the step?",
        figure=picture(
            f"Icicle of {format_count(len(frames), 'frame')} of a step",
            height,
            drawn,
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
    if not gone:
        return None
    gone.sort(key=lambda delta: (-delta.baseline_s, delta.key.op, delta.key.module, delta.key.shapes))
    more = f"; the longest {_SHOWN_ELIDED} of {len(gone)}" if len(gone) > _SHOWN_ELIDED else ""
    return Table(
        columns=("op", "phase", "module", "tensors", ">calls", ">time in the baseline"),
        rows=tuple(_gone_row(delta) for delta in gone[:_SHOWN_ELIDED]),
        caption=f"Only in the baseline{more}",
        is_sortable=True,
    )


def _gone_row(delta: OpDelta) -> tuple[Cell, ...]:
    key = delta.key
    tensors = " ".join(filter(None, (key.shapes, key.dtypes, key.layouts)))
    return (
        *text_cells(key.op, key.phase.value, key.module or "-", tensors or "-"),
        *numbers(
            (format_number(delta.baseline_calls), delta.baseline_calls),
            (format_seconds(delta.baseline_s), delta.baseline_s),
        ),
    )


def _placed(frame: Frame, *, level: int = 0, left: float = 0.0, width: float = 1.0) -> Iterator[_Placed]:
    """The frame, and all below it."""
    yield _Placed(frame=frame, level=level, left=left, width=width)
    if level + 1 >= _DEEPEST or frame.value_s <= 0:
        return
    at = left
    for child in frame.below:
        share = width * min(1.0, max(0.0, child.value_s) / frame.value_s)
        if share > 0:
            yield from _placed(child, level=level + 1, left=at, width=share)
        at += share


def _widest(placed: Sequence[_Placed]) -> list[_Placed]:
    """So many that a page stays small; a frame is never wider than what it is called by, so none hangs loose."""
    if len(placed) <= _MOST_FRAMES:
        return list(placed)
    kept = sorted(placed, key=lambda each: -each.width)[:_MOST_FRAMES]
    return sorted(kept, key=lambda each: (each.level, each.left))


def _drawn(placed: _Placed, number: int) -> Element:
    frame = placed.frame
    sign, class_ = _look(frame)
    title = f"{frame.name}: {format_seconds(frame.value_s)}, {_changed(frame)}"
    return element(
        "svg",
        element("title", title),
        element("rect", width="100%", height=ROW - 2, rx=2, class_=f"frame {class_}"),
        element("text", f"{sign}{frame.name}", x=5, y=15, class_="frame-name"),
        x=percent(placed.left), width=percent(placed.width), y=placed.level * ROW, height=ROW - 1,
        class_="step-frame", tabindex=0 if number == 0 else -1, role="img",
        data_level=placed.level, data_left=f"{placed.left:.7f}", data_width=f"{placed.width:.7f}",
    )  # fmt: skip


def _changed(frame: Frame) -> str:
    sign = "+" if frame.delta_s >= 0 else "-"
    before_s = frame.value_s - frame.delta_s
    part = f" ({format_change(frame.delta_s / before_s)})" if before_s > 0 else " (new)"
    return f"{sign}{format_seconds(abs(frame.delta_s))}{part}"


def _look(frame: Frame) -> tuple[str, str]:
    """A sign and a class by the part of its own time that changed."""
    share = abs(frame.delta_s) / frame.value_s if frame.value_s > 0 else 0.0
    for least, strength in _CHANGES:
        if share > least:
            return ("+ ", f"slower-{strength}") if frame.delta_s > 0 else ("- ", f"faster-{strength}")
    return "", "same"
