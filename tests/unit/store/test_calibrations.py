from __future__ import annotations

import json

import pytest

from perfguard.errors import StoreError
from perfguard.records.calibration import Calibration, CaseSample, PlannedCase
from perfguard.records.facts import fact
from perfguard.store.calibrations import (
    banked_file,
    calibration_file,
    calibration_text,
    load_calibration,
    load_plan,
    plan_file,
    save_calibration,
    save_plan,
)
from tests.calibrated_machines import SCOPE, gate_of, plan_of
from tests.changed_values import replace

GATE = gate_of(
    "20260102T030405-aaaaaa",
    blocks=3,
    block_s=4.25,
    duration_s=20.0,
    overhead_s=7.5,
    cases={
        "kernel.x[m=1]": CaseSample(
            gating=True, block_log_ratios=(0.001234, -0.000002, 1e-06), samples=12, sample_variance=2.5e-05
        ),
        "kernel.y": CaseSample(gating=False, block_log_ratios=(), samples=1, sample_variance=None),
    },
)
SAMPLE = GATE.cases["kernel.x[m=1]"]
CALIBRATION = Calibration(perfguard="0.1.0", suite="pr", scope=SCOPE, gates=(GATE,))
PLAN = plan_of(
    PlannedCase(
        case_id="kernel.x[m=1]",
        block_sd=None,
        margin_ratio=0.005,
        blocks=None,
        minutes=None,
        gating=False,
        reason=fact("plan.never_measured"),
    ),
    minutes=3.5,
)


@pytest.fixture
def path(tmp_path):
    return calibration_file(tmp_path / "baselines", "intel-x-1", "pr")


def test_what_was_saved_is_loaded(path, tmp_path):
    save_calibration(path, CALIBRATION)
    assert load_calibration(path) == CALIBRATION
    assert path == tmp_path / "baselines" / "intel-x-1" / "pr" / "calibration.json"
    beside = plan_file(tmp_path / "baselines", "intel-x-1", "pr")
    save_plan(beside, PLAN)
    assert load_plan(beside) == PLAN
    assert beside.parent == path.parent


def test_banked_gates_lie_where_git_does_not_look(tmp_path):
    assert banked_file(tmp_path, "m", "pr").relative_to(tmp_path).parts[0] == ".perfguard"


def test_a_run_that_a_merge_left_twice_counts_once(path):
    later = replace(GATE, run_id="20260103T030405-bbbbbb", finished_at="2026-01-03T03:04:05Z")
    save_calibration(path, replace(CALIBRATION, gates=(GATE, later, GATE, later, later)))
    assert load_calibration(path).gates == (GATE, later)


def test_nothing_stored_is_no_error(path):
    assert load_calibration(path) is None
    assert load_plan(path.with_name("plan.json")) is None


def test_numbers_of_a_case_stand_on_one_line():
    lines = calibration_text(CALIBRATION).splitlines()
    assert '     "block_log_ratios": [0.001234, -2e-06, 1e-06],' in lines
    assert json.loads(calibration_text(CALIBRATION))["gates"][0]["cases"]["kernel.y"]["block_log_ratios"] == []


def test_text_that_looks_like_numbers_is_left_alone():
    odd = replace(CALIBRATION, suite="[\n 1,\n 2\n]")
    assert json.loads(calibration_text(odd))["suite"] == odd.suite


def test_a_further_gate_only_adds_lines():
    later = replace(GATE, run_id="20260103T030405-bbbbbb", finished_at="2026-01-03T03:04:05Z")
    before = calibration_text(CALIBRATION).splitlines()
    after = iter(calibration_text(replace(CALIBRATION, gates=(GATE, later))).splitlines())
    changed = [line for line in before if not any(line == other for other in after)]
    assert changed in ([], ["  }"])  # the comma behind the last gate


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is corrupt .*restore it from git, or remove it and run `perfguard calibrate`"),
        ("[]", "has schema None, this perfguard reads 1"),
        ('{"schema": 2}', "has schema 2, this perfguard reads 1; update perfguard"),
        ('{"schema": 1, "suite": 3}', "is not valid"),
        ("[" * 100_000, "is corrupt"),
    ],
)
def test_a_file_that_is_something_else_is_refused(path, text, message):
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StoreError, match=message):
        load_calibration(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scope": replace(SCOPE, alpha=0.0)}, "alpha 0.0 or margin_ratio 0.005 is impossible"),
        ({"gates": (replace(GATE, finished_at="yesterday"),)}, "finished_at 'yesterday' of run .* is no time"),
        ({"gates": (replace(GATE, block_s=1e999),)}, "is not valid"),
        ({"gates": (replace(GATE, blocks=10**400),)}, "is impossible"),
        ({"gates": (replace(GATE, block_s=-1.0),)}, "a value of run .* is impossible"),
        ({"gates": (replace(GATE, cases={"x": replace(SAMPLE, samples=-3)}),)}, "is impossible"),
        ({"gates": (replace(GATE, cases={"x": replace(SAMPLE, block_variances=(-1e-6,))}),)}, "is impossible"),
        ({"gates": (replace(GATE, cases={"x": replace(SAMPLE, block_log_ratios=(0.0, -1e300))}),)}, "is impossible"),
        ({"gates": (replace(GATE, outcome="purple"),)}, "outcome 'purple' of run .* is unknown"),
    ],
)
def test_values_that_no_gate_can_have_written_are_refused(path, changes, message):
    save_calibration(path, replace(CALIBRATION, **changes))
    with pytest.raises(StoreError, match=message):
        load_calibration(path)


def test_infinite_block_values_are_refused(path):
    save_calibration(path, CALIBRATION)
    path.write_text(path.read_text().replace("0.001234", "Infinity"), encoding="utf-8")
    with pytest.raises(StoreError, match="a value of run 20260102T030405-aaaaaa is impossible"):
        load_calibration(path)


def test_a_plan_that_is_something_else_names_its_command(path):
    path.parent.mkdir(parents=True)
    path.write_text("?", encoding="utf-8")
    with pytest.raises(StoreError, match="run `perfguard plan --write`"):
        load_plan(path)


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        save_calibration(tmp_path / "file" / "calibration.json", CALIBRATION)
