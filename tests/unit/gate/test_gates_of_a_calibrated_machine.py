"""What gates give to a calibration and take from it: banked gates, error rates and margins."""

from __future__ import annotations

import json
import platform

import pytest

from perfguard.config import Config
from perfguard.gate.calibrate import calibrate_machine
from perfguard.gate.calibration.aa_gates import calibrated_margins, detectable_effects
from perfguard.gate.calibration.machine_rates import bank, gate_error_rate, is_bankable, scope_of
from perfguard.host.probe import probe
from perfguard.records.plan import DEFAULT_GATE, FOR_CALIBRATION, MeasureSettings
from perfguard.records.spec import Gating
from perfguard.records.verdict import Margins
from perfguard.runner.run_folder import RunFolder
from perfguard.runner.session import Interrupts, Session, choose_cpus
from perfguard.store.calibrations import banked_file, calibration_file, load_calibration
from tests.changed_values import replace
from tests.fake_gates import CASES, Gates, arm, request_in, result_of


@pytest.fixture
def request_(tmp_path):
    return request_in(tmp_path)


@pytest.fixture
def machine_id():
    return probe().machine_id


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
        assert margins == Margins(ratio=0.0025)

    def test_names_the_effects_that_a_gate_of_its_budget_finds(self, session, request_, tmp_path):
        found = calibrate_machine(request_, gates=2, run_gate=Gates(tmp_path))
        config = request_.loaded.config
        low, high = detectable_effects(
            found.summary, alpha=config.alpha, budget_s=request_.budget_s, max_blocks=config.max_blocks
        )
        values = gate_error_rate(session)[0].values
        assert (values["low_ratio"], values["high_ratio"], values["budget_s"]) == (low, high, request_.budget_s)
        assert low < high

    def test_has_the_margins_of_its_cases_while_it_is_valid(self, session, request_, tmp_path):
        found = calibrate_machine(request_, gates=3, run_gate=Gates(tmp_path, shift=0.05))
        margins = gate_error_rate(session)[1]
        assert margins == calibrated_margins(found.calibration, narrow_ratio=0.0025, wide_ratio=0.005)
        assert margins.cases.keys() == {case.id for case in CASES}
        stored = json.loads(found.path.read_text())
        stored["scope"]["cpus"] += 1
        found.path.write_text(json.dumps(stored))
        expired, margins = gate_error_rate(session)
        assert (expired.code, margins) == ("rate.expired", Margins(ratio=0.005))

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
