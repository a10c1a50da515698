from __future__ import annotations

import math

import numpy as np
import pytest

from perfguard.gate.rules.compare import compare_paired
from perfguard.gate.rules.policy import decide_cases
from perfguard.gate.rules.rulings import mode_fact, report_modes
from perfguard.records.run import BlockConditions, CaseSamples, PairedData
from perfguard.records.spec import Case
from perfguard.records.verdict import Design, Outcome, Policy
from tests.changed_values import replace
from tests.found_facts import codes_of

POLICY = Policy(max_block_sd_ratio=0.5)
CASE = Case(benchmark="x", target="m:f")
SLOW = math.log1p(0.081)
MOSTLY = [1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0]
"""Sixteen slow blocks of twenty."""
RARELY = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
NEVER = [0] * 20


def data_of(baseline_slow, candidate_slow, *, shift=0.0, noise=0.003, machine=NEVER):
    rng = np.random.default_rng(7)
    entries = []
    for block, slow in enumerate(zip(baseline_slow, candidate_slow, strict=True)):
        drift = 0.01 * block + machine[block]
        log_s = drift + SLOW * np.array(slow) + np.array([0.0, shift]) + noise * rng.standard_normal(2)
        samples = np.exp(log_s[:, None] + noise * rng.standard_normal((2, 6))) * 1e-3
        entries.append(
            CaseSamples(case_id="x", block=block, baseline_s=tuple(samples[0]), candidate_s=tuple(samples[1]))
        )
    conditions = tuple(
        BlockConditions(block=b, duration_s=1, steal_ratio=0, involuntary_switches=0, control_s=(1e-3,))
        for b in range(len(entries))
    )
    return PairedData(case_ids=("x",), samples=tuple(entries), conditions=conditions)


def reported(data, *, outcome=None, policy=POLICY):
    (verdict,) = decide_cases(compare_paired(data, [CASE], policy), policy)
    if outcome is not None:
        verdict = replace(verdict, outcome=outcome)
    return verdict, report_modes([verdict], data, policy)[0]


def test_a_slow_mode_that_is_met_more_often_is_named_and_stays_a_regression():
    before, after = reported(data_of(RARELY, MOSTLY))
    assert before.outcome is after.outcome is Outcome.REGRESSED
    assert after.modes is not None
    assert after.modes.mix_changed
    assert after.modes.explains_effect
    assert after.modes.slow_over_fast == pytest.approx(0.081, abs=0.005)
    assert (after.modes.baseline_slow_share, after.modes.candidate_slow_share) == (0.1, 0.8)
    assert after.reasons == (mode_fact(after.modes), *before.reasons)
    values = after.reasons[0].values
    assert (values["baseline_share"], values["candidate_share"], values["explains_effect"]) == (0.1, 0.8, True)
    assert "log_ratio" not in values


@pytest.mark.parametrize("outcome", [Outcome.REGRESSED, Outcome.IMPROVED])
def test_where_the_mix_did_not_change_the_difference_is_luck(outcome):
    candidate = [1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0]
    _, after = reported(data_of(RARELY, candidate), outcome=outcome)
    assert after.outcome is Outcome.INCONCLUSIVE
    assert codes_of(after.reasons)[:2] == ["modes.mixed", "modes.luck"]
    assert after.modes is not None
    assert not after.modes.mix_changed


@pytest.mark.parametrize(("slow_blocks", "mix_changed"), [(7, False), (8, True)])
def test_the_mix_has_changed_at_a_level_of_one_percent(slow_blocks, mix_changed):
    """The exact sign test gives 2 / 128 for seven blocks in which one arm alone is slow, 2 / 256 for eight."""
    candidate = [1] * slow_blocks + [0] * (20 - slow_blocks)
    _, after = reported(data_of(NEVER, candidate))
    assert after.modes.p_mix == pytest.approx(2.0 ** (1 - slow_blocks))
    assert after.modes.mix_changed is mix_changed


@pytest.mark.parametrize("machine_step", [0.03, -0.03])
def test_a_step_of_the_machine_is_no_mode_and_hides_none(machine_step):
    """Seven blocks with a slow candidate, one with both arms slow; there the machine changes for good, by less."""
    candidate = [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    both = [0] * 16 + [1] + [0] * 3
    machine = [0.0] * 16 + [machine_step] * 4
    slow = [c or b for c, b in zip(candidate, both, strict=True)]
    _, after = reported(data_of(both, slow, noise=0.0005, machine=machine))
    assert (after.modes.baseline_slow_share, after.modes.candidate_slow_share) == (1 / 20, 8 / 20)


def test_both_arms_are_slow_where_the_machine_hides_less_than_half_of_it():
    machine = [0.0] * 19 + [-0.045]  # beside a drift of 0.01 for each block
    _, after = reported(data_of([0] * 19 + [1], [*[1, 0] * 7, 0, 0, 0, 0, 0, 1], noise=0.0005, machine=machine))
    assert (after.modes.baseline_slow_share, after.modes.candidate_slow_share) == (1 / 20, 8 / 20)


def test_a_burst_in_one_sample_and_a_block_of_one_arm_change_nothing():
    data = data_of(RARELY, MOSTLY)
    _, after = reported(data)
    both_fast = data.samples[8]
    burst = replace(
        both_fast,
        baseline_s=(40 * both_fast.baseline_s[0], *both_fast.baseline_s[1:]),
        candidate_s=(40 * both_fast.candidate_s[0], *both_fast.candidate_s[1:]),
    )
    samples = (*data.samples[:8], burst, *data.samples[9:], replace(both_fast, block=20, candidate_s=()))
    (disturbed,) = report_modes([reported(data)[0]], replace(data, samples=samples), POLICY)
    assert disturbed.modes.baseline_slow_share == after.modes.baseline_slow_share
    assert disturbed.modes.candidate_slow_share == after.modes.candidate_slow_share


def test_a_shift_within_the_modes_stays_what_it_is():
    before, after = reported(data_of(RARELY, MOSTLY, shift=0.04))
    assert after.modes is not None
    assert not after.modes.explains_effect
    assert after.modes.within_log_ratio == pytest.approx(0.04, abs=0.01)
    assert mode_fact(after.modes).values["log_ratio"] == after.modes.within_log_ratio
    assert (after.outcome, after.reasons) == (before.outcome, before.reasons)


@pytest.mark.parametrize(("shift", "is_luck"), [(0.0, True), (0.003, True), (0.014, False), (-0.014, False)])
def test_a_shift_beyond_the_margin_is_not_explained_away_although_it_is_small(shift, is_luck):
    """All of its interval lies within 2 %, which is `unchanged` elsewhere."""
    candidate = [1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0]
    _, after = reported(data_of(RARELY, candidate, shift=shift, noise=0.002), outcome=Outcome.REGRESSED)
    assert abs(after.modes.within_log_ratio - shift) < 0.003
    assert after.modes.within.upper < 0.02
    assert (after.outcome is Outcome.INCONCLUSIVE) is is_luck


def test_an_open_case_is_told_why_it_is_noisy():
    before, after = reported(data_of(RARELY, [*RARELY[::-1][:18], 0, 1]), outcome=Outcome.INCONCLUSIVE)
    assert after.outcome is Outcome.INCONCLUSIVE
    assert after.modes is not None
    assert after.reasons == (*before.reasons, mode_fact(after.modes))


def test_one_mode_is_not_reported():
    before, after = reported(data_of(NEVER, NEVER, shift=0.05))
    assert before.outcome is Outcome.REGRESSED
    assert after == before


def test_voided_blocks_and_stored_baselines_are_left_out():
    data = data_of(RARELY, MOSTLY)
    before, _ = reported(data)
    assert report_modes([before], data, POLICY, voided=frozenset(range(15))) == (before,)
    stored = replace(before, comparison=replace(before.comparison, design=Design.ROUNDS))
    assert report_modes([stored], data, POLICY) == (stored,)


def test_a_case_without_usable_times_is_left_to_the_comparison():
    data = data_of(RARELY, MOSTLY)
    broken = replace(data, samples=(replace(data.samples[0], baseline_s=(0.0,)), *data.samples[1:]))
    before, _ = reported(data)
    assert report_modes([before], broken, POLICY) == (before,)
    assert report_modes([before], replace(data, samples=()), POLICY) == (before,)
