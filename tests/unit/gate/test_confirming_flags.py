from __future__ import annotations

import math
from dataclasses import replace

import pytest

from perfguard.gate.rules.confirmation import apply_confirmations, confirm, flagged_cases
from perfguard.gate.rules.policy import decide_cases
from perfguard.gate.rules.sequential import SequentialGate, plan_looks
from perfguard.records.facts import fact
from perfguard.records.run import Arm, BlockConditions, CaseFailure, CaseSlices, PairedData
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import Outcome, Policy
from tests.found_facts import codes_of, fact_of

POLICY = Policy()
CASE = Case(benchmark="case", target="m:f")
NOISE = (-0.004, 0.003, -0.002, 0.004, 0.001, -0.002, -0.001, 0.003, 0.002, -0.003, 0.0, -0.001)


def data(effect, blocks=6, *, case=CASE, failures=()):
    return PairedData(
        case_ids=(case.id,),
        slices=tuple(
            CaseSlices(
                case_id=case.id,
                block=block,
                baseline_s=(1e-3,),
                candidate_s=(1e-3 * math.exp(math.log1p(effect) + NOISE[block % len(NOISE)]),),
            )
            for block in range(blocks)
        ),
        conditions=tuple(
            BlockConditions(block=b, duration_s=2.5, steal_ratio=0, involuntary_switches=0, canary_s=(1e-3,))
            for b in range(blocks)
        ),
        failures=failures,
    )


def looked(effect, blocks=12, *, case=CASE, policy=POLICY):
    gate = SequentialGate((case,), policy, planned_blocks=blocks)
    gate.look(data(effect, blocks, case=case), blocks=blocks, final=True)
    return gate


def flags(effect=0.05):
    verdicts = looked(effect).verdicts()
    assert flagged_cases(verdicts) == ("case",)
    return verdicts


def test_a_flag_that_comes_back_is_red():
    (verdict,) = apply_confirmations(flags(), confirm(data(0.04), [CASE], POLICY))
    assert verdict.outcome is Outcome.REGRESSED
    assert verdict.confirmation.confirmed
    assert codes_of(verdict.reasons) == ["verdict.effect", "confirmation.done"]
    values = verdict.reasons[1].values
    assert (values["confirmed"], values["blocks"]) == (True, 6)
    assert values["log_ratio"] == pytest.approx(math.log1p(0.04), abs=0.001)
    assert values["log_ratio_lower"] < values["log_ratio"] < values["log_ratio_upper"]


def test_a_flag_that_does_not_come_back_is_inconclusive_and_says_so():
    (verdict,) = apply_confirmations(flags(), confirm(data(0.0), [CASE], POLICY))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    values = fact_of(verdict.reasons, "confirmation.done").values
    assert (values["confirmed"], values["blocks"]) == (False, 6)


def test_a_flag_that_was_never_confirmed_is_not_red():
    (verdict,) = apply_confirmations(flags(), {})
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert codes_of(verdict.reasons) == ["confirmation.not_measured", "verdict.effect"]


def test_a_case_that_fails_while_it_is_confirmed_is_not_red():
    failure = CaseFailure(case_id="case", arm=Arm.CANDIDATE, reason=fact("case.raised", error="the worker crashed"))
    (verdict,) = apply_confirmations(flags(), confirm(data(0.05, failures=(failure,)), [CASE], POLICY))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert codes_of(verdict.reasons) == ["verdict.effect", "confirmation.impossible", "case.raised"]
    failed = verdict.reasons[2]
    assert (failed.subject.arm, failed.values["error"]) == ("candidate", "the worker crashed")


def test_a_confirmation_is_looser_than_a_flag_but_not_free():
    """Slower at all is enough; half the level goes to each of the two looks."""
    found = confirm(data(0.004), [CASE], POLICY)["case"]
    assert found.confirmed
    assert not confirm(data(0.001), [CASE], POLICY)["case"].confirmed


def test_advisory_cases_need_no_confirmation():
    advisory = replace(CASE, gating=Gating.ADVISORY)
    verdicts = looked(0.05, case=advisory).verdicts()
    assert flagged_cases(verdicts) == ()
    assert apply_confirmations(verdicts, {}) == verdicts


def test_one_final_look_is_the_ordinary_test():
    comparison = looked(0.0061).comparisons()[0]
    plain = decide_cases([replace(comparison, looks=1)], POLICY)[0]
    assert looked(0.0061).verdicts()[0].outcome is plain.outcome
    assert comparison.looks == 1


def test_what_was_decided_at_a_look_stands():
    gate = SequentialGate((CASE,), POLICY, planned_blocks=12)
    assert gate.look(data(0.2, 6), blocks=6, final=False) == {"case": Outcome.REGRESSED}
    assert gate.answered() == {"case"}
    assert gate.look(data(0.0, 12), blocks=12, final=True) == {}
    assert gate.verdicts()[0].outcome is Outcome.REGRESSED


def test_a_failed_case_needs_no_more_measuring():
    failure = CaseFailure(case_id="case", arm=Arm.CANDIDATE, reason=fact("case.raised", error="gone"))
    gate = SequentialGate((CASE,), POLICY, planned_blocks=12)
    gate.look(data(0.0, 6, failures=(failure,)), blocks=6, final=False)
    assert gate.answered() == {"case"}
    assert gate.verdicts()[0].outcome is Outcome.FAILED


def test_an_open_case_says_how_much_longer_it_would_take():
    noisy = tuple(15 * value for value in NOISE)
    wide = data(0.0, 12)
    wide = replace(
        wide,
        slices=tuple(replace(entry, candidate_s=(1e-3 * math.exp(noisy[entry.block]),)) for entry in wide.slices),
    )
    gate = SequentialGate((CASE,), POLICY, planned_blocks=12)
    gate.look(wide, blocks=12, final=True)
    (verdict,) = gate.verdicts()
    assert verdict.outcome is Outcome.INCONCLUSIVE
    values = fact_of(verdict.reasons, "verdict.too_noisy").values
    assert (values["blocks"], values["target_ratio"]) == (12, 0.02)
    assert values["needed_blocks"] > 12
    assert values["more_s"] == pytest.approx((values["needed_blocks"] - 12) * 2.5)


@pytest.mark.parametrize(
    ("first_block_s", "left_s", "max_blocks", "expected"),
    [(10.0, 110.0, 60, 15), (10.0, 0.0, 60, 2), (10.0, -5.0, 60, 2), (0.0, 10.0, 60, 60), (1.0, 1e9, 40, 40)],
)
def test_looks_are_spread_over_what_the_budget_will_hold(first_block_s, left_s, max_blocks, expected):
    assert plan_looks(first_block_s, left_s=left_s, max_blocks=max_blocks) == expected


def test_looks_come_after_a_few_blocks_and_then_now_and_then():
    gate = SequentialGate((CASE,), POLICY, planned_blocks=40)
    taken = []
    for blocks in range(1, 41):
        if gate.is_due(blocks):
            gate.look(data(0.012, blocks), blocks=blocks, final=False)
            taken.append(blocks)
    assert taken[0] >= POLICY.min_blocks
    assert 6 <= len(taken) <= 9
