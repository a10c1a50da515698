"""A process that measures a task and misbehaves: its measurement is a record with the reason."""

from __future__ import annotations

import os
import time

import psutil
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("mlperf_loadgen")

from perfguard.records.tasks import (
    ComplianceTest,
    DataPart,
    Duration,
    Mode,
    ModelPrecision,
    Scenario,
    TaskCell,
    TaskJob,
)
from perfguard.runner.tasks import Watch, measure_cell
from perfguard.tasks.auditing import judge_same
from perfguard.tasks.task_files import parse_task
from tests.task_backends import write_backends
from tests.task_records import FAST


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Weights, trained once for all tests of this file."""
    return tmp_path_factory.mktemp("cache")


def measure(backend, tmp_path, cache, test=None):
    write_backends(tmp_path)
    job = TaskJob(
        task=parse_task(FAST, "fast.toml"),
        cell=TaskCell(backend=backend, precision=ModelPrecision.FP32, threads=1),
        scenario=Scenario.SINGLE_STREAM,
        mode=Mode.PERFORMANCE,
        duration=Duration(min_queries=64, min_s=0.3, max_s=60.0),
        part=DataPart.FULL,
        logs=str(tmp_path / f"logs-{test}"),
        data_folder="",
        cache=str(cache),
        test=test,
    )
    path = os.pathsep.join(each for each in (str(tmp_path), os.environ.get("PYTHONPATH")) if each)
    environment = {**os.environ, "PYTHONPATH": path, "SPAWNED": str(tmp_path / "spawned")}
    watch = Watch(cpus=tuple(os.sched_getaffinity(0)), environment=environment, silent_s=3.0)
    return measure_cell(job, watch, number=0, place="logs")


@pytest.mark.parametrize(
    ("backend", "code", "values"),
    [
        ("raising", "task.failed", {"error": "ValueError: no more of this"}),
        ("killed", "task.crashed", {"signal": "SIGSEGV"}),
        ("leaving", "task.crashed", {"exit_code": 7}),
        ("hanging", "task.silent", {"is_loaded": True}),
        ("refusing", "task.refused", {"reason": "not on this CPU"}),
    ],
)
def test_the_reason_is_recorded(tmp_path, cache, backend, code, values):
    run = measure(backend, tmp_path, cache)
    assert run.speed is None
    assert run.problem.code == code
    assert values.items() <= run.problem.values.items()


def test_answers_that_are_kept_make_one_sample_over_and_over_faster(tmp_path, cache):
    unique, same = (measure("caching", tmp_path, cache, test) for test in (ComplianceTest.UNIQUE, ComplianceTest.SAME))
    assert [found.code for found in judge_same(unique.speed, same.speed)] == ["audit.caching"]


def test_programs_that_a_model_starts_end_with_its_measurement(tmp_path, cache):
    run = measure("spawning", tmp_path, cache)
    assert run.problem is None
    started = int((tmp_path / "spawned").read_text())
    until = time.monotonic() + 30
    while psutil.pid_exists(started) and psutil.Process(started).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)
