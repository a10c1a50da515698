from __future__ import annotations

import math

import numpy as np
import pytest

from perfguard.gate.rules.compare import SequentialGate, compare_paired, plan_analyses
from perfguard.gate.rules.confirmation import apply_confirmations, confirm, flagged_cases
from perfguard.gate.rules.policy import decide_cases
from perfguard.records.facts import fact
from perfguard.records.run import Arm, BlockConditions, CaseFailed, CaseSamples, PairedData
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import Outcome, Policy
from perfguard.stats.confirming import CONFIRMATION_ANALYSES
from perfguard.stats.p_values import p_slower
from perfguard.stats.spending import Spending, sequential_p
from tests.changed_values import replace
from tests.found_facts import codes_of, fact_of

POLICY = Policy()
CASE = Case(benchmark="case", target="m:f")
NOISE = (-0.004, 0.003, -0.002, 0.004, 0.001, -0.002, -0.001, 0.003, 0.002, -0.003, 0.0, -0.001)


def data(effect, blocks=6, *, case=CASE, failures=()):
    return PairedData(
        case_ids=(case.id,),
        samples=tuple(
            CaseSamples(
                case_id=case.id,
                block=block,
                baseline_s=(1e-3,),
                candidate_s=(1e-3 * math.exp(math.log1p(effect) + NOISE[block % len(NOISE)]),),
            )
            for block in range(blocks)
        ),
        conditions=tuple(
            BlockConditions(block=b, duration_s=2.5, steal_ratio=0, involuntary_switches=0, control_s=(1e-3,))
            for b in range(blocks)
        ),
        failures=failures,
    )


def looked(effect, blocks=12, *, case=CASE, policy=POLICY):
    gate = SequentialGate((case,), policy, planned_blocks=blocks)
    gate.analyse(data(effect, blocks, case=case), blocks=blocks, final=True)
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
    failure = CaseFailed(case_id="case", arm=Arm.CANDIDATE, reason=fact("case.raised", error="the worker crashed"))
    (verdict,) = apply_confirmations(flags(), confirm(data(0.05, failures=(failure,)), [CASE], POLICY))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert codes_of(verdict.reasons) == ["verdict.effect", "confirmation.impossible", "case.raised"]
    failed = verdict.reasons[2]
    assert (failed.subject.arm, failed.values["error"]) == ("candidate", "the worker crashed")


def test_a_confirmation_is_looser_than_a_flag_but_not_free():
    """Slower at all is enough; a third of the level goes to each of the three analyses."""
    found = confirm(data(0.005), [CASE], POLICY)["case"]
    assert found.confirmed
    assert not confirm(data(0.001), [CASE], POLICY)["case"].confirmed


def test_advisory_cases_need_no_confirmation():
    advisory = replace(CASE, gating=Gating.ADVISORY)
    verdicts = looked(0.05, case=advisory).verdicts()
    assert flagged_cases(verdicts) == ()
    assert apply_confirmations(verdicts, {}) == verdicts


def test_one_final_look_is_the_ordinary_test():
    comparison = looked(0.0061).verdicts()[0].comparison
    plain = decide_cases([replace(comparison, analyses=1)], POLICY)[0]
    assert looked(0.0061).verdicts()[0].outcome is plain.outcome
    assert comparison.analyses == 1


def test_what_was_decided_at_a_look_stands():
    gate = SequentialGate((CASE,), POLICY, planned_blocks=12)
    assert gate.analyse(data(0.2, 6), blocks=6, final=False) == {"case": Outcome.REGRESSED}
    assert gate.answered() == {"case"}
    assert gate.analyse(data(0.0, 12), blocks=12, final=True) == {}
    assert gate.verdicts()[0].outcome is Outcome.REGRESSED


def test_a_failed_case_needs_no_more_measuring():
    failure = CaseFailed(case_id="case", arm=Arm.CANDIDATE, reason=fact("case.raised", error="gone"))
    gate = SequentialGate((CASE,), POLICY, planned_blocks=12)
    gate.analyse(data(0.0, 6, failures=(failure,)), blocks=6, final=False)
    assert gate.answered() == {"case"}
    assert gate.verdicts()[0].outcome is Outcome.FAILED


def test_an_open_case_says_how_much_longer_it_would_take():
    noisy = tuple(15 * value for value in NOISE)
    wide = data(0.0, 12)
    wide = replace(
        wide,
        samples=tuple(replace(entry, candidate_s=(1e-3 * math.exp(noisy[entry.block]),)) for entry in wide.samples),
    )
    gate = SequentialGate((CASE,), POLICY, planned_blocks=12)
    gate.analyse(wide, blocks=12, final=True)
    (verdict,) = gate.verdicts()
    assert verdict.outcome is Outcome.INCONCLUSIVE
    values = fact_of(verdict.reasons, "verdict.too_noisy").values
    assert (values["blocks"], values["target_ratio"]) == (12, 0.02)
    assert values["needed_blocks"] > 12
    assert values["more_s"] == pytest.approx((values["needed_blocks"] - 12) * 2.5)


@pytest.mark.parametrize(
    ("first_block_s", "left_s", "max_blocks", "expected"),
    [
        (10.0, 110.0, 60, 15),
        (10.0, 0.0, 60, 1),
        (10.0, -5.0, 60, 1),
        (0.0, 10.0, 60, 60),
        (1.0, 1e9, 40, 40),
        (0.1, 0.5, 60, 8),
        (0.001, 0.01, 60, 14),
        (10.0, 110.0, 1, 1),
    ],
)
def test_looks_are_spread_over_what_the_budget_will_hold(first_block_s, left_s, max_blocks, expected):
    assert plan_analyses(first_block_s, left_s=left_s, max_blocks=max_blocks) == expected


def test_what_is_left_is_planned_anew_from_the_blocks_of_the_cases_that_are_left():
    assert plan_analyses(2.0, left_s=40.0, max_blocks=60, finished=12) == 37
    assert plan_analyses(2.0, left_s=40.0, max_blocks=30, finished=12) == 30


def test_a_plan_of_more_blocks_leaves_level_for_them_and_takes_nothing_back():
    open_policy = replace(POLICY, margin_ratio=0.03)
    frozen, anew = (SequentialGate((CASE,), open_policy, planned_blocks=12) for _ in range(2))
    for gate in (frozen, anew):
        gate.analyse(data(0.02, 6), blocks=6, final=False)
    anew.plan(24)
    for blocks in (12, 18, 24):
        for gate in (frozen, anew):
            gate.analyse(data(0.02, blocks), blocks=blocks, final=False)
    fractions = [gate._paths["case"].fractions for gate in (frozen, anew)]
    assert fractions == [[0.5, 0.95, 0.95, 0.95], [0.5, 0.5, 0.75, 0.95]]


def test_looks_come_after_a_few_blocks_and_then_now_and_then():
    gate = SequentialGate((CASE,), POLICY, planned_blocks=40)
    taken = []
    for blocks in range(1, 41):
        if gate.is_due(blocks):
            gate.analyse(data(0.012, blocks), blocks=blocks, final=False)
            taken.append(blocks)
    assert taken[0] >= POLICY.min_blocks
    assert 6 <= len(taken) <= 9


def test_each_analysis_of_a_confirmation_spends_a_third_of_its_level():
    """A p between a third of the level and all of it would confirm a flag at a single analysis."""
    level = POLICY.confirm_level
    found = [confirm(data(0.001 + step * 1e-5, 5), [CASE], POLICY)["case"] for step in range(300)]
    single = [p_slower(each.estimate, 0.0) for each in found]
    assert any(level / 3 < p <= level for p in single)
    assert all(each.confirmed == (p <= level / 3) for each, p in zip(found, single, strict=True))


def test_what_one_analysis_has_confirmed_later_ones_do_not_take_back():
    rng = np.random.default_rng(5)
    confirmed = [0, 0, 0]
    for _ in range(60):
        values = 0.004 + 0.01 * rng.standard_normal(20)
        whole = data(0.0, 20)
        entries = [replace(entry, candidate_s=(1e-3 * math.exp(values[entry.block]),)) for entry in whole.samples]
        found = [
            confirm(replace(whole, samples=tuple(entries[:count])), [CASE], POLICY)["case"].confirmed
            for count in CONFIRMATION_ANALYSES
        ]
        assert found == sorted(found)
        confirmed = [count + each for count, each in zip(confirmed, found, strict=True)]
    assert 0 < confirmed[0] < confirmed[1] < confirmed[2] < 60


def test_blocks_after_an_analysis_say_nothing_before_the_next_one():
    assert not confirm(data(0.0, 5), [CASE], POLICY)["case"].confirmed
    later = data(0.0, 9)
    later = replace(later, samples=(*later.samples[:5], *data(0.5, 9).samples[5:]))
    assert not confirm(later, [CASE], POLICY)["case"].confirmed


@pytest.mark.parametrize("stolen", [0.0, 0.9])
def test_a_disturbed_block_is_left_out_of_an_analysis_that_can_spare_it(stolen):
    found = data(0.05, 10)
    samples = [replace(each, candidate_s=(4e-3,)) if each.block == 2 else each for each in found.samples]
    conditions = [replace(each, steal_ratio=stolen if each.block == 2 else 0.0) for each in found.conditions]
    disturbed = replace(found, samples=tuple(samples), conditions=tuple(conditions))
    assert confirm(disturbed, [CASE], POLICY)["case"].confirmed is (stolen > 0)


def test_two_blocks_can_confirm_and_one_cannot():
    assert confirm(data(0.5, 2), [CASE], POLICY)["case"].confirmed
    one = confirm(data(0.05, 1), [CASE], POLICY)["case"]
    assert (one.confirmed, one.estimate, one.p_slower) == (False, None, None)


def test_a_case_that_fails_leaves_the_others_to_be_confirmed():
    absent = Case(benchmark="absent", target="m:f")
    found = confirm(data(0.05), [absent, CASE], POLICY)
    assert {case_id: each.confirmed for case_id, each in found.items()} == {"absent": False, "case": True}


def test_a_p_value_at_the_level_confirms_and_none_is_above_one():
    p_value = confirm(data(0.004), [CASE], POLICY)["case"].p_slower
    assert confirm(data(0.004), [CASE], replace(POLICY, confirm_level=p_value))["case"].confirmed
    assert confirm(data(-0.05), [CASE], POLICY)["case"].p_slower == 1.0


def due(planned, blocks=40):
    """Blocks after which a gate analyses."""
    gate, taken = SequentialGate((CASE,), POLICY, planned_blocks=planned), []
    for count in range(1, blocks + 1):
        if gate.is_due(count):
            gate.analyse(data(0.012, count), blocks=count, final=False)
            taken.append(count)
    return taken


@pytest.mark.parametrize(
    ("planned", "expected"),
    [
        (80, [10, 20, 30, 40]),
        (40, [5, 10, 15, 20, 25, 30, 35, 40]),
        (20, [5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39]),
        (1, [5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39]),
    ],
)
def test_eight_looks_are_spread_over_the_planned_blocks(planned, expected):
    assert due(planned) == expected


class TestWhatALookAddsUpTo:
    SIGNALS = (
        ("p_regressed", Spending.CAUTIOUS),
        ("p_improved", Spending.CAUTIOUS),
        ("p_unclean", Spending.EVEN),
        ("p_outside", Spending.EVEN),
    )

    def expected(self, analyses, fractions):
        """The p-values of looks at so many blocks each, from their own tests."""
        nominal = [compare_paired(data(0.004, blocks), [CASE], POLICY)[0] for blocks in analyses]
        return {
            name: sequential_p(
                spending, [getattr(each, name) for each in nominal], [float(b) for b in analyses], fractions
            )
            for name, spending in self.SIGNALS
        }

    def found(self, *analyses, planned=12):
        gate = SequentialGate((CASE,), POLICY, planned_blocks=planned)
        for blocks, final in analyses:
            gate.analyse(data(0.004, blocks), blocks=blocks, final=final)
        comparison = gate.verdicts()[0].comparison
        return comparison.analyses, {name: getattr(comparison, name) for name, _ in self.SIGNALS}

    @pytest.mark.parametrize(
        ("analyses", "counted", "fractions"),
        [
            ([(5, False)], [5], [5 / 12]),
            ([(12, False)], [12], [0.95]),
            ([(14, False)], [14], [0.95]),
            ([(5, True)], [5], [1.0]),
            ([(5, False), (8, False)], [5, 8], [5 / 12, 8 / 12]),
            ([(5, False), (8, True)], [5, 8], [5 / 12, 1.0]),
            # Without new blocks an interim analysis is none; the last one spends what is left all the same.
            ([(5, False), (5, False)], [5], [5 / 12]),
            ([(5, False), (5, True)], [5, 5], [5 / 12, 1.0]),
        ],
    )
    def test_is_valid_after_all_of_them(self, analyses, counted, fractions):
        assert self.found(*analyses) == (len(counted), self.expected(counted, fractions))

    def test_a_plan_of_too_few_blocks_is_one_of_as_many_as_a_verdict_needs(self):
        assert self.found((5, False), planned=2) == (1, self.expected([5], [0.95]))

    def test_too_few_blocks_are_kept_and_not_looked_at(self):
        gate = SequentialGate((CASE,), POLICY, planned_blocks=12)
        gate.analyse(data(0.5, 4), blocks=4, final=True)
        comparison = gate.verdicts()[0].comparison
        assert comparison == compare_paired(data(0.5, 4), [CASE], POLICY)[0]
        assert gate.verdicts()[0].outcome is Outcome.INCONCLUSIVE


class TestAnAnswer:
    @pytest.mark.parametrize(
        ("effect", "outcome", "is_answered"),
        [
            (0.05, Outcome.REGRESSED, True),
            (-0.05, Outcome.IMPROVED, True),
            (0.0, Outcome.UNCHANGED, True),
            (0.013, Outcome.UNCHANGED, False),  # inside 2 %, and not inside 1 %
            (0.02, Outcome.INCONCLUSIVE, False),
        ],
    )
    def test_ends_the_measuring_of_its_case(self, effect, outcome, is_answered):
        policy = replace(POLICY, margin_ratio=0.03)
        gate = SequentialGate((CASE,), policy, planned_blocks=12)
        found = gate.analyse(data(effect, 12), blocks=12, final=True)
        assert found == ({"case": outcome} if is_answered else {})
        assert gate.answered() == ({"case"} if is_answered else set())
        assert gate.verdicts()[0].outcome is outcome

    def test_needs_the_case_to_be_clean_at_one_side_of_the_interval_level(self):
        found = {}
        for step in range(60):
            gate = SequentialGate((CASE,), replace(POLICY, margin_ratio=0.03), planned_blocks=12)
            gate.analyse(data(0.006 + 1e-4 * step, 12), blocks=12, final=True)
            found[gate.verdicts()[0].comparison.p_unclean] = bool(gate.answered())
        assert any(0.017 < p_value <= 0.025 for p_value in found)
        assert all(is_answered == (p_value <= 0.025) for p_value, is_answered in found.items())

    def test_of_one_case_does_not_end_the_measuring_of_another(self):
        other = replace(CASE, benchmark="other")

        def both(blocks):
            first, second = data(0.2, blocks), data(0.009 if blocks < 12 else 0.05, blocks, case=other)
            return replace(first, samples=(*first.samples, *second.samples))

        gate = SequentialGate((CASE, other), POLICY, planned_blocks=12)
        assert gate.analyse(both(6), blocks=6, final=False) == {"case": Outcome.REGRESSED}
        assert gate.analyse(both(12), blocks=12, final=True) == {"other": Outcome.REGRESSED}

    @pytest.mark.parametrize(("missing", "outcome"), [(True, Outcome.NO_BASELINE), (False, Outcome.FAILED)])
    def test_is_needed_no_more_of_a_case_that_cannot_have_one(self, missing, outcome):
        other = replace(CASE, benchmark="other")
        reason = fact("case.raised", error="gone")
        failure = CaseFailed(case_id="case", arm=Arm.BASELINE, reason=reason, missing=missing)
        gate = SequentialGate((CASE, other), POLICY, planned_blocks=12)
        found = gate.analyse(data(0.05, 12, case=other, failures=(failure,)), blocks=12, final=False)
        assert found == {"other": Outcome.REGRESSED}
        assert gate.answered() == {"case", "other"}
        assert [verdict.outcome for verdict in gate.verdicts()] == [outcome, Outcome.REGRESSED]

    def test_keeps_the_look_that_gave_it_and_the_rule_of_the_latest(self):
        gate = SequentialGate((CASE,), POLICY, planned_blocks=12)
        assert gate.voiding is None
        gate.analyse(data(0.2, 6), blocks=6, final=False)
        answer = gate.verdicts()
        gate.analyse(data(0.0, 12), blocks=12, final=True)
        assert gate.verdicts() == answer
        assert gate.voiding.blocks_total == 12
