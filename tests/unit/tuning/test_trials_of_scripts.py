"""A trial of a script: the arms, how precise it must be, and what its comparison means for tuning."""

from __future__ import annotations

import math
import shlex

import pytest

from perfguard.config import Config, LoadedConfig
from perfguard.errors import ArmError, InterruptedRunError, MeasurementError, UsageError
from perfguard.gate import calibrate
from perfguard.gate.paired.compare_scripts import MIN_PAIRS, ScriptRun
from perfguard.host.parsers.software import decode_software
from perfguard.records.facts import Severity, fact
from perfguard.records.run import Arm
from perfguard.records.steps.scripts import ScriptComparison
from perfguard.records.tuning import Purpose, Toggle, Trial, TrialVerdict, TuningOutcome
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.profiling.script_pairs import ScriptFailedError, TooFewStepsError
from perfguard.runner.session import Request
from perfguard.tuning.journal import open_journal
from perfguard.tuning.script import script_target
from perfguard.tuning.toggles import toggles_of_script
from perfguard.tuning.tune import tune
from tests.changed_values import replace
from tests.simulated_tuning import setting

FUSED = setting(optimizer="fused")
FIRST = Trial(purpose=Purpose.ADD, before=(), after=FUSED)
LATER = Trial(purpose=Purpose.ADD, before=FUSED, after=setting(dtype="bf16", optimizer="fused"))
FINAL = Trial(purpose=Purpose.FINAL, before=(), after=FUSED)


def compared(ratio=0.8, *, half_width=0.01, pairs=MIN_PAIRS, refused=(), notes=()):
    return ScriptComparison(
        pairs=pairs,
        steps=4 * pairs,
        ratio=ratio,
        lower=ratio * math.exp(-half_width) if pairs > 1 else None,
        upper=ratio * math.exp(half_width) if pairs > 1 else None,
        before_s=0.2,
        after_s=0.2 * ratio,
        refused=tuple(fact(code, severity=Severity.GRAVE, error="no") for code in refused),
        settings=(),
        notes=tuple(fact(code, severity=Severity.NOTABLE) for code in notes),
        seconds=12.0,
    )


def refused(*codes):
    return replace(compared(pairs=0, refused=codes), ratio=None, lower=None, upper=None)


class Comparing:
    """Stands in for `compare_user_script`, and remembers what it was asked for."""

    def __init__(self, found=None, *, error=None, is_interrupted=False):
        self.found, self.error, self.is_interrupted = found, error, is_interrupted
        self.asked = []

    def __call__(self, request, before, after, script, precision):
        self.asked.append((request, before, after, script, precision))
        if self.error is not None:
            raise self.error
        return ScriptRun(run_id="run", comparison=self.found, is_interrupted=self.is_interrupted)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("one")
    return path


@pytest.fixture
def target_with(tmp_path, script):
    def made(comparing=None, *, arm="dir:.", arguments=("--epochs", "1"), timeout_s=60.0, names=()):
        loaded = LoadedConfig(config=Config(equivalence=0.03), origins={}, project=tmp_path)
        request = Request(
            command="tune", arguments=(), loaded=loaded, suite="", cases=(), budget_s=60.0, inherited={}
        )  # fmt: skip
        target = script_target(request, parse_arm(arm), script, arguments, timeout_s=timeout_s, names=names)
        return replace(target, compare=comparing or Comparing(compared()))

    return made


def test_the_arms_differ_in_the_settings_alone(target_with, script):
    comparing = Comparing(compared())
    target_with(comparing, arm="dir:.+env:A=1").measure(LATER, 30.0)
    ((request, before, after, asked, precision),) = comparing.asked
    assert before.text == "dir:.+env:A=1+set:optimizer=fused"
    assert after.text == "dir:.+env:A=1+set:dtype=bf16,optimizer=fused"
    assert parse_arm(after.text) == after
    assert (asked.path, asked.arguments, asked.timeout_s) == (script, ("--epochs", "1"), 60.0)
    assert (request.cases, request.script, precision.budget_s) == ((), str(script), 30.0)
    assert request.notes[-1].code == "tune.trial_of"


def test_the_final_trial_is_more_precise_than_what_counts_as_unchanged(target_with):
    comparing = Comparing(compared())
    target = target_with(comparing)
    target.measure(FIRST, 30.0)
    target.measure(FINAL, 30.0)
    assert [(asked[-1].half_width, asked[-1].share_of_effect) for asked in comparing.asked] == [
        (0.03, 0.5),
        (0.01, 0.0),
    ]


@pytest.mark.parametrize(
    ("found", "verdict", "is_cut_short"),
    [
        (compared(0.8), TrialVerdict.FASTER, False),
        (compared(1.2), TrialVerdict.SLOWER, False),
        (compared(1.0), TrialVerdict.OPEN, False),
        (compared(1.0, half_width=0.2), TrialVerdict.OPEN, True),
        (compared(0.8, half_width=0.2), TrialVerdict.FASTER, False),
        (compared(0.8, pairs=MIN_PAIRS - 1), TrialVerdict.OPEN, True),
        (compared(0.8, pairs=1), TrialVerdict.OPEN, True),
        (compared(0.8, refused=["result.different"]), TrialVerdict.DIFFERENT, False),
        (compared(0.8, refused=["script.not_finite"]), TrialVerdict.DIFFERENT, False),
        (refused("script.ignored"), TrialVerdict.IGNORED, False),
        (refused("script.refused"), TrialVerdict.FAILED, False),
    ],
)
def test_a_verdict_is_that_of_the_interval_where_nothing_is_refused(target_with, found, verdict, is_cut_short):
    outcome = target_with(Comparing(found)).measure(FIRST, 30.0)
    assert (outcome.verdict, outcome.is_cut_short) == (verdict, is_cut_short)
    assert (outcome.blocks, outcome.run_id, outcome.duration_s, outcome.is_kept) == (found.pairs, "run", 12.0, True)
    assert outcome.reasons == found.refused


def test_the_interval_is_on_the_log_scale(target_with):
    outcome = target_with(Comparing(compared(0.8))).measure(FIRST, 30.0)
    assert (outcome.lower, outcome.log_ratio, outcome.upper) == pytest.approx(
        (math.log(0.8) - 0.01, math.log(0.8), math.log(0.8) + 0.01)
    )
    assert (outcome.before_s, outcome.after_s) == pytest.approx((0.2, 0.16))


def test_results_that_nobody_could_compare_are_a_reason(target_with):
    outcome = target_with(Comparing(compared(notes=["script.unchecked"]))).measure(FIRST, 30.0)
    assert (outcome.verdict, [reason.code for reason in outcome.reasons]) == (TrialVerdict.FASTER, ["script.unchecked"])


def test_a_script_that_differs_from_itself_ends_the_tuning(target_with):
    comparing = Comparing(compared(refused=["script.not_reproducible"]))
    with pytest.raises(MeasurementError):
        target_with(comparing).measure(FIRST, 30.0)
    assert target_with(comparing).measure(LATER, 30.0).verdict is TrialVerdict.DIFFERENT


@pytest.mark.parametrize("error", [TooFewStepsError("no steps"), ScriptFailedError(Arm.BASELINE, "failed")])
def test_a_reference_that_cannot_be_measured_is_an_error(target_with, error):
    target = target_with(Comparing(error=error))
    with pytest.raises(type(error)):
        target.measure(FIRST, 30.0)
    assert target.measure(LATER, 30.0).verdict is TrialVerdict.FAILED


@pytest.mark.parametrize("error", [MeasurementError("the worker ended"), ArmError("no such directory")])
def test_a_worker_that_does_not_start_is_a_failure_that_is_tried_again_next_time(target_with, error):
    outcome = target_with(Comparing(error=error)).measure(FIRST, 30.0)
    assert (outcome.verdict, outcome.is_kept) == (TrialVerdict.FAILED, False)
    assert outcome.reasons[0].code == "tune.not_measurable"


def test_an_interrupted_run_is_no_outcome(target_with):
    with pytest.raises(InterruptedRunError):
        target_with(Comparing(compared(), is_interrupted=True)).measure(FIRST, 30.0)


def test_the_scope_names_the_script_its_arguments_the_arm_and_the_software(target_with, script, monkeypatch):
    software = {"torch_version": "2.13.0"}
    monkeypatch.setattr(calibrate, "query_software", lambda *_, **__: decode_software(software))
    target = target_with()
    scopes = [
        target.scope(),
        target_with(arguments=("--epochs", "2")).scope(),
        target_with(arm="dir:.+env:A=1").scope(),
    ]
    assert target_with().scope() == scopes[0]
    script.write_text("two")
    scopes.append(target.scope())
    software["torch_version"] = "2.14.0"
    scopes.append(target.scope())
    assert all(one != other for index, one in enumerate(scopes) for other in scopes[:index])
    assert "budget_s" not in scopes[0]


def test_what_to_copy_names_the_arm_and_the_script(target_with, script):
    target = target_with()
    assert target.candidate(FUSED) == "dir:.+set:optimizer=fused"
    assert target.tuned(FUSED) == target.name == f"{script} --epochs 1"
    assert shlex.split(target.command(FUSED)) == [
        "perfguard", "profile", "--baseline", "dir:.", "--candidate", "dir:.+set:optimizer=fused",
        str(script), "--epochs", "1",
    ]  # fmt: skip


def test_settings_are_toggles_against_the_script_as_written_and_those_of_the_process_follow(tmp_path):
    library = tmp_path / "libjemalloc.so.2"
    known = toggles_of_script(libraries={"jemalloc": library}, threads=4)
    assert known.toggles == (
        Toggle(name="dtype", reference="as written", values=("bf16",)),
        Toggle(name="memory_format", reference="as written", values=("channels_last",)),
        Toggle(name="optimizer", reference="as written", values=("foreach", "fused")),
        Toggle(name="allocator", reference="default", values=("jemalloc",)),
        Toggle(name="threads", reference="4", values=("2", "1")),
    )
    chosen = setting(allocator="jemalloc", dtype="bf16", threads="2")
    assert known.parameters(chosen) == {"dtype": "bf16"}
    assert known.variables(chosen) == {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}


def test_what_the_arm_sets_is_the_reference(tmp_path):
    known = toggles_of_script(libraries={}, threads=1, arm_parameters={"optimizer": "fused"})
    (optimizer,) = (toggle for toggle in known.toggles if toggle.name == "optimizer")
    assert optimizer == Toggle(name="optimizer", reference="fused", values=("for-loop", "foreach"))
    assert [each.reason.code for each in known.inapplicable] == ["tune.no_allocator", "tune.one_cpu"]


def test_neither_a_missing_file_nor_an_unknown_toggle_is_measured(target_with, script):
    with pytest.raises(UsageError):
        target_with(names=["optimiser"])
    target = target_with()
    script.unlink()
    with pytest.raises(UsageError):
        target_with()
    with pytest.raises(UsageError):
        target.scope()


@pytest.mark.parametrize(
    ("found", "outcome", "exit_code"),
    [
        (refused("script.ignored"), TuningOutcome.DONE, 0),
        (refused("script.refused"), TuningOutcome.FAILED, 3),
        (compared(0.8), TuningOutcome.DONE, 0),
    ],
)
def test_a_tuning_fails_where_settings_fail_and_not_where_the_script_ignores_them(
    target_with, tmp_path, found, outcome, exit_code
):
    target = target_with(Comparing(found), names=["optimizer", "memory_format"])
    journal = open_journal(tmp_path, {})
    journal.keep_hints((), 0.0)
    tuning = tune(target, journal, 100.0)
    assert (tuning.outcome, tuning.exit_code, tuning.is_script) == (outcome, exit_code, True)


def test_a_value_that_is_ignored_is_tried_once(target_with, tmp_path):
    comparing = Comparing(refused("script.ignored"))
    target = target_with(comparing, names=["optimizer", "memory_format"])
    journal = open_journal(tmp_path, {})
    journal.keep_hints((), 0.0)
    found = tune(target, journal, 100.0)
    assert len(comparing.asked) == 3
    assert found.recipe == ()
    assert all(tried.is_reused for tried in tune(target, journal, 100.0).trials)
    assert len(comparing.asked) == 3
