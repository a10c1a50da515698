"""Judges the measurements of a task: whether a cell's speed counts, and which cell is the fastest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.task_results import CellOutcome, CellResult, CellRun, Interval95, MeasuredSpeed, MeasuredTraining
from perfguard.records.tasks import ModelPrecision, QualityKind, Scenario, TaskCell, TaskPlan
from perfguard.stats.paired import estimate_paired

LEAST_SNR_DB = 100.0
"""Of FP32 against PyTorch's: frameworks reach 126 to 132 with real weights, BF16 about 39."""
MOST_WALL_PER_CPU = 1.2  # Of one thread; beyond it something else had the CPU
MIN_ROUNDS = 3  # Fewer give no interval


def judge(plan: TaskPlan, runs: Sequence[CellRun]) -> tuple[CellResult, ...]:
    """The result of each cell of a plan, in its order."""
    own = {cell: [run for run in runs if run.cell == cell] for cell in plan.cells}
    times = {cell: _times(plan, own[cell]) for cell in plan.cells}
    first = plan.cells[0]
    return tuple(_result(plan, cell, own[cell], times[cell], times[first]) for cell in plan.cells)


def recommendation(results: Sequence[CellResult], runs: Sequence[CellRun], plan: TaskPlan) -> tuple[str | None, bool]:
    """The fastest valid cell, and whether all other valid ones are slower beyond doubt."""
    valid = [result for result in results if result.outcome is CellOutcome.VALID and result.score is not None]
    if not valid:
        return None, False
    times = {result.cell.id: _times(plan, [run for run in runs if run.cell == result.cell]) for result in valid}
    best = min(times, key=lambda name: median(times[name].values()))
    others = [_interval(times[name], times[best], comparisons=len(valid) - 1) for name in times if name != best]
    return best, all(other is not None and other.lower > 1 for other in others)


def worst_outcome(cells: Sequence[CellResult]) -> CellOutcome:
    """Of all cells; what a backend refuses counts only where nothing else was measured."""
    outcomes = {cell.outcome for cell in cells}
    return max(outcomes - {CellOutcome.REFUSED} or outcomes, key=list(CellOutcome).index)


def _result(
    plan: TaskPlan, cell: TaskCell, runs: Sequence[CellRun], times: dict[int, float], reference: dict[int, float]
) -> CellResult:
    outcome, reasons = _outcome(plan, cell, runs)
    speeds = [run.speed for run in runs if run.speed is not None]
    trainings = tuple(run.training for run in runs if run.training is not None)
    qualities = [run.quality.value for run in runs if run.quality is not None]
    qualities += [training.last.quality for training in trainings]
    is_first = cell == plan.cells[0]
    return CellResult(
        cell=cell,
        outcome=outcome,
        reasons=reasons,
        score=median(_to_target(trainings)) if _to_target(trainings) else score_of(plan.scenario, speeds),
        rounds=len(speeds) + len(trainings),
        quality=min(qualities, default=None),
        trainings=trainings,
        loaded=next((run.loaded for run in runs if run.loaded is not None), None),
        over_reference=None if is_first else _interval(times, reference, comparisons=len(plan.cells) - 1),
    )


def _outcome(plan: TaskPlan, cell: TaskCell, runs: Sequence[CellRun]) -> tuple[CellOutcome, tuple[Fact, ...]]:
    for run in runs:
        if run.problem is not None:
            kinds = {
                "task.refused": CellOutcome.REFUSED,
                "task.no_hardware": CellOutcome.REFUSED,
                "task.interrupted": CellOutcome.UNMEASURED,
            }
            return kinds.get(run.problem.code, CellOutcome.FAILED), (run.problem,)
    if plan.scenario is Scenario.TRAINING:
        return _outcome_of_training(plan, cell, runs)
    speeds, quality = [run.speed for run in runs if run.speed], [run.quality for run in runs if run.quality]
    if not speeds or not quality or not any(run.loaded for run in runs):
        return CellOutcome.UNMEASURED, (_ended_early(len(runs), plan.rounds + 1),)
    broken = [*_precision(cell, runs), *(found for speed in speeds for found in _broken(speed))]
    target = plan.task.quality
    if quality[0].value < target.least:
        missed = fact(
            "task.quality_missed",
            severity=Severity.GRAVE,
            metric=target.metric.value,
            quality=quality[0].value,
            least=target.least,
        )
        broken.append(missed)
    if not quality[0].is_as_in_speed:
        broken.append(fact("task.answers_differ", severity=Severity.GRAVE))
    contended = [ratio for speed in speeds if (ratio := speed.wall_per_cpu) is not None and ratio > MOST_WALL_PER_CPU]
    notes = [fact("task.contended", severity=Severity.NOTABLE, wall_per_cpu=max(contended))] if contended else []
    if broken:
        return CellOutcome.INVALID, (*broken, *notes)
    return (CellOutcome.VALID if _has_quality(plan, runs) else CellOutcome.SPEED_ONLY), tuple(notes)


def _has_quality(plan: TaskPlan, runs: Sequence[CellRun]) -> bool:
    """Whether answers say something: they agree with labels, or with those of weights that were trained."""
    kind = plan.task.quality.kind
    has_weights = all(run.loaded.has_real_weights for run in runs if run.loaded is not None)
    return kind is QualityKind.LABELLED or (kind is QualityKind.REAL_WEIGHTS and has_weights)


def _outcome_of_training(
    plan: TaskPlan, cell: TaskCell, runs: Sequence[CellRun]
) -> tuple[CellOutcome, tuple[Fact, ...]]:
    trainings = [run.training for run in runs if run.training is not None]
    if not trainings:
        return CellOutcome.UNMEASURED, (_ended_early(0, plan.rounds),)
    broken, target = _precision(cell, runs), plan.task.quality
    if missed := [training for training in trainings if not training.is_reached]:
        worst = min(missed, key=lambda training: training.last.quality)
        broken.append(
            fact(
                "task.not_reached",
                severity=Severity.GRAVE,
                missed=len(missed),
                seeds=len(trainings),
                metric=target.metric.value,
                quality=worst.last.quality,
                least=target.least,
                limit_s=plan.task.training_limit_s,
            )
        )
    if broken:
        return CellOutcome.INVALID, tuple(broken)
    if len(trainings) < plan.rounds:
        return CellOutcome.UNMEASURED, (_ended_early(len(trainings), plan.rounds),)
    return CellOutcome.VALID, ()


def _ended_early(done: int, wanted: int) -> Fact:
    return fact("task.ended_early", severity=Severity.NOTABLE, done=done, wanted=wanted)


def _to_target(trainings: Sequence[MeasuredTraining]) -> list[float]:
    """Seconds of the trainings that reached it."""
    return [training.last.wall_s for training in trainings if training.is_reached]


def _precision(cell: TaskCell, runs: Sequence[CellRun]) -> list[Fact]:
    """Whether what ran is what was asked for."""
    loaded = next(run.loaded for run in runs if run.loaded is not None)
    found = []
    if loaded.ran_in != cell.precision.value:
        found.append(
            fact("task.other_precision", severity=Severity.GRAVE, asked=cell.precision.value, ran_in=loaded.ran_in)
        )
    if cell.precision is ModelPrecision.FP32 and loaded.snr_db is not None and loaded.snr_db < LEAST_SNR_DB:
        found.append(fact("task.not_fp32", severity=Severity.GRAVE, snr_db=loaded.snr_db, least_db=LEAST_SNR_DB))
    return found


def _broken(speed: MeasuredSpeed) -> list[Fact]:
    """Rules that a measurement of speed breaks."""
    found = []
    if not speed.is_valid:
        reason = speed.invalid_because[0] if speed.invalid_because else None
        found.append(fact("task.loadgen_invalid", severity=Severity.GRAVE, queries=speed.queries, reason=reason))
    if not speed.is_confirmed:
        found.append(
            fact("task.clocks_disagree", severity=Severity.GRAVE, loadgen_s=speed.p90_s, own_s=speed.own_p90_s)
        )
    return found


def score_of(scenario: Scenario, speeds: Sequence[MeasuredSpeed]) -> float | None:
    """Seconds of a query, or samples per second; the median over rounds."""
    if scenario is Scenario.OFFLINE:
        values = [speed.samples_per_s for speed in speeds]
    elif scenario is Scenario.SERVER:
        values = [speed.p90_s for speed in speeds]
    else:
        values = [speed.score_s if speed.score_s is not None else speed.p90_s for speed in speeds]
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _times(plan: TaskPlan, runs: Sequence[CellRun]) -> dict[int, float]:
    """By round: a figure that grows with the time that a query takes."""
    if plan.scenario is Scenario.TRAINING:
        done = [run.training for run in runs if run.training is not None]
        return {training.seed: training.last.wall_s for training in done if training.is_reached}
    found = {run.round: score_of(plan.scenario, [run.speed]) for run in runs if run.speed is not None}
    is_rate = plan.scenario is Scenario.OFFLINE
    return {number: 1 / value if is_rate else value for number, value in found.items() if value}


def _interval(times: dict[int, float], reference: dict[int, float], *, comparisons: int) -> Interval95 | None:
    """Times over those of the reference in the same rounds; None with too few rounds.

    The level holds for all comparisons of a run together (Bonferroni).
    """
    rounds = sorted(times.keys() & reference.keys())
    if len(rounds) < MIN_ROUNDS:
        return None
    logs = [math.log(times[number] / reference[number]) for number in rounds]
    found = estimate_paired(logs, 1 - 0.05 / max(1, comparisons))
    return Interval95(
        ratio=math.exp(found.log_ratio), lower=math.exp(found.interval.lower), upper=math.exp(found.interval.upper)
    )
