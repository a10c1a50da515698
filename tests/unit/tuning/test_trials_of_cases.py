"""A trial of a case as a paired run: the arms, the limits, and what its verdict means for tuning."""

from __future__ import annotations

import pytest

from perfguard.config import Config, LoadedConfig
from perfguard.errors import InterruptedRunError, MeasurementError
from perfguard.records.facts import Severity, fact
from perfguard.records.plan import FOR_FINAL_TRIAL, FOR_TRIALS
from perfguard.records.result import RunResult
from perfguard.records.spec import BenchmarkSpec, Case, Gating
from perfguard.records.tuning import Purpose, Trial, TrialVerdict
from perfguard.records.verdict import GateOutcome, GateResult, Outcome, Policy, Verdict
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.session import Request
from perfguard.tuning.case import FINAL_BLOCKS, TRIAL_BLOCKS, case_target
from tests.changed_values import replace
from tests.compared_cases import compared, unmeasured
from tests.simulated_tuning import setting

SPEC = BenchmarkSpec(
    name="mine", target="b.py:mine", parameters=(("dtype", ("fp32", "bf16")), ("mode", ("eager", "compile")))
)
CASE = Case(benchmark="mine", target="b.py:mine", parameters=(("dtype", "fp32"), ("mode", "eager")), tags=("no-torch",))
ADD = Trial(purpose=Purpose.ADD, before=setting(mode="compile"), after=setting(dtype="bf16", mode="compile"))


class Gate:
    """Stands in for `compare_arms`, and remembers what it was asked for."""

    def __init__(self, verdict=None, *, outcome=GateOutcome.PASS, exit_code=0, blocks=7, error=None):
        self.verdict, self.outcome, self.exit_code, self.blocks, self.error = verdict, outcome, exit_code, blocks, error
        self.asked = []

    def __call__(self, request, baseline, candidate):
        self.asked.append((request, baseline, candidate))
        if self.error is not None:
            raise self.error
        gate = GateResult(
            outcome=self.outcome,
            reasons=(),
            verdicts=(self.verdict,),
            policy=Policy(),
            blocks_total=self.blocks,
            blocks_voided=0,
        )
        return RunResult(
            command="tune", run_id="run", folder="", suite="", machine_id="", machine="", cpus=(), arms={}, gate=gate,
            exit_code=self.exit_code, verdict=self.outcome.value, reasons=(), duration_s=12.0,
        )  # fmt: skip


def verdict(outcome, comparison, *reasons):
    return Verdict(case_id=CASE.id, outcome=outcome, gating=Gating.GATING, reasons=reasons, comparison=comparison)


def measured(effect, *, outcome=Outcome.INCONCLUSIVE, blocks=7, reasons=(), **fields):
    return Gate(verdict(outcome, compared(CASE.id, effect, blocks=blocks), *reasons), blocks=blocks, **fields)


@pytest.fixture
def target_with(tmp_path):
    def made(gate, arm="dir:."):
        loaded = LoadedConfig(config=Config(), origins={}, project=tmp_path)
        request = Request(
            command="tune", arguments=(), loaded=loaded, suite=CASE.id, cases=(CASE,), budget_s=60.0, inherited={}
        )
        return replace(case_target(request, parse_arm(arm), [SPEC]), run_gate=gate)

    return made


def test_the_arms_differ_in_the_settings_alone(target_with):
    gate = measured(-0.1)
    target_with(gate, "dir:.+env:A=1+set:other=x").measure(ADD, 30.0)
    ((request, baseline, candidate),) = gate.asked
    assert baseline.text == "dir:.+env:A=1+set:mode=compile,other=x"
    assert candidate.text == "dir:.+env:A=1+set:dtype=bf16,mode=compile,other=x"
    assert parse_arm(candidate.text) == candidate
    assert (request.budget_s, request.loaded.config.max_blocks, request.gate) == (30.0, TRIAL_BLOCKS, FOR_TRIALS)


def test_the_final_trial_does_not_end_early(target_with):
    gate = measured(-0.1)
    target_with(gate).measure(Trial(purpose=Purpose.FINAL, before=(), after=ADD.after), 30.0)
    request = gate.asked[0][0]
    assert (request.loaded.config.max_blocks, request.gate) == (FINAL_BLOCKS, FOR_FINAL_TRIAL)
    assert not FOR_FINAL_TRIAL.ends_early
    assert FOR_TRIALS.ends_early


@pytest.mark.parametrize(
    ("effect", "fields", "expected"),
    [
        (-0.05, {}, TrialVerdict.FASTER),
        (-0.05, {"outcome": Outcome.IMPROVED}, TrialVerdict.FASTER),
        (+0.05, {}, TrialVerdict.SLOWER),
        (0.0, {}, TrialVerdict.OPEN),
        (-0.05, {"outcome": Outcome.DIFFERENT}, TrialVerdict.DIFFERENT),
        (-0.05, {"blocks": 4}, TrialVerdict.OPEN),
        (+0.05, {"blocks": 4}, TrialVerdict.OPEN),
        (-0.05, {"reasons": (fact("arm.intruded", severity=Severity.GRAVE, arm="candidate"),)}, TrialVerdict.OPEN),
    ],
)
def test_a_verdict_is_that_of_the_interval_where_the_arms_compute_the_same(target_with, effect, fields, expected):
    outcome = target_with(measured(effect, **fields)).measure(ADD, 30.0)
    assert outcome.verdict is expected
    assert outcome.lower < outcome.log_ratio < outcome.upper
    assert (outcome.run_id, outcome.duration_s, outcome.before_s) == ("run", 12.0, 1e-3)


def test_an_unstable_host_shows_no_gain_and_is_not_kept(target_with):
    outcome = target_with(measured(-0.05, outcome=Outcome.IMPROVED)).measure(ADD, 30.0)
    assert outcome.is_kept
    outcome = target_with(replace_outcome(measured(-0.05))).measure(ADD, 30.0)
    assert (outcome.verdict, outcome.is_kept) == (TrialVerdict.OPEN, False)


def replace_outcome(gate):
    gate.outcome = GateOutcome.HOST_UNSTABLE
    return gate


@pytest.mark.parametrize(
    ("outcome", "blocks", "is_cut_short"),
    [(Outcome.INCONCLUSIVE, 7, True), (Outcome.INCONCLUSIVE, TRIAL_BLOCKS, False), (Outcome.UNCHANGED, 7, False)],
)
def test_time_cut_it_short_where_neither_an_answer_nor_its_blocks_ended_it(target_with, outcome, blocks, is_cut_short):
    found = target_with(measured(0.0, outcome=outcome, blocks=blocks)).measure(ADD, 30.0)
    assert (found.verdict, found.is_cut_short) == (TrialVerdict.OPEN, is_cut_short)


def test_a_setting_that_fails_is_an_outcome_and_a_reference_that_fails_is_an_error(target_with):
    broken = verdict(Outcome.FAILED, unmeasured(CASE.id), fact("case.raised", arm="candidate", error="no"))
    assert target_with(Gate(broken)).measure(ADD, 30.0).verdict is TrialVerdict.FAILED
    of_reference = verdict(Outcome.FAILED, unmeasured(CASE.id), fact("case.raised", arm="baseline", error="no"))
    first = Trial(purpose=Purpose.ADD, before=(), after=setting(mode="compile"))
    with pytest.raises(MeasurementError):
        target_with(Gate(of_reference)).measure(first, 30.0)


def test_a_worker_that_does_not_start_is_a_failure_that_is_tried_again_next_time(target_with):
    outcome = target_with(Gate(error=MeasurementError("the candidate worker ended"))).measure(ADD, 30.0)
    assert (outcome.verdict, outcome.is_kept) == (TrialVerdict.FAILED, False)
    assert outcome.reasons[0].code == "tune.not_measurable"


def test_an_interrupted_run_is_no_outcome(target_with):
    with pytest.raises(InterruptedRunError):
        target_with(measured(-0.05, exit_code=130)).measure(ADD, 30.0)


def test_the_scope_names_the_code_also_outside_git(target_with, tmp_path):
    target = target_with(measured(0.0))
    (tmp_path / "b.py").write_text("one")
    first = target.scope()["source"]
    assert target.scope()["source"] == first
    (tmp_path / "b.py").write_text("two")
    assert target.scope()["source"] != first
    assert "budget_s" not in target.scope()


def test_what_to_copy_names_the_arm_and_the_case(target_with):
    target = target_with(measured(0.0))
    recipe = setting(dtype="bf16")
    assert target.candidate(recipe) == "dir:.+set:dtype=bf16"
    assert target.tuned(recipe) == "mine[dtype=bf16,mode=eager]"
    assert target.command(recipe).startswith("perfguard compare --baseline dir:. --candidate dir:.+set:dtype=bf16")
