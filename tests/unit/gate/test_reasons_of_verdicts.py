"""The facts that give the reasons of a verdict and of a gate."""

from __future__ import annotations

import math

import pytest

from perfguard.gate.rules.policy import effect_values
from perfguard.records.estimate import Interval
from perfguard.records.spec import Gating
from perfguard.records.verdict import Design, GateOutcome, Outcome, Policy
from perfguard.stats.power import blocks_needed, minimum_detectable_effect
from perfguard.stats.voiding import VoidedBlock, Voiding
from tests.changed_values import replace
from tests.compared_cases import compared, judge, unmeasured
from tests.found_facts import codes_of, fact_of

POLICY = Policy()
SLOW, SAME = compared("slow", 0.12), compared("same", 0.0)
WIDE = compared("wide", 0.0, sd=0.03)
MANY = compared("many", 0.0, sd=0.03, blocks=40)


def reasons_of(comparison, policy=POLICY):
    (verdict,) = judge([comparison], policy).verdicts
    return verdict.reasons


def test_infinite_ends_are_left_out():
    assert effect_values(0.1, Interval(lower=-math.inf, upper=0.2, level=0.95)) == {
        "log_ratio": 0.1,
        "log_ratio_upper": 0.2,
    }


def test_more_blocks_are_asked_for_with_the_time_that_they_take():
    values = fact_of(reasons_of(replace(WIDE, block_s=90.0)), "verdict.too_noisy").values
    needed = blocks_needed(0.02, 0.03, alpha=POLICY.alpha, margin_ratio=0.005)
    assert (values["needed_blocks"], values["more_s"]) == (needed, (needed - 10) * 90.0)
    values = fact_of(reasons_of(WIDE), "verdict.too_noisy").values
    assert (values["needed_blocks"], values["more_s"]) == (needed, None)


@pytest.mark.parametrize("needed", [9, 10])
def test_blocks_that_were_measured_already_are_not_asked_for(needed):
    sd = next(
        step * 1e-5
        for step in range(1, 2000)
        if blocks_needed(0.02, step * 1e-5, alpha=POLICY.alpha, margin_ratio=0.005) == needed
    )
    values = fact_of(reasons_of(compared(sd=sd, error=0.02, block_s=90.0)), "verdict.too_noisy").values
    assert (values["needed_blocks"], values["more_s"]) == (None, None)


def test_blocks_that_are_alike_widen_what_is_needed_and_are_said_to():
    found = reasons_of(replace(WIDE, inflation=1.4))
    assert fact_of(found, "verdict.blocks_alike").values["wider_ratio"] == pytest.approx(0.4)
    needed = blocks_needed(0.02, 1.4 * 0.03, alpha=POLICY.alpha, margin_ratio=0.005)
    assert fact_of(found, "verdict.too_noisy").values["needed_blocks"] == needed


@pytest.mark.parametrize(
    ("case", "is_confirmed"),
    [(MANY, True), (replace(MANY, design=Design.ROUNDS), False), (replace(MANY, gating=Gating.ADVISORY), False)],
    ids=["a gating case", "rounds", "an advisory case"],
)
def test_the_least_effect_of_what_is_confirmed_has_the_power_of_that_too(case, is_confirmed):
    error, freedom = MANY.estimate.standard_error, MANY.estimate.degrees_of_freedom
    flagged, confirmed = (
        minimum_detectable_effect(error, freedom, alpha=POLICY.alpha, margin_ratio=0.005, block_sd=sd)
        for sd in (None, MANY.estimate.block_sd)
    )
    (verdict,) = judge([case], POLICY).verdicts
    assert flagged < confirmed
    assert verdict.mde_ratio == (confirmed if is_confirmed else flagged)


def test_cases_whose_code_did_not_change_are_counted_apart():
    untouched = unmeasured("other", problem_outcome=Outcome.UNTOUCHED)
    (passed,) = judge([SAME, untouched], POLICY).reasons
    assert (passed.code, passed.values["unchanged"], passed.values["untouched"]) == ("gate.passed", 1, 1)
    (alone,) = judge([untouched], POLICY).reasons
    assert (alone.code, alone.values) == ("gate.untouched", {"cases": 1})


def test_no_number_of_blocks_is_asked_for_where_none_is_enough():
    noisy = compared(sd=1.0, block_s=90.0)
    values = fact_of(reasons_of(noisy, replace(POLICY, max_block_sd_ratio=2)), "verdict.too_noisy").values
    assert (values["needed_blocks"], values["more_s"]) == (None, None)


def test_rounds_are_named_as_such_and_no_blocks_are_asked_for():
    of_rounds = replace(WIDE, design=Design.ROUNDS, block_s=90.0)
    values = fact_of(reasons_of(of_rounds), "verdict.too_noisy").values
    assert (values["rounds"], values["needed_blocks"], values["more_s"]) == (10, None, None)
    assert "blocks" not in values
    demoted = fact_of(reasons_of(compared(sd=0.08, design=Design.ROUNDS)), "verdict.demoted")
    assert demoted.values["unit"] == "round"
    few = reasons_of(compared(blocks=1, sd=0.001, error=0.001, design=Design.ROUNDS, block_s=90.0))
    assert (few[0].code, few[0].values) == ("verdict.too_few_blocks", {"rounds": 1, "needed": 2, "more_s": None})


@pytest.mark.parametrize(
    ("lower", "upper", "codes"),
    [
        (0.006, 0.1, ["verdict.too_noisy", "verdict.beyond_margin"]),
        (0.004, 0.1, ["verdict.too_noisy"]),
        (-0.1, -0.006, ["verdict.too_noisy", "verdict.beyond_margin"]),
        (-0.1, -0.004, ["verdict.too_noisy"]),
        (-0.1, 0.004, ["verdict.too_noisy"]),
    ],
)
def test_beyond_the_margin_is_a_whole_interval(lower, upper, codes):
    estimate = replace(WIDE.estimate, interval=Interval(lower=lower, upper=upper, level=0.95))
    assert codes_of(reasons_of(replace(WIDE, estimate=estimate))) == codes


def test_a_gate_names_the_cases_of_its_outcome_and_effects_of_regressions_only():
    gate = judge([SLOW, WIDE], POLICY)
    slow, wide = gate.reasons
    assert (slow.values["outcome"], slow.values["case_ids"]) == ("regressed", ("slow",))
    assert (wide.values["outcome"], wide.values["case_ids"], wide.values["log_ratios"]) == (
        "inconclusive",
        ("wide",),
        (),
    )


def test_a_regression_on_an_unstable_host_is_named_before_the_host():
    voiding = Voiding(
        voided=(VoidedBlock(block=3, severity=4.0, causes={"control_ratio": 0.4}),),
        spared=(VoidedBlock(block=4, severity=2.0, causes={"control_ratio": 0.4}),),
        blocks_total=6,
        allowed=1,
    )
    gate = judge([SLOW], POLICY, voiding=voiding)
    assert gate.outcome is GateOutcome.REGRESSED
    assert codes_of(gate.reasons) == ["gate.cases", "gate.host_unstable"]


def test_a_case_without_an_estimate_has_its_problem_as_the_reason():
    lost = unmeasured(problem_outcome=Outcome.FAILED)
    assert codes_of(reasons_of(lost)) == ["case.not_measured"]
