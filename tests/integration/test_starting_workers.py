"""Workers and control workloads that cannot start, and cases that end a calibration's worker. No torch."""

from __future__ import annotations

import os
import sys

import pytest

from perfguard.errors import MeasurementError
from perfguard.records.events import Noted
from perfguard.records.facts import fact
from perfguard.records.plan import ArmSpec
from perfguard.records.run import Arm
from perfguard.runner.arms.resolve import resolve_arm
from perfguard.runner.blocks.calibrate import ArmCalibration, calibrate_arm
from tests.real_workers import arm_settings, plain_case
from tests.worker_rigs import completed


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
    object.__setattr__(made.starter, "control_bundle", str(tmp_path / "absent"))
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
