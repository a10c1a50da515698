"""Tasks as people read them: what there is, and what a run of one came to."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from perfguard.records.facts import Fact, Severity
from perfguard.records.task_audits import Audit
from perfguard.records.task_results import CellOutcome, CellResult, CellRun, TaskResult
from perfguard.records.tasks import Mode, Scenario, TaskConfig, TaskPlan
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.tables import plain_table, texts
from perfguard.units import format_count, format_duration, format_seconds, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {
    CellOutcome.VALID: "green",
    CellOutcome.SPEED_ONLY: "yellow",
    CellOutcome.REFUSED: "dim",
    CellOutcome.UNMEASURED: "dim",
}


def render_tasks(tasks: Sequence[TaskConfig]) -> list[RenderableType]:
    """The packaged tasks, a row each."""
    rows = [
        (task.name, ", ".join(scenario.value for scenario in task.scenarios), task.quality.kind.value, task.doc)
        for task in tasks
    ]
    return [plain_table("~task", "~scenarios", "~quality", "~what it does", rows=rows)]


def render_task(found: TaskResult) -> list[RenderableType]:
    """What to print of a run, in order."""
    parts: list[RenderableType] = [
        *texts(*(f"{label:<11}{text}" for label, text in heading_of(found)), style="dim"),
        _table(found),
    ]
    parts += [part for cell in found.cells for part in _reasons(cell)]
    parts += texts(
        *(f"! {describe(note)}" for note in found.notes if note.severity is not Severity.INFO), style="yellow"
    )
    parts += texts(conclusion_of(found), style="bold green" if found.exit_code == 0 else "bold yellow")
    return parts


def run_line(run: CellRun) -> str:
    """`onnxruntime-fp32-1, round 2: p90 83.48 µs`."""
    what = f"{run.cell.id}, round {run.round + 1}" if run.mode is Mode.PERFORMANCE else f"{run.cell.id}, quality"
    return printable(f"{what}: {_found(run)}")


def _found(run: CellRun) -> str:
    if run.problem is not None:
        return describe(run.problem)
    if run.quality is not None:
        return f"{run.quality.value:.4f} on {format_count(run.quality.examples, 'example')}"
    if run.training is not None:
        last, epochs = run.training.last, format_count(len(run.training.epochs), "epoch")
        return f"{last.quality:.4f} after {epochs}, {format_seconds(last.wall_s)}"
    if run.speed is None:
        return "no result"
    if run.speed.p90_s is not None:
        return f"p90 {format_seconds(run.speed.p90_s)}"
    return f"{run.speed.samples_per_s or 0:,.0f} samples/s"


def render_check(broken: Sequence[Fact], *, rules: int, measurements: int) -> list[RenderableType]:
    """Each broken rule, a line each, and how many were checked."""
    lines = (printable(f"✗ {found.subject.place}: {describe(found)}") for found in broken)
    what = f"{format_count(rules, 'rule')} on {format_count(measurements, 'measurement')}"
    said = f"{format_count(len(broken), 'broken rule')}, of {what}" if broken else f"{what}: all are kept"
    return [*texts(*lines, style="red"), *texts(said, style="bold red" if broken else "bold green")]


def render_audit(found: Audit) -> list[RenderableType]:
    """What to print of an audit, in order."""
    other = "" if found.machine_id == found.package_machine_id else f"; the package is of {found.package_machine_id}"
    head = (f"machine    {found.machine}{other}", f"task       {found.task}")
    rows = [
        (
            cell.cell.id,
            score_text(found.scenario, cell.claimed),
            ", ".join(score_text(found.scenario, score) for score in cell.found) or "-",
            "-" if cell.claimed_quality is None else f"{cell.claimed_quality:.4f}",
            "-" if cell.found_quality is None else f"{cell.found_quality:.4f}",
            "found something" if cell.findings else "passed" if cell.is_finished else "not finished",
        )
        for cell in found.cells
    ]
    heads = ("~cell", ">claimed score", ">found", ">claimed quality", ">found", "~audit")
    lines = [f"✗ {broken.subject.place}: {describe(broken)}" for broken in found.broken]
    lines += [f"✗ {cell.cell.id}: {describe(each)}" for cell in found.cells for each in cell.findings]
    passed = sum(not cell.findings and cell.is_finished for cell in found.cells)
    said = f"{passed} of {format_count(len(found.cells), 'cell')} passed"
    said += f"; {format_count(len(found.broken), 'broken rule')}" if found.broken else ""
    return [
        *texts(*map(printable, head), style="dim"),
        plain_table(*heads, rows=rows),
        *texts(*map(printable, lines), style="red"),
        *texts(said, style="bold green" if found.exit_code == 0 else "bold red"),
    ]


def heading_of(found: TaskResult) -> tuple[tuple[str, str], ...]:
    """What was measured, where and how: labels with their texts."""
    plan = found.plan
    task, target = plan.task, plan.task.quality
    is_open = ", open" if plan.is_open else ""
    least = f"at least {format_count(plan.duration.min_queries, 'query')} and {format_duration(plan.duration.min_s)}"
    reach = f"at least {target.least:.4g}, which is {target.fraction:.0%} of FP32's {target.reference:.4g}"
    if plan.scenario is Scenario.TRAINING:
        least = f"until the quality is reached, at most {format_duration(task.training_limit_s)}, one seed a round"
    pause = format_duration(plan.cooling.most_s)
    is_timed = plan.cooling.by == "time"
    pause = f"pauses of {pause}" if is_timed else f"pauses until the {plan.cooling.by} is back, at most {pause}"
    return (
        ("machine", printable(found.machine)),
        ("task", printable(f"{task.name}: {task.doc}")),
        ("scenario", f"{_scenario(plan)}: {least}; {pause}"),
        ("quality", f"{target.metric.value}, {target.kind.value}: {reach}{is_open}"),
    )


def _scenario(plan: TaskPlan) -> str:
    """LoadGen has run sizes; a training takes as long as it takes."""
    return plan.scenario.value if plan.scenario is Scenario.TRAINING else f"{plan.scenario.value}, {plan.size.value}"


def _table(found: TaskResult) -> RenderableType:
    if found.plan.scenario is Scenario.TRAINING:
        return _table_of_trainings(found)
    score = {Scenario.SINGLE_STREAM: "p90", Scenario.OFFLINE: "samples/s", Scenario.SERVER: "p90"}[found.plan.scenario]
    heads = ("~cell", f">{score}", ">time over the first", ">quality", ">made once", "~result")
    rows = [
        (
            cell.cell.id,
            _score(found, cell),
            ratio_text(cell),
            "-" if cell.quality is None else f"{cell.quality:.4f}",
            stages_text(cell),
            cell.outcome.value,
        )
        for cell in found.cells
    ]
    return plain_table(*heads, rows=rows)


def _table_of_trainings(found: TaskResult) -> RenderableType:
    heads = (
        "~cell",
        ">time to quality",
        ">all seeds",
        ">CPU time",
        ">epochs",
        ">over the first",
        ">quality",
        "~result",
    )
    rows = []
    for cell in found.cells:
        reached = [each for each in cell.trainings if each.is_reached]
        walls = sorted(each.last.wall_s for each in reached)
        epochs = sorted(len(each.epochs) for each in reached)
        rows.append(
            (
                cell.cell.id,
                _score(found, cell),
                f"{format_seconds(walls[0])} to {format_seconds(walls[-1])}" if walls else "-",
                format_seconds(median(each.last.cpu_s for each in reached)) if reached else "-",
                f"{epochs[0]} to {epochs[-1]}" if epochs else "-",
                ratio_text(cell),
                "-" if cell.quality is None else f"{cell.quality:.4f}",
                cell.outcome.value,
            )
        )
    return plain_table(*heads, rows=rows)


def _score(found: TaskResult, cell: CellResult) -> str:
    return "-" if cell.score is None else score_text(found.plan.scenario, cell.score)


def score_text(scenario: Scenario, score: float) -> str:
    """Samples per second offline, else seconds."""
    return f"{score:,.0f}" if scenario is Scenario.OFFLINE else format_seconds(score)


def ratio_text(cell: CellResult) -> str:
    """`0.853 [0.841, 0.866]`; `-` of the first cell, or without an interval."""
    if cell.over_reference is None:
        return "-"
    return f"{cell.over_reference.ratio:.3f} [{cell.over_reference.lower:.3f}, {cell.over_reference.upper:.3f}]"


def stages_text(cell: CellResult) -> str:
    """Seconds of what is made once, by stage; `-` for nothing."""
    if cell.loaded is None or not cell.loaded.stages:
        return "-"
    return ", ".join(f"{name} {format_duration(value)}" for name, value in sorted(cell.loaded.stages.items()))


def _reasons(cell: CellResult) -> list[RenderableType]:
    lines = (printable(f"{cell.outcome.value}  {cell.cell.id}: {describe(reason)}") for reason in cell.reasons)
    return list(texts(*lines, style=_STYLES.get(cell.outcome, "red")))


def conclusion_of(found: TaskResult) -> str:
    """How many cells are valid, and which one is recommended."""
    valid = sum(cell.outcome is CellOutcome.VALID for cell in found.cells)
    said = f"{valid} of {format_count(len(found.cells), 'cell')} valid"
    if found.recommended is None or len(found.cells) == 1:
        return said
    if found.is_resolved:
        return f"{said}; recommended: {found.recommended}"
    return (
        f"{said}; the fastest is {found.recommended}, not resolved from the next: measure --size quick or more --rounds"
    )
