from __future__ import annotations

import math

import pytest

from perfguard.errors import ExitCode, UsageError
from perfguard.gate.rules.policy import FAIL_ON_CHOICES, conclude, decide_cases, exit_code
from perfguard.records.estimate import Interval
from perfguard.records.facts import fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import Design, GateOutcome, Outcome, Policy
from perfguard.stats.power import minimum_detectable_effect
from perfguard.stats.voiding import VoidedBlock, Voiding
from tests.changed_values import replace
from tests.compared_cases import compared, judge, unmeasured
from tests.found_facts import codes_of, fact_of

POLICY = Policy()


def without(name, outcome):
    return unmeasured(
        name, problem=fact("case.failed", arm="candidate", error="out of memory"), problem_outcome=outcome
    )


SLOW, FAST, SAME = compared("slow", 0.12), compared("fast", -0.12), compared("same", 0.0)
WIDE = compared("wide", 0.0, sd=0.03)
NOISY = compared("noisy", 0.03, sd=0.08)
FAILED, NEW = without("crash", Outcome.FAILED), without("new", Outcome.NO_BASELINE)
FOREIGN, BAD = without("foreign", Outcome.INCOMPARABLE), without("bad", Outcome.INVALID)
UNSTABLE = Voiding(
    voided=(VoidedBlock(block=3, severity=4.0, causes={"stolen_share": 0.2}),),
    spared=(VoidedBlock(block=4, severity=2.0, causes={"control_ratio": 0.4}),),
    blocks_total=6,
    allowed=1,
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
        ([SLOW, BAD], None, GateOutcome.INVALID, ExitCode.REGRESSION),
        ([BAD, FAILED], None, GateOutcome.FAILED, ExitCode.INFRASTRUCTURE),
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
    failed, regressed = result.reasons
    assert (failed.code, failed.values["outcome"], failed.values["case_ids"]) == ("gate.cases", "failed", ("crash",))
    assert (regressed.values["outcome"], regressed.values["case_ids"]) == ("regressed", ("slow",))
    assert regressed.values["log_ratios"] == (pytest.approx(math.log1p(0.12)),)
    assert exit_code(result, fail_on={"regression"}) is ExitCode.REGRESSION


@pytest.mark.parametrize("name", FAIL_ON_CHOICES)
def test_only_listed_outcomes_fail(name):
    gates = {
        choice: judge([case], POLICY)
        for choice, case in (("regression", SLOW), ("failed", FAILED), ("missing", NEW), ("inconclusive", WIDE))
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
    assert fact_of(result.verdicts[1].reasons, "verdict.effect").values["cases"] is None


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
    assert codes_of(noisy.reasons)[0] == "verdict.demoted"
    assert noisy.reasons[0].values == {"unit": "block", "block_sd_ratio": 0.08, "limit_ratio": 0.05}
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


def test_noise_does_not_hide_an_improvement_that_stands_in_the_family():
    halved = compared("halved", -0.5, sd=0.08)
    (_, verdict) = judge([SAME, halved], POLICY).verdicts
    assert (verdict.outcome, verdict.gating) == (Outcome.IMPROVED, Gating.GATING)


def test_a_gate_of_noisy_cases_only_is_inconclusive():
    result = judge([NOISY], POLICY)
    assert result.outcome is GateOutcome.INCONCLUSIVE
    assert codes_of(result.reasons) == ["gate.no_gating_case"]


def test_too_few_blocks_say_nothing_however_clear():
    few = compared("few", 1.0, sd=0.0001, blocks=4)
    (verdict,) = judge([few], POLICY).verdicts
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reasons == (fact("verdict.too_few_blocks", blocks=4, needed=5, more_s=None),)
    (verdict,) = judge([replace(few, block_s=90.0)], POLICY).verdicts
    assert verdict.reasons == (fact("verdict.too_few_blocks", blocks=4, needed=5, more_s=90.0),)


def test_rounds_have_a_minimum_of_their_own():
    assert outcomes(compared("few", 1.0, sd=0.001, blocks=3, design=Design.ROUNDS)) == [Outcome.REGRESSED]


def test_one_block_is_inconclusive_whatever_the_policy():
    one = replace(
        SLOW,
        estimate=replace(SLOW.estimate, blocks=1, degrees_of_freedom=0.0, standard_error=math.inf, block_sd=math.nan),
        p_regressed=0.0,
        p_improved=0.0,
    )
    assert outcomes(one, policy=replace(POLICY, min_blocks=0)) == [Outcome.INCONCLUSIVE]


@pytest.mark.parametrize(
    ("p_outside", "outcome"),
    [(0.0249, Outcome.UNCHANGED), ((1 - 0.95) / 2, Outcome.UNCHANGED), (0.0251, Outcome.INCONCLUSIVE)],
)
def test_equivalence_is_shown_at_one_side_of_the_interval_level(p_outside, outcome):
    """The 95 % interval lies inside the limits where the larger one-sided p is at most 2.5 %."""
    assert outcomes(replace(WIDE, p_outside=p_outside)) == [outcome]


def test_unchanged_needs_the_whole_interval():
    assert outcomes(compared("inside", 0.0, sd=0.02)) == [Outcome.UNCHANGED]
    assert outcomes(compared("above", 0.010, sd=0.02)) == [Outcome.INCONCLUSIVE]
    assert outcomes(compared("below", -0.010, sd=0.02)) == [Outcome.INCONCLUSIVE]


def test_the_reasons_hold_the_numbers():
    slow, wide, same, between = (
        verdict.reasons[0] for verdict in judge([SLOW, WIDE, SAME, compared("m", 0.0145, sd=0.0082)], POLICY).verdicts
    )
    assert slow.code == "verdict.effect"
    assert slow.values["log_ratio"] == pytest.approx(math.log(1.12))
    assert slow.values["log_ratio_lower"] == pytest.approx(math.log(1.117), abs=0.001)
    assert slow.values["log_ratio_upper"] == pytest.approx(math.log(1.123), abs=0.001)
    assert (slow.values["blocks"], slow.values["cases"]) == (10, 4)
    assert 0 < slow.values["p"] < 1e-6
    assert (wide.code, wide.values["blocks"], wide.values["target_ratio"]) == ("verdict.too_noisy", 10, 0.02)
    assert wide.values["mde_ratio"] == pytest.approx(0.0523, abs=5e-5)
    assert wide.values["needed_blocks"] > 10
    assert (same.code, same.values["equivalence_ratio"]) == ("verdict.unchanged", 0.02)
    assert between.code == "verdict.undecided"
    assert (between.values["margin_ratio"], between.values["equivalence_ratio"]) == (0.005, 0.02)


def test_a_case_beyond_its_margin_at_95_percent_only_says_what_a_flag_needs():
    (verdict,) = judge([compared("nearly", 0.03, sd=0.03)], POLICY).verdicts
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert codes_of(verdict.reasons) == ["verdict.too_noisy", "verdict.beyond_margin"]
    values = verdict.reasons[1].values
    assert values["log_ratio"] == pytest.approx(math.log1p(0.03))
    assert values["log_ratio_lower"] > math.log1p(values["margin_ratio"])
    assert (values["margin_ratio"], values["level_ratio"], values["needed_level_ratio"]) == (0.005, 0.95, 1 - 0.008)


def test_an_inconclusive_case_carries_its_mde():
    (verdict,) = judge([WIDE], POLICY).verdicts
    assert 0.03 < verdict.mde_ratio < 0.06
    assert fact_of(verdict.reasons, "verdict.too_noisy").values["mde_ratio"] == verdict.mde_ratio


def test_a_host_that_is_unstable_says_so_and_names_the_blocks():
    result = judge([SAME], POLICY, voiding=UNSTABLE, notes=(fact("first"),))
    assert codes_of(result.reasons) == ["gate.host_unstable"]
    assert result.reasons[0].values == {"disturbed": 2, "blocks": 6, "voided": 1}
    assert (result.blocks_total, result.blocks_voided) == (6, 1)
    assert [note.code for note in result.notes] == ["first", "host.block_disturbed", "host.block_disturbed"]
    assert [note.values for note in result.notes[1:]] == [
        {"block": 4, "is_voided": True, "stolen_share": 0.2},
        {"block": 5, "is_voided": False, "control_ratio": 0.4},
    ]


def test_a_pass_tells_what_got_faster():
    result = judge([SAME, FAST], POLICY)
    assert result.reasons == (
        fact("gate.passed", unchanged=1, cases=2, equivalence_ratio=0.02, faster=("fast",), allowed=()),
    )


def test_every_regression_is_named_with_its_effect():
    result = judge([compared(f"c{n}", 0.2) for n in range(5)], POLICY)
    (found,) = result.reasons
    assert (found.code, found.values["outcome"], found.values["cases"]) == ("gate.cases", "regressed", 5)
    assert found.values["case_ids"] == ("c0", "c1", "c2", "c3", "c4")
    assert found.values["log_ratios"] == pytest.approx((math.log1p(0.2),) * 5)


class TestLimits:
    """What lies exactly on a limit."""

    @pytest.mark.parametrize(
        ("p_value", "slower", "faster"),
        [
            (POLICY.alpha, Outcome.REGRESSED, Outcome.IMPROVED),
            (math.nextafter(POLICY.alpha, 1), Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE),
        ],
    )
    def test_a_p_value_at_the_level_is_significant(self, p_value, slower, faster):
        assert outcomes(replace(WIDE, p_regressed=p_value)) == [slower]
        assert outcomes(replace(WIDE, p_improved=p_value)) == [faster]

    @pytest.mark.parametrize("factor", [1.0, 0.999])
    def test_an_interval_that_touches_the_limit_is_not_inside_it(self, factor):
        limit = math.log1p(POLICY.equivalence_ratio)
        for lower, upper in ((-factor * limit, 0.5 * limit), (-0.5 * limit, factor * limit)):
            interval = Interval(lower=lower, upper=upper, level=0.95)
            touching = replace(WIDE, estimate=replace(WIDE.estimate, interval=interval))
            assert outcomes(touching) == [Outcome.UNCHANGED if factor < 1 else Outcome.INCONCLUSIVE]

    def test_as_many_blocks_or_rounds_as_a_verdict_needs_are_enough(self):
        assert outcomes(compared("five", 1.0, sd=0.001, blocks=5)) == [Outcome.REGRESSED]
        two = compared("two", 1.0, sd=0.0001, blocks=2, design=Design.ROUNDS)
        assert outcomes(two) == [Outcome.REGRESSED]
        assert outcomes(two, policy=replace(POLICY, min_rounds=3)) == [Outcome.INCONCLUSIVE]

    def test_a_case_with_just_enough_blocks_counts_in_the_family(self):
        edge = replace(compared("five", 0.05, blocks=5), p_regressed=0.6 * POLICY.alpha)
        assert outcomes(edge) == [Outcome.REGRESSED]
        assert outcomes(edge, replace(edge, case_id="other", p_regressed=0.9)) == [Outcome.INCONCLUSIVE] * 2

    def test_a_case_just_as_noisy_as_allowed_keeps_its_say(self):
        noise = WIDE.estimate.block_sd
        for limit, gating in ((noise, Gating.GATING), (math.nextafter(noise, 0), Gating.ADVISORY)):
            (verdict,) = judge([WIDE], replace(POLICY, max_block_sd_ratio=limit)).verdicts
            assert verdict.gating is gating

    def test_a_case_that_would_show_an_effect_of_the_target_was_not_too_noisy(self):
        mde_ratio = judge([WIDE], POLICY).verdicts[0].mde_ratio
        for target, code in ((mde_ratio, "verdict.undecided"), (math.nextafter(mde_ratio, 0), "verdict.too_noisy")):
            (verdict,) = judge([replace(WIDE, p_outside=1.0)], replace(POLICY, equivalence_ratio=target)).verdicts
            assert code in codes_of(verdict.reasons)

    @pytest.mark.parametrize("sign", [1, -1])
    def test_an_interval_that_touches_the_margin_is_not_beyond_it(self, sign):
        limit = math.log1p(WIDE.margin_ratio)
        for end, is_beyond in ((limit, False), (math.nextafter(limit, 1), True)):
            lower, upper = sorted((sign * end, sign * 0.5))
            estimate = replace(WIDE.estimate, interval=Interval(lower=lower, upper=upper, level=0.95))
            (verdict,) = judge([replace(WIDE, estimate=estimate)], POLICY).verdicts
            assert ("verdict.beyond_margin" in codes_of(verdict.reasons)) is is_beyond


def test_what_could_not_be_tested_is_never_significant():
    (verdict,) = judge([replace(SLOW, p_regressed=None, p_improved=None)], POLICY).verdicts
    assert (verdict.outcome, verdict.p_adjusted) == (Outcome.INCONCLUSIVE, 1.0)


@pytest.mark.parametrize(("gating", "level"), [(Gating.GATING, POLICY.alpha / 3), (Gating.ADVISORY, POLICY.alpha)])
def test_the_mde_is_that_of_the_level_that_a_case_is_tested_at(gating, level):
    wide = replace(WIDE, gating=gating)
    others = [SAME, FAST] if gating is Gating.GATING else [SAME]
    estimate = wide.estimate
    expected = minimum_detectable_effect(
        estimate.standard_error,
        estimate.degrees_of_freedom,
        alpha=level,
        margin_ratio=wide.margin_ratio,
        block_sd=estimate.block_sd if gating is Gating.GATING else None,  # what fails no gate needs no confirmation
    )
    assert judge([*others, wide], POLICY).verdicts[-1].mde_ratio == expected


def test_without_a_voiding_rule_the_gate_has_the_blocks_of_its_longest_case():
    result = judge([SAME, compared("longer", 0.0, blocks=14), FAILED], POLICY)
    assert (result.blocks_total, result.blocks_voided) == (14, 0)
    assert judge([FAILED], POLICY).blocks_total == 0


def test_identical_arms_pass_however_little_was_seen_of_their_times():
    result = replace(judge([WIDE], POLICY), identical=True)
    assert exit_code(replace(result, outcome=GateOutcome.PASS)) is ExitCode.PASS
    assert exit_code(result) is ExitCode.INCONCLUSIVE
    assert exit_code(replace(judge([WIDE], POLICY), outcome=GateOutcome.PASS)) is ExitCode.INCONCLUSIVE
