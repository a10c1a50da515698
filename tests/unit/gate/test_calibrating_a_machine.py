"""Calibration and planning around a gate that measures nothing: a fake that leaves a run folder behind."""

from __future__ import annotations

import json
import platform
from dataclasses import replace

import numpy as np
import pytest

from perfguard.config import Config, LoadedConfig
from perfguard.errors import MeasurementError, StoreError, UsageError
from perfguard.gate.calibrate import calibrate_machine, known_error_rate
from perfguard.gate.calibration.aa_gates import calibrated_margins
from perfguard.gate.calibration.machine_rates import bank, gate_error_rate, is_bankable, planned_cases, scope_of
from perfguard.gate.plan import plan_suite, write_plan
from perfguard.gate.rules.compare import compare_paired
from perfguard.host.identity import stack_id
from perfguard.host.parsers.software import decode_software
from perfguard.host.probe import probe
from perfguard.records.events import BlockFinished, BlockStarted, CaseCalibrated, CaseFinished, RunStarted, SampleTimed
from perfguard.records.facts import fact
from perfguard.records.plan import DEFAULT_GATE, FOR_CALIBRATION, MeasureSettings
from perfguard.records.result import ArmSummary, RunResult
from perfguard.records.run import Arm, CaseFailed
from perfguard.records.run_data import RunData
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import GateOutcome, Policy
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.run_folder import RunFolder
from perfguard.runner.session import Interrupts, Request, Session, choose_cpus
from perfguard.store.calibrations import banked_file, calibration_file, load_calibration, plan_file
from tests.compared_cases import judge

CASES = (
    Case(benchmark="tiny.sum", target="bench.py:sum", tags=("no-torch",)),
    Case(benchmark="tiny.sort", target="bench.py:sort", tags=("no-torch",)),
)
SAME = parse_arm("dir:.")


@pytest.fixture
def request_(tmp_path):
    loaded = LoadedConfig(config=Config(suite="tiny", seed=5), origins={}, project=tmp_path)
    return Request(
        command="calibrate",
        arguments=(),
        loaded=loaded,
        suite="tiny",
        cases=CASES,
        budget_s=60.0,
        inherited={},
        gate=FOR_CALIBRATION,
    )


@pytest.fixture
def machine_id():
    return probe().machine_id


class Gates:
    """Stands in for `compare_arms`: writes the events of identical arms, and remembers what it was asked for."""

    def __init__(self, project, *, sd=0.002, shift=0.0, ends_with=(), fails=False, blocks=8):
        self.project, self.sd, self.shift, self.ends_with, self.fails, self.blocks = (
            project,
            sd,
            shift,
            list(ends_with),
            fails,
            blocks,
        )
        self.asked = []
        self.rng = np.random.default_rng(0)

    def __call__(self, request, baseline, candidate, *, place=None):
        self.asked.append((baseline.text, candidate.text, place, request.loaded.config.seed))
        folder = RunFolder.create(self.project)
        data = RunData()
        for event in self.events(request, folder.run_id):
            folder.emit(event)
            data.add(event)
        folder.close()
        result = result_of(request, folder, data)
        code = self.ends_with.pop(0) if self.ends_with else 0
        return replace(result, exit_code=code)

    def events(self, request, run_id):
        yield RunStarted(
            run_id=run_id,
            schema=1,
            mode="paired",
            suite=request.suite,
            case_ids=tuple(case.id for case in request.cases),
            command=(),
            budget_s=request.budget_s,
            machine_id=probe().machine_id,
        )
        for case in request.cases:
            yield CaseCalibrated(case_id=case.id, inner_loops=10, iteration_s=1e-3)
        for block in range(self.blocks):
            yield BlockStarted(block=block, hash_seed=1, data_seed=1, case_ids=())
            for case in request.cases:
                ratio = float(np.exp(self.shift + self.sd * self.rng.standard_normal()))
                yield from (
                    SampleTimed(
                        block=block,
                        case_id=case.id,
                        arm=arm,
                        index=index,
                        warmup=False,
                        value_s=1e-3 * (ratio if arm is Arm.CANDIDATE else 1.0) * (1 + 0.001 * index),
                        cpu_s=1e-3,
                        minor_faults=0,
                        involuntary_switches=0,
                    )
                    for index in range(4)
                    for arm in Arm
                )
                yield CaseFinished(block=block, case_id=case.id, baseline_digest=1.0, candidate_digest=1.0)
            yield BlockFinished(block=block, started_at=0.0, duration_s=2.0, steal_ratio=0.0, involuntary_switches=0)
        if self.fails:
            yield CaseFailed(
                case_id="tiny.sort",
                arm=Arm.CANDIDATE,
                missing=False,
                reason=fact("case.raised", error="no memory"),
                detail="",
            )


def result_of(request, folder, data):
    gate = judge(compare_paired(data.paired(), request.cases, Policy()), Policy())
    cpus = choose_cpus(request.loaded, probe()).cpus
    return RunResult(
        command=request.command,
        run_id=folder.run_id,
        folder=str(folder.path),
        suite=request.suite,
        machine_id=probe().machine_id,
        machine="",
        cpus=cpus,
        arms={"candidate": arm()},
        gate=replace(gate, identical=True, measured_outcome=gate.outcome, outcome=GateOutcome.PASS),
        exit_code=0,
        verdict="pass",
        reasons=(),
        duration_s=20.0,
    )


def arm():
    return ArmSummary(
        text="git:HEAD",
        source_id="s",
        interpreter="python",
        python=platform.python_version(),
        torch=None,
        stack_id=stack_id(decode_software({})),
    )


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


@pytest.fixture
def session(request_, tmp_path):
    """A gate in progress whose arms turned out identical."""
    request = replace(request_, command="gate", gate=DEFAULT_GATE)
    fingerprint = request.fingerprint
    folder = RunFolder.create(tmp_path)
    made = Session(
        request=request,
        fingerprint=fingerprint,
        selection=choose_cpus(request.loaded, fingerprint),
        folder=folder,
        interrupts=Interrupts(),
        settings=MeasureSettings(),
        started=0.0,
        identical=True,
        summaries={"candidate": arm()},
    )
    for event in Gates(tmp_path).events(request, folder.run_id):
        made.emit(event)
    yield made
    folder.close()


class TestBanking:
    def test_a_gate_of_identical_arms_waits_for_the_next_calibration(self, session, request_, machine_id, tmp_path):
        result = result_of(session.request, session.folder, session.data)
        assert bank(session, result).banked
        bank(session, result)
        waiting = load_calibration(banked_file(tmp_path, machine_id, "tiny"))
        assert [gate.run_id for gate in waiting.gates] == [session.folder.run_id]
        found = calibrate_machine(request_, gates=0, run_gate=Gates(tmp_path))
        assert [(gate.banked, gate.placebo) for gate in found.calibration.gates] == [(True, False)]
        assert len(load_calibration(found.path).gates) == 1

    def test_arms_that_differ_are_not_banked(self, session, machine_id, tmp_path):
        session.identical = False
        assert bank(session, result_of(session.request, session.folder, session.data)) is None
        assert not banked_file(tmp_path, machine_id, "tiny").exists()

    @pytest.mark.parametrize(
        ("request_changes", "result_changes"),
        [
            ({"gate": FOR_CALIBRATION}, {}),
            ({"suite": "tiny.sum"}, {}),
            ({"injections": (("tiny.sum", None),)}, {}),
            ({"cases": tuple(replace(case, gating=Gating.ADVISORY) for case in CASES)}, {}),
            ({}, {"exit_code": 130}),
            ({}, {"exit_code": 3}),
            ({}, {"gate": None}),
        ],
    )
    def test_only_whole_gates_are_worth_it(self, session, request_changes, result_changes):
        result = result_of(session.request, session.folder, session.data)
        assert is_bankable(session.request, result)
        changed = replace(session.request, **request_changes)
        assert not is_bankable(changed, replace(result, **result_changes))

    def test_one_gating_case_is_enough(self, session):
        cases = (CASES[0], replace(CASES[1], gating=Gating.ADVISORY))
        result = result_of(session.request, session.folder, session.data)
        assert is_bankable(replace(session.request, cases=cases), result)

    def test_its_scope_names_the_software_where_that_is_known(self):
        known = {"machine_id": "m", "cpus": 4}
        found = scope_of(Config(alpha=0.01, margin=0.02), arm=arm(), **known)
        assert (found.stack_id, found.software) == (arm().stack_id, {"python": platform.python_version()})
        assert (found.machine_id, found.cpus, found.alpha, found.margin_ratio) == ("m", 4, 0.01, 0.02)
        nothing = scope_of(Config(), arm=None, **known)
        assert (nothing.stack_id, nothing.software) == (None, {})


class TestTheErrorRateOfAGate:
    def test_follows_what_is_stored(self, session, request_, tmp_path):
        assert gate_error_rate(session)[0].code == "rate.not_calibrated"
        found = calibrate_machine(request_, gates=2, run_gate=Gates(tmp_path))
        rate, margins = gate_error_rate(session)
        assert rate == found.error_rate
        assert rate.code == "rate.calibrated"
        assert margins == {}

    def test_has_the_margins_of_its_cases_while_it_is_valid(self, session, request_, tmp_path):
        found = calibrate_machine(request_, gates=3, run_gate=Gates(tmp_path, shift=0.05))
        margins = gate_error_rate(session)[1]
        assert margins == calibrated_margins(found.calibration, request_.loaded.config.margin)
        assert margins.keys() == {case.id for case in CASES}
        stored = json.loads(found.path.read_text())
        stored["scope"]["cpus"] += 1
        found.path.write_text(json.dumps(stored))
        expired, margins = gate_error_rate(session)
        assert (expired.code, margins) == ("rate.expired", {})

    def test_against_a_stored_baseline_is_that_of_the_pairs_which_decide_what_its_numbers_leave_open(
        self, session, request_, tmp_path
    ):
        assert gate_error_rate(session, screens=True) == gate_error_rate(session)  # nothing is known
        calibrate_machine(request_, gates=2, run_gate=Gates(tmp_path))
        rate = gate_error_rate(session, screens=True)[0]
        assert (rate.code, rate.values["screens"]) == ("rate.calibrated", True)
        assert (rate.values["false_alarms"], rate.values["gates"]) == (0, 2)
        assert "low_ratio" not in rate.values  # the pairs get what the rounds leave of the budget

    def test_of_cases_that_were_selected_by_name_is_that_of_no_suite(self, session, request_, tmp_path):
        calibrate_machine(request_, gates=2, run_gate=Gates(tmp_path))
        session.request = replace(session.request, patterns=("tiny.sum",))
        assert gate_error_rate(session)[0].code == "rate.of_selection"

    def test_a_corrupt_file_is_said_and_stops_no_gate(self, session, machine_id, tmp_path):
        path = calibration_file(tmp_path / "baselines", machine_id, "tiny")
        path.parent.mkdir(parents=True)
        path.write_text("{")
        rate = gate_error_rate(session)[0]
        assert rate.code == "rate.unreadable"
        assert "is corrupt" in rate.values["error"]


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
        assert len(notes) == 2
        unchanged, notes = planned_cases(request_, machine_id=machine_id, cpus=plan.cpus + 1)
        assert unchanged == CASES
        assert [(note.code, note.values["what"]) for note in notes] == [("plan.unused", "CPUs")]
        assert planned_cases(replace(request_, suite="tiny.sum"), machine_id=machine_id, cpus=plan.cpus) == (CASES, ())

    def test_a_corrupt_plan_is_said_and_changes_nothing(self, request_, tmp_path, machine_id):
        path = plan_file(tmp_path / "baselines", machine_id, "tiny")
        path.parent.mkdir(parents=True)
        path.write_text("?")
        cases, notes = planned_cases(request_, machine_id=machine_id, cpus=1)
        assert cases == CASES
        assert [note.code for note in notes] == ["plan.unreadable"]
