"""Calibration and planning around a gate that measures nothing: a fake that leaves a run folder behind."""

from __future__ import annotations

import json

import pytest

from perfguard.errors import MeasurementError, StoreError, UsageError
from perfguard.gate.calibrate import calibrate_machine, known_error_rate
from perfguard.gate.calibration.machine_rates import planned_cases
from perfguard.gate.plan import plan_suite, write_plan
from perfguard.host.probe import probe
from perfguard.records.facts import fact
from perfguard.records.spec import Gating
from perfguard.store.calibrations import calibration_file, load_calibration, plan_file
from tests.changed_values import replace
from tests.fake_gates import CASES, SAME, Gates, request_in


@pytest.fixture
def request_(tmp_path):
    return request_in(tmp_path)


@pytest.fixture
def machine_id():
    return probe().machine_id


class TestCalibrating:
    def test_stores_each_gate_and_a_second_call_adds_to_them(self, request_, machine_id, tmp_path):
        path = calibration_file(tmp_path / "baselines", machine_id, "tiny")
        gates = Gates(tmp_path)
        found = calibrate_machine(request_, gates=2, run_gate=gates)
        assert (found.path, len(load_calibration(path).gates)) == (path, 2)
        assert found.state.is_valid, found.state
        again = calibrate_machine(request_, gates=1, run_gate=gates)
        assert len(again.calibration.gates) == 3
        assert (again.error_rate.code, again.error_rate.values["gates"]) == ("rate.calibrated", 3)
        assert again.summary.cases[0].blocks == 24

    def test_compares_the_same_thing_at_other_places_with_another_seed_each_time(self, request_, tmp_path):
        gates = Gates(tmp_path)
        calibrate_machine(request_, gates=3, run_gate=gates)
        assert {(baseline, candidate) for baseline, candidate, _, _ in gates.asked} == {("dir:.", "dir:.")}
        assert len({seed for *_, seed in gates.asked}) == 3
        for _, _, place, _ in gates.asked:
            assert place.path_padding[0] != place.path_padding[1]
            assert place.environment_bytes[0] != place.environment_bytes[1]

    def test_favours_no_arm_with_its_places(self, request_, tmp_path):
        gates = Gates(tmp_path, blocks=2)
        calibrate_machine(request_, gates=20, run_gate=gates)
        longer = sum(place.path_padding[0] > place.path_padding[1] for _, _, place, _ in gates.asked)
        assert 2 <= longer <= 18  # the 1e-4 quantiles of 20 fair draws

    def test_leaves_the_arms_alike_where_no_placebo_is_wanted(self, request_, tmp_path):
        gates = Gates(tmp_path)
        found = calibrate_machine(request_, gates=1, placebo=False, run_gate=gates)
        assert gates.asked[0][2] is None
        assert found.summary.placebo_gates == 0

    def test_resuming_measures_only_what_is_missing(self, request_, tmp_path):
        gates = Gates(tmp_path)
        calibrate_machine(request_, gates=2, run_gate=gates)
        found = calibrate_machine(request_, gates=3, resume=True, run_gate=gates)
        assert (len(found.calibration.gates), len(gates.asked)) == (3, 3)

    def test_an_interrupted_gate_ends_it_and_keeps_those_before(self, request_, tmp_path, machine_id):
        gates = Gates(tmp_path, ends_with=[0, 130])
        found = calibrate_machine(request_, gates=5, run_gate=gates)
        assert found.interrupted
        assert len(gates.asked) == 2
        assert len(load_calibration(found.path).gates) == 1

    def test_a_failing_case_is_no_trial(self, request_, tmp_path):
        with pytest.raises(MeasurementError, match=r"tiny.sort failed \(no memory\), so the gate was not stored"):
            calibrate_machine(request_, gates=1, run_gate=Gates(tmp_path, fails=True))
        assert known_error_rate(request_).calibration is None

    def test_a_gate_without_a_block_says_what_to_raise(self, request_, tmp_path):
        with pytest.raises(MeasurementError, match="raise --budget"):
            calibrate_machine(request_, gates=1, run_gate=Gates(tmp_path, blocks=0))

    def test_starts_afresh_for_another_fingerprint_and_says_so(self, request_, tmp_path):
        found = calibrate_machine(request_, gates=2, run_gate=Gates(tmp_path))
        stored = json.loads(found.path.read_text())
        stored["scope"]["software"] = {"python": "2.7.18"}
        found.path.write_text(json.dumps(stored))
        expired = known_error_rate(request_)
        assert (expired.state.reason.values["what"], expired.state.reason.values["before"]) == ("python", "2.7.18")
        assert expired.error_rate.code == "rate.expired"
        again = calibrate_machine(request_, gates=1, run_gate=Gates(tmp_path))
        assert len(again.calibration.gates) == 1
        assert [note.code for note in again.notes] == ["calibration.replaced", "calibration.changed"]

    def test_gates_of_other_cases_than_the_suite_has_now_do_not_count(self, request_, tmp_path):
        calibrate_machine(request_, gates=2, run_gate=Gates(tmp_path))
        smaller = replace(request_, cases=CASES[:1])
        assert known_error_rate(smaller).calibration is None
        again = calibrate_machine(smaller, gates=3, resume=True, run_gate=Gates(tmp_path))
        assert len(again.calibration.gates) == 3
        assert [(note.code, note.values) for note in again.notes] == [("calibration.of_other_cases", {"gates": 2})]
        assert {case.case_id for case in again.summary.cases} == {CASES[0].id}

    def test_a_corrupt_file_is_not_overwritten(self, request_, machine_id, tmp_path):
        path = calibration_file(tmp_path / "baselines", machine_id, "tiny")
        path.parent.mkdir(parents=True)
        path.write_text("{")
        with pytest.raises(StoreError, match="is corrupt"):
            calibrate_machine(request_, gates=1, run_gate=Gates(tmp_path))
        assert path.read_text() == "{"


class TestPlanning:
    def test_from_the_calibration(self, request_, tmp_path):
        calibrate_machine(request_, gates=2, run_gate=Gates(tmp_path))
        plan = plan_suite(request_, detect_ratio=0.02, power=0.95)
        assert [case.gating for case in plan.cases] == [True, True]
        assert (plan.source.code, plan.source.values["gates"]) == ("plan.from_calibration", 2)
        assert plan.minutes == max(case.minutes for case in plan.cases)

    def test_from_the_latest_run_where_nothing_is_calibrated(self, request_, tmp_path):
        Gates(tmp_path)(replace(request_, suite="other"), SAME, SAME)
        wanted = Gates(tmp_path)(request_, SAME, SAME)
        plan = plan_suite(request_, detect_ratio=0.02, power=0.95)
        assert plan.source == fact("plan.from_run", run_id=wanted.run_id, status="absent")
        assert plan.cases[0].blocks is not None

    def test_without_either_says_what_to_do(self, request_):
        with pytest.raises(StoreError, match="nothing is known of the noise of suite 'tiny'.*no paired run"):
            plan_suite(request_, detect_ratio=0.02, power=0.95)

    @pytest.mark.parametrize(
        ("detect_ratio", "power", "message"),
        [
            (0.005, 0.9, "not above the margin"),
            (10.0, 0.9, "below 1000%"),
            (0.02, 1.0, "--power 100% cannot be planned for"),
            (0.02, 0.9999, "--power 99.99% cannot be planned for"),
            (0.02, 0.1, "--power 10% cannot be planned for"),
        ],
    )
    def test_impossible_requests_are_refused_before_anything_is_read(self, request_, detect_ratio, power, message):
        with pytest.raises(UsageError, match=message):
            plan_suite(request_, detect_ratio=detect_ratio, power=power)

    def test_a_suite_that_only_reports_needs_no_plan(self, request_):
        advisory = tuple(replace(case, gating=Gating.ADVISORY) for case in CASES)
        with pytest.raises(UsageError, match="has no gating case"):
            plan_suite(replace(request_, cases=advisory), detect_ratio=0.02, power=0.9)

    def test_a_written_plan_is_honoured_on_the_same_cpus_only(self, request_, tmp_path, machine_id):
        calibrate_machine(request_, gates=2, run_gate=Gates(tmp_path, sd=0.05))
        plan = plan_suite(request_, detect_ratio=0.02, power=0.95)
        assert write_plan(request_, plan) == plan_file(tmp_path / "baselines", machine_id, "tiny")
        cases, notes = planned_cases(request_, machine_id=machine_id, cpus=plan.cpus)
        assert {case.gating for case in cases} == {Gating.ADVISORY}
        assert [note.values["date"] for note in notes] == [plan.created_at[:10]] * 2
        unchanged, notes = planned_cases(request_, machine_id=machine_id, cpus=plan.cpus + 1)
        assert unchanged == CASES
        assert [(note.code, note.values["what"]) for note in notes] == [("plan.unused", "CPUs")]
        assert notes[0].values["date"] == plan.created_at[:10]
        assert planned_cases(replace(request_, suite="tiny.sum"), machine_id=machine_id, cpus=plan.cpus) == (CASES, ())

    def test_a_corrupt_plan_is_said_and_changes_nothing(self, request_, tmp_path, machine_id):
        path = plan_file(tmp_path / "baselines", machine_id, "tiny")
        path.parent.mkdir(parents=True)
        path.write_text("?")
        cases, notes = planned_cases(request_, machine_id=machine_id, cpus=1)
        assert cases == CASES
        assert [note.code for note in notes] == ["plan.unreadable"]
