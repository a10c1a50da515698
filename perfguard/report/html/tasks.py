"""A run of a task as charts and tables of a page: frameworks against precisions, and every cell."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfguard.records.task_results import CellOutcome, CellResult, TaskResult
from perfguard.records.tasks import Scenario
from perfguard.report.html.charts import Cell, Chart, Table, cells, mark_cell
from perfguard.report.html.curves import Curve, curves_picture
from perfguard.report.html.effect_bars import Ends, common_axis, effect_bar, effect_ticks, scale_text
from perfguard.report.messages.catalog import describe
from perfguard.report.shown import Mark
from perfguard.report.terminal.tasks import ratio_text, score_text, stages_text
from perfguard.tasks.judging import worst_outcome
from perfguard.units import format_count

_SIGNS = {
    CellOutcome.VALID: ("✓", "faster"),
    CellOutcome.SPEED_ONLY: ("≈", "open"),
    CellOutcome.INVALID: ("✗", "slower"),
    CellOutcome.REFUSED: ("·", "open"),
    CellOutcome.FAILED: ("✗", "broken"),
    CellOutcome.UNMEASURED: ("?", "open"),
}


def mark_of_cell(outcome: CellOutcome) -> Mark:
    """How a cell's outcome is shown."""
    sign, class_ = _SIGNS[outcome]
    return Mark(sign, outcome.value, class_)


def mark_of_task(found: TaskResult) -> Mark:
    """How its worst cell is shown."""
    return mark_of_cell(worst_outcome(found.cells))


def task_charts(found: TaskResult) -> Iterator[Chart]:
    """How much faster or slower each cell is than the first; of trainings the quality over time."""
    compared = [cell for cell in found.cells if cell.over_reference is not None]
    if compared:
        axis = common_axis(_ends(cell) for cell in compared)
        rows = []
        for cell in compared:
            class_, label = mark_of_cell(cell.outcome).class_, f"{cell.cell.id}: {ratio_text(cell)}"
            bar = Cell(content=effect_bar(label, _ends(cell), axis, class_), class_="picture")
            rows.append(cells(Cell(content=cell.cell.id, class_="name"), bar, _number(ratio_text(cell))))
        rows.append(cells("", Cell(content=effect_ticks(axis), class_="axis"), ""))
        yield Chart(
            kind="task-cells",
            title=f"Time over that of {found.cells[0].cell.id}",
            figure=Table(columns=("cell", "time", ">ratio"), rows=tuple(rows), class_="forest trials"),
            legend=(("key-interval", "ratio and interval, 95 % for all cells together"),),
            note=f"Left is faster{scale_text(axis)}.",
        )
    for cell in found.cells:
        if cell.trainings:
            curves = [
                Curve(index % 4, [(each.wall_s, each.quality) for each in training.epochs])
                for index, training in enumerate(cell.trainings)
            ]
            yield Chart(
                kind="task-quality",
                title=f"Quality of {cell.cell.id} by seconds of training",
                figure=curves_picture(found.plan.task.quality.metric.value, curves, "s"),
                note=f"A curve a seed; the target is {found.plan.task.quality.least:.4g}.",
            )


def task_tables(found: TaskResult) -> Iterator[Table]:
    """Frameworks by precisions and threads, where there are several, then every cell with its reasons."""
    ways = list(dict.fromkeys((cell.cell.precision.value, cell.cell.threads) for cell in found.cells))
    backends = list(dict.fromkeys(cell.cell.backend for cell in found.cells))
    if len(ways) > 1 and len(backends) > 1:
        known = {
            (each.cell.backend, each.cell.precision.value, each.cell.threads): each for each in reversed(found.cells)
        }
        yield Table(
            columns=("framework", *(f"{precision}, {format_count(threads, 'thread')}" for precision, threads in ways)),
            rows=tuple(
                cells(
                    Cell(content=backend, class_="name"),
                    *(_matrix_cell(found.plan.scenario, known.get((backend, *way))) for way in ways),
                )
                for backend in backends
            ),
            caption=f"{_unit(found)}, and quality",
        )
    yield Table(
        columns=("cell", f">{_unit(found)}", ">time over the first", ">quality", "made once", "result", "why"),
        rows=tuple(
            cells(
                Cell(content=cell.cell.id, class_="name"),
                _number("-" if cell.score is None else score_text(found.plan.scenario, cell.score)),
                _number(ratio_text(cell)),
                _number("-" if cell.quality is None else f"{cell.quality:.4f}"),
                stages_text(cell),
                mark_cell(mark_of_cell(cell.outcome), _said(cell)),
                "; ".join(map(describe, cell.reasons)),
            )
            for cell in found.cells
        ),
    )


def _matrix_cell(scenario: Scenario, cell: CellResult | None) -> Cell:
    if cell is None:
        return Cell(content="")
    if cell.score is None:
        return mark_cell(mark_of_cell(cell.outcome), _said(cell))
    quality = "" if cell.quality is None else f", {cell.quality:.4f}"
    said = "" if cell.outcome is CellOutcome.VALID else f", {_said(cell)}"
    return mark_cell(mark_of_cell(cell.outcome), f"{score_text(scenario, cell.score)}{quality}{said}", sort=cell.score)


def _number(text: str) -> Cell:
    return Cell(content=text, class_="num")


def _said(cell: CellResult) -> str:
    mark = mark_of_cell(cell.outcome)
    return f"{mark.sign} {mark.word}"


def _unit(found: TaskResult) -> str:
    if found.plan.scenario is Scenario.TRAINING:
        return "time to quality"
    return "samples/s" if found.plan.scenario is Scenario.OFFLINE else "90th percentile"


def _ends(cell: CellResult) -> Ends:
    known = cell.over_reference
    if known is None:
        return math.nan, math.nan, math.nan
    return math.log(known.ratio), math.log(known.lower), math.log(known.upper)
