"""Heterogeneous training on a screen: what each group of workers does, and the loss over the time of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from perfguard.records.training import GroupUse, TrainingEpoch
from perfguard.report.terminal.training import shares_of
from perfguard.tui.drawing.grid import NO_ROOM, Canvas, Grid, position, sparkline
from perfguard.tui.drawing.spans import EMPTY, Glyphs, Line, Role, Span, fitted, line, shortened, width_of
from perfguard.units import format_seconds, format_share
from perfguard.watch.view.run_view import TrainingView

_LABELS = 9  # Columns left of the plot
_SPARK = 24  # Cells of the busy part over time
_LEAST_PLOT = 6
_ROLES = (Role.BASELINE, Role.CANDIDATE, Role.ACCENT, Role.OPEN)


def training_lines(training: TrainingView, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Everything about a run that trains."""
    config = training.planned.config
    head = f"{config.algorithm} on {config.data.source}"
    if training.trained is not None:
        on = training.trained
        head += f": {on.examples:,} examples, {on.parameters:,} parameters, torch {on.torch}"
    lines = [line(Span(shortened(head, width), Role.STRONG)), _progress_line(training, width), EMPTY]
    for index, group in enumerate(training.groups):
        lines += _group_lines(training, group, _ROLES[index % len(_ROLES)], width, glyphs)
    room = height - len(lines) - 1
    if room >= _LEAST_PLOT and len(training.epochs) > 1:
        lines += [EMPTY, *plot_loss(training.epochs, config.target_loss, width, min(room, 18), glyphs)]
    return [content if width_of(content) <= width else fitted(content, width) for content in lines]


def _progress_line(training: TrainingView, width: int) -> Line:
    if not training.epochs:
        text = "waiting for the first loss" if training.trained else "preparing data and workers"
        return line(Span(text, Role.MUTED))
    last, target = training.epochs[-1], training.planned.config.target_loss
    text = f"epoch {last.epoch}, loss {last.loss:.4f}"
    if target is not None:
        text += f", target {target:.4g}"
    text += f", {format_seconds(last.trained_s)} of training"
    return line(shortened(text, width))


def _group_lines(training: TrainingView, name: str, role: Role, width: int, glyphs: Glyphs) -> list[Line]:
    """`cpu    97 % of updates  batch 512    busy ▆▇▇█▇ 98 %  2 workers on CPU`."""
    use: GroupUse | None = training.uses[-1].groups.get(name) if training.uses else None
    device = training.trained.devices.get(name, "") if training.trained else ""
    count = sum(each.group == name for each in training.planned.workers)
    if use is None:
        return [line(Span(f"{name:<10}", role), f"{count} workers {device}")]
    share = shares_of({key: each.updates for key, each in training.uses[-1].groups.items()}).get(name, 0.0)
    busy = [each.groups[name].busy_ratio for each in training.uses if name in each.groups]
    lost = f", {count - use.worker_count} lost" if use.worker_count < count else ""
    spark = sparkline(busy, min(_SPARK, max(4, width - 60)), glyphs, low=0.0, high=1.0)
    return [
        line(
            Span(f"{name:<10}", role),
            f"{format_share(share):>6} of updates  batch {use.batch:>6,}  busy ",
            Span(spark, role),
            f" {format_share(use.busy_ratio):>5}",
            Span(shortened(f"  {count} on {device}{lost}", max(0, width - 44 - len(spark))), Role.MUTED),
        )
    ]


def plot_loss(
    epochs: Sequence[TrainingEpoch], target: float | None, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """Loss over seconds of training, joined by straight lines; a dotted line at the target."""
    points = [(epoch.trained_s, epoch.loss) for epoch in epochs if math.isfinite(epoch.loss)]
    room, rows = width - _LABELS - 1, height - 3
    if room < 8 or rows < 3 or len(points) < 2:
        return [NO_ROOM]
    values = [loss for _, loss in points] + ([target] if target is not None else [])
    low, high, end_s = min(values), max(values), points[-1][0] or 1.0
    canvas = Canvas(room, rows, glyphs)

    def row_of(loss: float) -> int:
        return position(loss, low, high, canvas.rows)

    if target is not None:
        for column in range(0, canvas.columns, 4):
            canvas.mark(column, row_of(target), Role.MUTED, ".")
    for (x0, y0), (x1, y1) in pairwise(points):
        first, last = (position(x, 0.0, end_s, canvas.columns) for x in (x0, x1))
        for column in range(first, last + 1):
            share = (column - first) / (last - first) if last > first else 1.0
            canvas.mark(column, row_of(y0 + share * (y1 - y0)), Role.CANDIDATE, "o")
    labels = {0: f"{high:.4g}", rows - 1: f"{low:.4g}"}
    found = [line(Span("loss over seconds of training", Role.TITLE))]
    for number, content in enumerate(canvas.lines()):
        found.append((Span(f"{labels.get(number, ''):>{_LABELS}}{glyphs.vertical}", Role.AXIS), *content))
    axis = Grid(width, 2)
    axis.draw_axes(_LABELS, 0, glyphs)
    axis.write(_LABELS + 1, 1, "0", Role.AXIS)
    right = format_seconds(end_s)
    axis.write(width - len(right), 1, right, Role.AXIS)
    return [*found, *axis.lines()]
