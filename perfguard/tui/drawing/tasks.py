"""A run of a task on a screen: each cell with its speed beside its quality, and what was found last."""

from __future__ import annotations

from perfguard.records.task_results import CellOutcome, CellResult
from perfguard.records.tasks import Scenario
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.tasks import ratio_text, run_line, score_text
from perfguard.tui.drawing.spans import EMPTY, Line, Role, Span, fitted, line, shortened, width_of
from perfguard.units import format_count
from perfguard.watch.view.run_view import TaskView

_ROLES = {
    CellOutcome.VALID: Role.FASTER,
    CellOutcome.SPEED_ONLY: Role.OPEN,
    CellOutcome.INVALID: Role.BROKEN,
    CellOutcome.FAILED: Role.BROKEN,
    CellOutcome.REFUSED: Role.MUTED,
    CellOutcome.UNMEASURED: Role.MUTED,
}
_WIDTHS = (24, 12, 24, 9)
"""Columns of the cell, its score, its ratio and its quality."""


def task_lines(task: TaskView, width: int) -> list[Line]:
    """Everything about a run of a task."""
    plan, target = task.plan, task.plan.task.quality
    unit = {Scenario.OFFLINE: "samples/s", Scenario.TRAINING: "to quality"}.get(plan.scenario, "p90")
    found = [
        line(Span(f"{plan.task.name}: {plan.scenario.value}", Role.STRONG)),
        line(f"quality target: {target.metric.value} at least {target.least:.4g} ({target.kind.value})"),
        line(Span(_progress(task), Role.MUTED)),
        EMPTY,
        line(Span(_columns("cell", unit, "time over the first", "quality") + "result", Role.TITLE)),
        *(_cell_line(plan.scenario, cell) for cell in task.cells),
    ]
    reasons = [
        line(Span(f"{cell.cell.id}: {describe(reason)}", _ROLES[cell.outcome]))
        for cell in task.cells
        for reason in cell.reasons
        if reason.code != "task.ended_early"  # the run may go on
    ]
    found += [EMPTY, *reasons] if reasons else []
    return [content if width_of(content) <= width else fitted(content, width) for content in found]


def _progress(task: TaskView) -> str:
    plan = task.plan
    planned = len(plan.cells) * (plan.rounds + (plan.scenario is not Scenario.TRAINING))
    said = f"{len(task.runs)} of {format_count(planned, 'measurement')}"
    return f"{said}; the last: {run_line(task.runs[-1])}" if task.runs else said


def _cell_line(scenario: Scenario, cell: CellResult) -> Line:
    score = "-" if cell.score is None else score_text(scenario, cell.score)
    quality = "-" if cell.quality is None else f"{cell.quality:.4f}"
    name = shortened(cell.cell.id, _WIDTHS[0] - 1)
    return line(_columns(name, score, ratio_text(cell), quality), Span(cell.outcome.value, _ROLES[cell.outcome]))


def _columns(*texts: str) -> str:
    name, *numbers = texts
    padded = "".join(f"{text:>{width}}" for text, width in zip(numbers, _WIDTHS[1:], strict=True))
    return f"{name:<{_WIDTHS[0]}}{padded}  "
