from __future__ import annotations

import math
from dataclasses import replace

import pytest

from perfguard.errors import ExitCode, UsageError
from perfguard.gate.rules.policy import FAIL_ON_CHOICES, conclude, decide_cases, exit_code, judge
from perfguard.records.facts import fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import Design, GateOutcome, Outcome, Policy
from perfguard.stats.voiding import VoidedBlock, Voiding
from tests.compared_cases import compared, unmeasured

POLICY = Policy()


def without(name, outcome):
    return unmeasured(name, problem="the candidate failed: out of memory", problem_outcome=outcome)


SLOW, FAST, SAME = compared("slow", 0.12), compared("fast", -0.12), compared("same", 0.0)
WIDE = compared("wide", 0.0, sd=0.03)
NOISY = compared("noisy", 0.03, sd=0.08)
FAILED, NEW = without("crash", Outcome.FAILED), without("new", Outcome.NO_BASELINE)
FOREIGN = without("foreign", Outcome.INCOMPARABLE)
UNSTABLE = Voiding(
    voided=(VoidedBlock(block=3, severity=4.0, causes={"stolen_share": 0.2}),),
    spared=(VoidedBlock(block=4, severity=2.0, causes={"canary_ratio": 0.4}),),
    blocks_total=6,
)


def outcomes(*comparisons, policy=POLICY):
    return [verdict.outcome for verdict in judge(comparisons, policy).verdicts]


def test_each_outcome_of_a_case():
    assert outcomes(SLOW, FAST, SAME, WIDE, FAILED, NEW, FOREIGN) == [
        Outcome.REGRESSED,
        Outcome.IMPROVED,
        Outcome.UNCHANGED,
        Outcome.INCONCLUSIVE,
        Outcome.FAILED,
        Outcome.NO_BASELINE,
        Outcome.INCOMPARABLE,
    ]


@pytest.mark.parametrize(
    ("comparisons", "voiding", "outcome", "code"),
    [
        ([SAME, FAST], None, GateOutcome.PASS, ExitCode.PASS),
        ([SAME, WIDE], None, GateOutcome.INCONCLUSIVE, ExitCode.INCONCLUSIVE),
        ([WIDE, NEW], None, GateOutcome.NO_BASELINE, ExitCode.INFRASTRUCTURE),
        ([NEW, FOREIGN], None, GateOutcome.INCOMPARABLE, ExitCode.INFRASTRUCTURE),
        ([SAME, FOREIGN], UNSTABLE, GateOutcome.HOST_UNSTABLE, ExitCode.INCONCLUSIVE),
        ([SAME], UNSTABLE, GateOutcome.HOST_UNSTABLE, ExitCode.INCONCLUSIVE),
        ([SLOW, SAME, WIDE], UNSTABLE, GateOutcome.REGRESSED, ExitCode.REGRESSION),
        ([SLOW, FAILED], None, GateOutcome.FAILED, ExitCode.INFRASTRUCTURE),
        ([], None, GateOutcome.INCONCLUSIVE, ExitCode.INCONCLUSIVE),
    ],
)
def test_the_gravest_outcome_decides_the_gate(comparisons, voiding, outcome, code):
    result = judge(comparisons, POLICY, voiding=voiding)
    assert result.outcome is outcome
    assert exit_code(result) is code
    assert exit_code(result, exit_zero=True) is ExitCode.PASS


def test_a_crash_does_not_hide_a_regression():
    result = judge([SLOW, FAILED], POLICY)
    assert "crash" in result.reason
    assert "slow (+12.0 %)" in result.reason
    assert exit_code(result, fail_on={"regression"}) is ExitCode.REGRESSION


@pytest.mark.parametrize("name", FAIL_ON_CHOICES)
def test_only_listed_outcomes_fail(name):
    gates = {
        choice: judge([case], POLICY)
        for choice, case in (
            ("regression", SLOW),
            ("failed", FAILED),
            ("missing", NEW),
            ("inconclusive", WIDE),
        )
    }
    other_work = (replace(verdict, outcome=Outcome.DIFFERENT) for verdict in decide_cases([SAME], POLICY))
    gates["different"] = conclude(tuple(other_work), POLICY)
    codes = {choice: exit_code(gate, fail_on={name}) for choice, gate in gates.items()}
    assert [choice for choice, code in codes.items() if code is not ExitCode.PASS] == [name]


def test_an_unknown_fail_on_is_a_usage_error():
    with pytest.raises(UsageError, match="sometimes"):
        exit_code(judge([SAME], POLICY), fail_on={"sometimes"})


def test_advisory_cases_are_tested_alone_and_never_fail_the_gate():
    advisory = [replace(case, gating=Gating.ADVISORY) for case in (SLOW, FAILED, WIDE)]
    result = judge([SAME, *advisory], POLICY)
    assert result.outcome is GateOutcome.PASS
    assert result.verdicts[1].outcome is Outcome.REGRESSED
    assert result.verdicts[1].p_adjusted is None
    assert "uncorrected" in result.verdicts[1].reason


def test_a_gate_without_a_gating_case_is_no_pass():
    result = judge([replace(SAME, gating=Gating.ADVISORY)], POLICY)
    assert result.outcome is GateOutcome.INCONCLUSIVE


def test_more_cases_need_more_evidence():
    borderline = next(
        case
        for case in (compared("edge", 0.005 + step * 1e-5) for step in range(1000))
        if case.p_regressed <= POLICY.alpha
    )
    assert outcomes(borderline)[0] is Outcome.REGRESSED
    assert outcomes(borderline, SAME)[0] is not Outcome.REGRESSED
    assert outcomes(borderline, replace(SAME, gating=Gating.ADVISORY))[0] is Outcome.REGRESSED


def test_improvements_are_corrected_for_the_family_too():
    borderline = next(
        case
        for case in (compared("edge", -0.005 - step * 1e-5) for step in range(1000))
        if case.p_improved <= POLICY.alpha
    )
    assert outcomes(borderline)[0] is Outcome.IMPROVED
    assert outcomes(borderline, SAME)[0] is not Outcome.IMPROVED


def test_a_noisy_case_loses_its_say_but_is_reported():
    result = judge([SAME, NOISY], POLICY)
    noisy = result.verdicts[1]
    assert (noisy.gating, noisy.outcome) == (Gating.ADVISORY, Outcome.INCONCLUSIVE)
    assert "too noisy to gate (block SD 8.00 %, limit 5.00 %)" in noisy.reason
    assert result.outcome is GateOutcome.PASS


def test_a_noisy_case_is_tested_in_the_family_only():
    lone = compared("lone", 0.09, sd=0.08)
    assert lone.p_regressed <= POLICY.alpha < 2 * lone.p_regressed
    verdict = judge([SAME, lone], POLICY).verdicts[1]
    assert (verdict.gating, verdict.outcome) == (Gating.ADVISORY, Outcome.INCONCLUSIVE)
    assert verdict.p_adjusted == pytest.approx(2 * lone.p_regressed)


def test_noise_cannot_hide_a_regression_that_stands_in_the_family():
    doubled = compared("doubled", 1.0, sd=0.08)
    result = judge([SAME, doubled], POLICY)
    assert result.outcome is GateOutcome.REGRESSED
    assert result.verdicts[1].gating is Gating.GATING


def test_a_gate_of_noisy_cases_only_is_inconclusive():
    result = judge([NOISY], POLICY)
    assert result.outcome is GateOutcome.INCONCLUSIVE
    assert "no case is left" in result.reason


def test_too_few_blocks_say_nothing_however_clear():
    few = compared("few", 1.0, sd=0.0001, blocks=4)
    (verdict,) = judge([few], POLICY).verdicts
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason == "only 4 paired blocks; at least 5 are needed for a verdict"
    (verdict,) = judge([replace(few, block_s=90.0)], POLICY).verdicts
    assert verdict.reason.endswith("at least 5 are needed for a verdict, 1 min 30 s more on this machine")


def test_rounds_have_a_minimum_of_their_own():
    assert outcomes(compared("few", 1.0, sd=0.001, blocks=3, design=Design.ROUNDS)) == [Outcome.REGRESSED]


def test_one_block_is_inconclusive_whatever_the_policy():
    one = replace(
        SLOW,
        estimate=replace(SLOW.estimate, blocks=1, degrees_of_freedom=0.0, standard_error=math.inf, block_sd=math.nan),
        p_regressed=1.0,
        p_improved=1.0,
    )
    assert outcomes(one, policy=replace(POLICY, min_blocks=0)) == [Outcome.INCONCLUSIVE]


def test_unchanged_needs_the_whole_interval():
    assert outcomes(compared("inside", 0.0, sd=0.02)) == [Outcome.UNCHANGED]
    assert outcomes(compared("above", 0.010, sd=0.02)) == [Outcome.INCONCLUSIVE]
    assert outcomes(compared("below", -0.010, sd=0.02)) == [Outcome.INCONCLUSIVE]


def test_the_reasons_hold_the_numbers():
    slow, wide, same, between = (
        verdict.reason for verdict in judge([SLOW, WIDE, SAME, compared("m", 0.0145, sd=0.0082)], POLICY).verdicts
    )
    assert slow.startswith("12.0 % slower [+11.7 %, +12.3 %] in 10 paired blocks; p = ")
    assert slow.endswith("after correction for 4 cases")
    assert wide.startswith("could not see effects under 5.23 % in 10 paired blocks; about ")
    assert wide.endswith("blocks would do for 2.00 %")
    assert same.endswith("all of it inside ±2.00 %")
    assert between.endswith("neither shown to be beyond 0.50 % nor to be inside ±2.00 %")


def test_a_case_beyond_its_margin_at_95_percent_only_says_what_a_flag_needs():
    (verdict,) = judge([compared("nearly", 0.03, sd=0.03)], POLICY).verdicts
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "; 3.00 % slower [+" in verdict.reason
    assert "] is beyond 0.50 % at 95.0 %, and a flag needs 99." in verdict.reason


def test_an_inconclusive_case_carries_its_mde():
    (verdict,) = judge([WIDE], POLICY).verdicts
    assert 0.03 < verdict.mde_ratio < 0.06
    assert f"under {verdict.mde_ratio:.2%}".replace("%", " %") in verdict.reason


def test_a_host_that_is_unstable_says_so_and_names_the_blocks():
    result = judge([SAME], POLICY, voiding=UNSTABLE, notes=(fact("first"),))
    assert result.reason.startswith("2 of 6 blocks were disturbed, of which 1 may be voided")
    assert (result.blocks_total, result.blocks_voided) == (6, 1)
    assert [note.code for note in result.notes] == ["first", "host.block_disturbed", "host.block_disturbed"]
    assert [note.values for note in result.notes[1:]] == [
        {"block": 4, "is_voided": True, "stolen_share": 0.2},
        {"block": 5, "is_voided": False, "canary_ratio": 0.4},
    ]


def test_a_pass_tells_what_got_faster():
    result = judge([SAME, FAST], POLICY)
    assert result.reason == "1 of 2 cases unchanged within ±2.00 %, 1 faster: fast (-12.0 %)"


def test_many_regressions_are_counted_and_three_are_named():
    result = judge([compared(f"c{n}", 0.2) for n in range(5)], POLICY)
    assert result.reason.startswith("5 of 5 cases regressed: c0 (+20.0 %), c1")
    assert result.reason.endswith("and 2 more")
