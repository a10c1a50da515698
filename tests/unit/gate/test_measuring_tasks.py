"""Runs and audits of tasks whose measurements are made up: what is measured, in which order, and what it comes to."""

from __future__ import annotations

import json
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest

from perfguard.config import Config, LoadedConfig
from perfguard.errors import StoreError, UsageError
from perfguard.gate import task_audits, tasks
from perfguard.gate.task_audits import audit_package, package_in
from perfguard.gate.tasks import PACKAGE, Asked, recorded_task, run_task
from perfguard.records.facts import Severity, fact
from perfguard.records.run_data import RunData
from perfguard.records.task_results import CellOutcome, CellRun, MeasuredQuality
from perfguard.records.tasks import ComplianceTest, DataPart, Hardware, Mode, Scenario, Size, TaskCell
from perfguard.runner.session import Request
from perfguard.tasks.loadgen_logs import ACCURACY
from perfguard.tasks.task_files import parse_task
from tests.git_repositories import init_repository
from tests.task_records import FIRST, LOADED, OWN, SECOND, speed

CRASHED = fact("task.crashed", severity=Severity.GRAVE, signal="SIGSEGV")
ANSWERS = {index: np.array([index, 1.0, -1.0], np.float32).tobytes() for index in range(4)}
HONEST = {
    None: {"mean_s": 0.01},
    ComplianceTest.SAMPLED: {"mean_s": 0.01},
    ComplianceTest.UNIQUE: {"mean_s": 0.01},
    ComplianceTest.SAME: {"mean_s": 0.01},
}


class Machine:
    """Takes the place of `measure_cell`; what it was asked for, and what it answers."""

    def __init__(self):
        self.jobs = []
        self.seconds = 0.01
        self.quality = 0.9
        self.speeds = HONEST
        self.sampled = ANSWERS
        self.broken = set()
        self.ctrl_c_at = None
        """The measurement during which the user interrupts."""

    def __call__(self, job, watch, *, number, place):
        self.jobs.append(job)
        if len(self.jobs) == self.ctrl_c_at:
            signal.raise_signal(signal.SIGINT)
        logs = Path(job.logs)
        logs.mkdir(parents=True)
        found = {}
        if job.cell.backend in self.broken:
            found["problem"] = CRASHED
        elif job.mode is Mode.ACCURACY:
            found["quality"] = MeasuredQuality(value=self.quality, examples=100, answers_sha256="a")
            write_answers(logs, ANSWERS)
        else:
            found["speed"] = speed(self.seconds, **self.speeds[job.test])
            if job.test is ComplianceTest.SAMPLED:
                write_answers(logs, self.sampled)
        return CellRun(
            cell=job.cell, scenario=job.scenario, mode=job.mode, round=number, logs=place, loaded=LOADED,
            began_at=float(len(self.jobs)), ended_at=len(self.jobs) + 0.5, test=job.test, **found,
        )  # fmt: skip

    @property
    def order(self):
        return [(job.mode, job.cell.backend, job.test) for job in self.jobs]


def write_answers(folder, answers):
    listed = [{"seq_id": index, "qsl_idx": index, "data": data.hex().upper()} for index, data in answers.items()]
    (folder / ACCURACY).write_text(json.dumps(listed))


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(tasks, "measure_cell", made)
    for module in (tasks, task_audits):
        monkeypatch.setattr(module, "cool_down", lambda *_, **__: None)
    return made


@pytest.fixture
def request_of(tmp_path, monkeypatch):
    project = init_repository(tmp_path / "project", monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the host's lock is another one

    def make(**fields):
        known = {"command": "task", "arguments": (), "suite": "own", "cases": (), "budget_s": 0.0, "inherited": {}}
        return Request(loaded=LoadedConfig(config=Config(seed=5), origins={}, project=project), **{**known, **fields})

    return make


@pytest.fixture
def run(machine, request_of):
    def run(*cells, rounds=3, scenario=Scenario.SINGLE_STREAM, **fields):
        asked = Asked(
            task=parse_task(OWN, "own.toml"), scenario=scenario, size=Size.RAPID, part=DataPart.FULL,
            cells=cells or (FIRST, SECOND), rounds=rounds,
        )  # fmt: skip
        return run_task(request_of(**fields), asked)

    return run


def folder_of(request, result):
    return request.loaded.project / ".perfguard" / "runs" / result.run_id


def test_each_round_has_one_turn_of_each_cell_and_answers_come_last(run, machine):
    result = run()
    modes = [mode for mode, _, _ in machine.order]
    assert modes == [Mode.PERFORMANCE] * 6 + [Mode.ACCURACY] * 2
    for start in (0, 2, 4):
        assert {backend for _, backend, _ in machine.order[start : start + 2]} == {"eager", "onnxruntime"}
    assert [(cell.outcome, cell.rounds, cell.quality) for cell in result.cells] == [(CellOutcome.VALID, 3, 0.9)] * 2
    assert result.exit_code == 0
    # The logs of a cell's times are known where its answers are asked for.
    assert [len(job.speeds) for job in machine.jobs] == [0] * 6 + [3, 3]


def test_a_run_is_read_back_from_its_folder_and_its_package_is_whole(run, request_of):
    result = run()
    folder = folder_of(request_of(), result)
    again = recorded_task(folder, machine=result.machine)
    assert (again.cells, again.exit_code) == (result.cells, 0)
    package = package_in(folder / PACKAGE)
    assert (package.cells, len(package.runs)) == (result.cells, 8)
    (folder / PACKAGE / "package.json").unlink()
    with pytest.raises(UsageError, match=r"package\.json"):
        package_in(folder / PACKAGE)


def test_a_cell_that_crashed_is_not_measured_again_and_leaves_nothing_in_the_package(run, machine, request_of):
    machine.broken.add("onnxruntime")
    result = run()
    assert [backend for _, backend, _ in machine.order].count("onnxruntime") == 1
    assert [cell.outcome for cell in result.cells] == [CellOutcome.VALID, CellOutcome.FAILED]
    assert result.exit_code == 3
    folder = folder_of(request_of(), result)
    assert not [path for path in (folder / PACKAGE).rglob("*") if SECOND.id in path.name]
    assert len(list((folder / "logs").glob(f"{SECOND.id}-performance-*"))) == 1


def test_a_cell_whose_part_of_the_machine_is_not_there_is_refused_without_a_process(run, machine):
    result = run(TaskCell(backend="eager", precision=FIRST.precision, threads=1, hardware=Hardware.E_CORES))
    assert machine.jobs == []
    assert [(cell.outcome, cell.reasons[0].code) for cell in result.cells] == [
        (CellOutcome.REFUSED, "task.no_hardware")
    ]
    assert result.exit_code == 3


def test_an_interrupted_run_keeps_what_it_has(run, machine):
    machine.ctrl_c_at = 1
    result = run()
    assert len(machine.jobs) == 1
    assert result.exit_code == 130
    assert CellOutcome.VALID not in {cell.outcome for cell in result.cells}


def test_a_run_of_another_kind_is_no_task():
    with pytest.raises(StoreError):
        tasks.task_result(RunData(), machine="m")


@pytest.fixture
def audit(run, machine, request_of):
    """Audits the package of an honest run after `change` to the machine."""

    def audit(change=lambda _: None, **fields):
        result = run(FIRST)
        folder = folder_of(request_of(), result) / PACKAGE
        machine.jobs.clear()
        change(machine)
        found = audit_package(request_of(**fields), folder, package_in(folder))
        return found, {each.code for cell in found.cells for each in cell.findings}

    return audit


def test_an_honest_package_is_measured_once_and_by_each_test(audit, machine):
    found, codes = audit()
    assert codes == set()
    assert [test for _, _, test in machine.order] == [None, *ComplianceTest, None]
    assert machine.order[-1][0] is Mode.ACCURACY
    (cell,) = found.cells
    assert (cell.claimed, cell.found, cell.found_quality, cell.is_finished) == (0.01, (0.01,), 0.9, True)


@pytest.mark.parametrize(
    ("change", "code", "tries"),
    [
        (lambda machine: setattr(machine, "seconds", 0.02), "audit.too_slow", 5),
        (lambda machine: setattr(machine, "quality", 0.5), "audit.quality", 1),
        (
            lambda machine: setattr(machine, "speeds", {**HONEST, ComplianceTest.SAME: {"mean_s": 0.001}}),
            "audit.caching",
            1,
        ),
        (
            lambda machine: setattr(machine, "sampled", {index: bytes(12) for index in ANSWERS}),
            "audit.other_answers",
            1,
        ),
        (lambda machine: machine.broken.add("eager"), "task.crashed", 1),
    ],
)
def test_what_an_audit_finds_makes_it_red(audit, machine, change, code, tries):
    found, codes = audit(change)
    assert code in codes
    assert found.exit_code == 1
    plain = [job for job in machine.jobs if job.mode is Mode.PERFORMANCE and job.test is None]
    assert len(plain) == tries


def test_an_interrupted_audit_accuses_nobody(audit):
    def slow_and_interrupted(machine):
        machine.seconds, machine.ctrl_c_at = 0.02, 1

    found, codes = audit(slow_and_interrupted)
    assert (found.exit_code, codes, found.cells[0].is_finished) == (130, set(), False)


def test_a_package_without_a_valid_cell_has_nothing_to_measure_again(run, machine, request_of):
    machine.quality = 0.1
    result = run(FIRST)
    with pytest.raises(UsageError, match="nothing to measure again"):
        package_in(folder_of(request_of(), result) / PACKAGE)
