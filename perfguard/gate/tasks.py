"""`perfguard task`: measures the cells of a task, all times before all answers, and judges them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perfguard.errors import ExitCode, MeasurementError, StoreError
from perfguard.host.cooling import Heat, cool_down, heat_now
from perfguard.host.hardware_arms import cpus_on
from perfguard.host.identity import machine_line
from perfguard.records.events import RunFinished
from perfguard.records.facts import Severity, fact
from perfguard.records.run_data import RunData
from perfguard.records.task_results import CellOutcome, CellResult, CellRun, Package, TaskResult
from perfguard.records.tasks import (
    ComplianceTest,
    Cooling,
    DataPart,
    Mode,
    Scenario,
    Size,
    TaskCell,
    TaskConfig,
    TaskJob,
    TaskPlan,
)
from perfguard.runner.arms import git
from perfguard.runner.run_folder import read_events
from perfguard.runner.session import Request, Session, open_session
from perfguard.runner.tasks import Watch, measure_cell
from perfguard.tasks.judging import judge, recommendation, worst_outcome
from perfguard.tasks.packages import describe_system, logs_folder, write_manifest
from perfguard.tasks.places import tasks_cache, tasks_home
from perfguard.tasks.task_files import duration_of, pause_s

MODE = "task"
RESULT = "task.json"
PACKAGE = "package"
"""Folder with everything that somebody else needs to check a run, and to run it again."""


class Asked(Struct, frozen=True, kw_only=True):
    """What a run of a task is asked for."""

    task: TaskConfig
    scenario: Scenario
    size: Size
    part: DataPart
    cells: tuple[TaskCell, ...]
    rounds: int
    is_open: bool = False


def run_task(request: Request, asked: Asked) -> TaskResult:
    """Measure, judge and record.

    Raises:
        PerfguardError: Nothing can be measured on this host.
    """
    with open_session(request, mode=MODE) as session:
        if git.tree_state(session.request.loaded.project).dirty is not None:
            session.note(fact("task.dirty", severity=Severity.NOTABLE))
        start = heat_now()
        plan = TaskPlan(
            task=asked.task,
            scenario=asked.scenario,
            size=asked.size,
            part=asked.part,
            cells=asked.cells,
            rounds=asked.rounds,
            duration=duration_of(asked.task, asked.scenario, asked.size),
            cooling=Cooling(by=start.by, most_s=pause_s(asked.size)),
            is_open=asked.is_open,
        )
        session.folder.write_json("fingerprint.json", session.fingerprint)
        session.emit(plan)
        _measure(session, plan, start)
        result = task_result(session.data, machine=machine_line(session.fingerprint))
        code = ExitCode.INTERRUPTED if session.interrupts.asked else ExitCode(result.exit_code)
        session.emit(RunFinished(outcome=worst_outcome(result.cells).value, exit_code=code, reasons=()))
        result = replace(result, exit_code=int(code), notes=tuple(session.notes))
        session.folder.write_json(RESULT, result)
        if plan.scenario is not Scenario.TRAINING:
            _write_package(session, result)
        return result


def task_result(data: RunData, *, machine: str) -> TaskResult:
    """What a run's events add up to.

    Raises:
        StoreError: They are of another kind of run.
    """
    if data.task is None or data.start is None:
        raise StoreError("the run is not one of a task")
    plan, runs = data.task.plan, data.task.runs
    cells = judge(plan, runs)
    best, is_resolved = recommendation(cells, runs, plan)
    return TaskResult(
        run_id=data.start.run_id,
        machine_id=data.start.machine_id or "unknown",
        machine=machine,
        plan=plan,
        cells=cells,
        recommended=best,
        is_resolved=is_resolved,
        notes=tuple(note.fact for note in data.notes),
        exit_code=data.end.exit_code if data.end is not None else int(_exit_code(cells)),
    )


def recorded_task(folder: Path, *, machine: str) -> TaskResult:
    """What a recorded run came to, from its events.

    Raises:
        StoreError: The events cannot be read, or are of another kind of run.
    """
    return task_result(RunData.of(read_events(folder / "events.jsonl")), machine=machine)


def _measure(session: Session, plan: TaskPlan, start: Heat) -> None:
    """All times in rounds, in which each cell has one turn in an order drawn anew; then all answers."""
    draw, broken = random.Random(session.settings.seed), set[str]()  # noqa: S311 - an order, no secret
    for number in range(plan.rounds):
        for cell in draw.sample(plan.cells, len(plan.cells)):
            if session.interrupts.asked:
                return
            if cell.id not in broken:
                run = measure_one(session, plan, cell, Mode.PERFORMANCE, number)
                if run.problem is not None:
                    broken.add(cell.id)
                cool_down(start, most_s=plan.cooling.most_s, wants_stop=lambda: session.interrupts.asked)
    for cell in plan.cells if plan.scenario is not Scenario.TRAINING else ():
        if session.interrupts.asked:
            return
        if cell.id not in broken:
            measure_one(session, plan, cell, Mode.ACCURACY, 0)


def measure_one(
    session: Session, plan: TaskPlan, cell: TaskCell, mode: Mode, number: int, *, test: ComplianceTest | None = None
) -> CellRun:
    """Measure a cell once; what it came to is an event of the run."""
    session.request.progress(fact("step.task", cell=cell.id, mode=mode.value, round=number + 1, rounds=plan.rounds))
    is_training = plan.scenario is Scenario.TRAINING
    if is_training:
        root, place = session.folder.path / "logs", Path(f"{cell.id}-{number + 1}")
    else:
        root = session.folder.path / PACKAGE
        place = logs_folder(plan, session.fingerprint.machine_id, cell, mode, number, test=test)
    job = TaskJob(
        task=plan.task,
        cell=cell,
        scenario=plan.scenario,
        mode=mode,
        duration=plan.duration,
        part=plan.part,
        logs=str(root / place),
        data_folder=str(tasks_home()),
        cache=str(tasks_cache()),
        seeds=plan.seeds,
        test=test,
        speeds=_speeds_of(session, cell, root) if mode is Mode.ACCURACY else (),
        seed=number,
    )
    cpus = cpus_on(
        cell.hardware,
        session.fingerprint.topology,
        threads=cell.threads,
        selected=session.selection.cpus,
        available=frozenset(os.sched_getaffinity(0)),
    )
    if cpus is None:
        return _without_hardware(session, job, number, str(place))
    watch = Watch(cpus=cpus, environment=session.request.inherited, wants_stop=lambda: session.interrupts.asked)
    run = measure_cell(job, watch, number=number, place=str(place))
    if run.problem is not None and not is_training:
        _set_aside(session.folder.path, place, f"{cell.id}-{mode.value}-{number + 1}")
    session.emit(run)
    return run


def _speeds_of(session: Session, cell: TaskCell, root: Path) -> tuple[str, ...]:
    """Logs of a cell's measurements of speed so far."""
    runs = session.data.task.runs if session.data.task is not None else []
    return tuple(str(root / run.logs) for run in runs if run.cell == cell and run.speed is not None)


def _without_hardware(session: Session, job: TaskJob, number: int, place: str) -> CellRun:
    now, cell = time.time(), job.cell
    problem = fact("task.no_hardware", severity=Severity.NOTABLE, hardware=cell.hardware.value, threads=cell.threads)
    run = CellRun(
        cell=cell,
        scenario=job.scenario,
        mode=job.mode,
        round=number,
        logs=place,
        began_at=now,
        ended_at=now,
        problem=problem,
    )
    session.emit(run)
    return run


def _set_aside(folder: Path, place: Path, name: str) -> None:
    """Move what a failed measurement left out of the package: it is no result, and may say why there is none."""
    (folder / PACKAGE / place).rename(folder / "logs" / name)
    for parent in (folder / PACKAGE / place).parents:
        if parent == folder / PACKAGE or any(parent.iterdir()):
            return
        parent.rmdir()


def _write_package(session: Session, result: TaskResult) -> None:
    root, state = session.folder.path / PACKAGE, git.tree_state(session.request.loaded.project)
    package = Package(
        plan=result.plan,
        runs=tuple(session.data.task.runs) if session.data.task is not None else (),
        cells=result.cells,
        machine_id=result.machine_id,
        commit=state.commit,
        is_dirty=state.dirty is not None,
    )
    try:
        describe_system(root, result.plan, result.machine_id, session.fingerprint)
        write_manifest(root, package)
    except OSError as error:
        raise MeasurementError(f"{root} cannot be written: {error.strerror or error}") from error


def _exit_code(cells: Sequence[CellResult]) -> ExitCode:
    outcomes = {cell.outcome for cell in cells}
    if CellOutcome.INVALID in outcomes:
        return ExitCode.REGRESSION
    if outcomes <= {CellOutcome.REFUSED, CellOutcome.FAILED} or CellOutcome.FAILED in outcomes:
        return ExitCode.INFRASTRUCTURE
    return ExitCode.INCONCLUSIVE if CellOutcome.UNMEASURED in outcomes else ExitCode.PASS
