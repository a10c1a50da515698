"""How workers and control workloads start and cannot start, and cases that end a calibration's worker. No torch."""

from __future__ import annotations

import contextlib
import os
import sys

import psutil
import pytest
from msgspec.structs import force_setattr

from perfguard.errors import MeasurementError
from perfguard.records.events import Noted
from perfguard.records.facts import fact
from perfguard.records.plan import ArmSpec
from perfguard.records.run import Arm
from perfguard.runner.arms.resolve import resolve_arm
from perfguard.runner.blocks.calibrate import ArmCalibration, calibrate_arm
from perfguard.runner.blocks.measure import BLOCKS_OF_A_HASH_SEED, plan_block
from perfguard.runner.process.arm_worker import ArmWorker
from perfguard.runner.process.worker_process import WorkerFailure
from tests.changed_values import replace
from tests.real_workers import arm_settings, plain_case
from tests.worker_rigs import IMPATIENT, completed


def test_an_interpreter_that_cannot_run_the_worker_is_an_error_with_its_words(rig, tmp_path):
    made = rig("")
    (tmp_path / "tree" / "python").write_text(
        f'#!/bin/sh\n[ "$2" = -c ] && exec {sys.executable} "$@"\necho this python is broken >&2\nexit 9\n'
    )
    (tmp_path / "tree" / "python").chmod(0o755)
    spec = ArmSpec(text="python:./python", interpreter="./python")
    settings = arm_settings(made.tree, tmp_path / "again")
    made.starter.arms[Arm.CANDIDATE] = resolve_arm(spec, Arm.CANDIDATE, settings, os.environ)
    with pytest.raises(MeasurementError, match="(?s)ended by itself with exit code 9.*this python is broken"):
        made.measure("good")


def test_a_control_workload_that_cannot_start_is_only_noted(rig, tmp_path):
    made = rig("")
    force_setattr(made.starter, "control_bundle", str(tmp_path / "absent"))
    events = made.measure("good")
    assert completed(events) == ["good", "good"]
    assert any(isinstance(event, Noted) and event.fact.code == "control.missing" for event in events)


def test_calibration_names_the_case_that_took_the_worker_down_and_measures_the_others(rig):
    made = rig("import os\ndef bad(): os._exit(5)\ndef worse(): os.abort()")
    calibration = ArmCalibration(
        starter=made.starter,
        settings=made.starter.settings,
        cpus=made.starter.cpus,
        needs_torch=False,
        should_stop=lambda: False,
        progress=lambda _: None,
    )
    arm = made.starter.arms[Arm.BASELINE]
    cases = [plain_case(name) for name in ("bad", "good", "worse")]
    report = calibrate_arm(Arm.BASELINE, cases, calibration, roots=arm.code_roots, foreign_roots=())
    assert {name: failure.reason for name, failure in report.failed.items()} == {
        "bad": fact("case.exited", exit_code=5),
        "worse": fact("case.crashed", signal="SIGABRT"),
    }
    assert 0 < report.iteration_s["good"] < 1
    assert [module["path"] for module in report.attested["modules"]] == ["bench.py"]


def test_workers_are_forked_from_one_process_as_long_as_the_hash_seed_stays(rig):
    made = rig("")
    parents = []
    for block in range(2 * BLOCKS_OF_A_HASH_SEED):
        with begun(made.starter, block) as worker:
            parents.append(psutil.Process(worker.processes()[0]).ppid())
    first, second = parents[:BLOCKS_OF_A_HASH_SEED], parents[BLOCKS_OF_A_HASH_SEED:]
    assert (len(set(first)), len(set(second)), len(set(parents))) == (1, 1, 2)
    assert not any(map(psutil.pid_exists, set(first)))


def test_a_worker_sees_nothing_of_what_the_one_before_it_did(rig):
    made = rig(
        """
        import json, os
        def counting():
            os.environ["CALLS"] = str(int(os.environ.get("CALLS", 0)) + 1)
            json.calls = getattr(json, "calls", 0) + 1
            return lambda: float(os.environ["CALLS"]) + 10 * json.calls
        """
    )
    results = []
    for block in range(2):
        with begun(made.starter, block) as worker:
            results.append(worker.prepare(plain_case("counting"), seed=1, check=False).digest)
    assert results == [11.0, 11.0]


def test_workers_of_one_server_live_beside_each_other(rig):
    made = rig("")
    with begun(made.starter, 0) as first:
        with begun(made.starter, 1) as second:
            assert first.processes() != second.processes()
            assert second.prepare(plain_case("good"), seed=1, check=False).digest > 0
        assert first.prepare(plain_case("good"), seed=1, check=False).digest > 0


def test_a_block_whose_server_was_killed_has_a_new_one(rig):
    made = rig("")
    with begun(made.starter, 0) as worker:
        server = psutil.Process(worker.processes()[0]).parent()
    server.kill()
    server.wait(10)
    with begun(made.starter, 1) as worker:
        assert worker.prepare(plain_case("good"), seed=1, check=False).digest > 0


def test_a_worker_whose_server_is_killed_fails_as_one_that_was_killed(rig):
    made = rig("")
    with begun(made.starter, 0) as worker:
        server = psutil.Process(worker.processes()[0]).parent()
        server.kill()
        server.wait(10)
        with pytest.raises(WorkerFailure) as failure:
            worker.prepare(plain_case("good"), seed=1, check=False)
    assert failure.value.found.code == "case.killed"


def test_what_a_crashed_worker_leaves_in_a_session_of_its_own_ends_before_the_next_block(rig):
    made = rig(
        """
        import os, subprocess
        def bad():
            subprocess.Popen(["sleep", "600"], start_new_session=True)
            os._exit(7)
        """
    )
    with begun(made.starter, 0) as worker, pytest.raises(WorkerFailure):
        worker.prepare(plain_case("bad"), seed=1, check=False)
    with begun(made.starter, 1):
        assert not [process for process in psutil.process_iter(["cmdline"]) if is_left_in(process, made.tree)]


def is_left_in(process, tree):
    try:
        return process.cmdline() == ["sleep", "600"] and process.cwd() == str(tree)
    except psutil.Error:
        return False


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("import time; time.sleep(600)", "case.timed_out", ""),
        ("import os, sys; print('no', file=sys.stderr, flush=True); os.abort()", "case.crashed", "no"),
    ],
)
def test_an_import_before_the_fork_that_hangs_or_crashes_fails_the_worker(rig, source, code, words):
    made = rig("", replace(IMPATIENT, setup_timeout_s=3))
    (made.tree / "broken.py").write_text(source)
    starter = replace(made.starter, preloads=("broken",))
    with pytest.raises(WorkerFailure) as failure, begun(starter, 0):
        pass
    assert failure.value.found.code == code
    assert words in failure.value.detail
    starter.close()


def test_an_import_before_the_fork_that_fails_is_left_to_the_worker(rig):
    made = rig("")
    starter = replace(made.starter, preloads=("no_such_module",))
    with begun(starter, 0) as worker:
        assert worker.prepare(plain_case("good"), seed=1, check=False).digest > 0
    starter.close()


@contextlib.contextmanager
def begun(starter, block):
    """A worker of the candidate in this block, which imports no torch."""
    process = starter.start(Arm.CANDIDATE, plan_block(1, index=block, seed=1), starter.settings)
    worker = ArmWorker(Arm.CANDIDATE, process, starter.settings)
    try:
        worker.hello({"import_torch": False}, cpus=starter.cpus)
        yield worker
    finally:
        worker.close()
