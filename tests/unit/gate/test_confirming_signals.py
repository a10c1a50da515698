from __future__ import annotations

import numpy as np
import pytest

from perfguard.gate.rules.confirmation import confirm_signals
from perfguard.gate.rules.policy import decide_cases
from perfguard.gate.rules.signals import SignalPolicy, judge_signals
from perfguard.records.facts import fact
from perfguard.records.run import Signal, SignalSamples
from perfguard.records.spec import Gating
from perfguard.records.verdict import Outcome, Policy
from perfguard.stats.signals import ratio_bar, readable_pairs
from tests.changed_values import replace
from tests.compared_cases import compared

POLICY = Policy()
SIGNALS = SignalPolicy(gating=(Signal.CPU, Signal.FAULTS))


def samples(signal, baseline, candidate, *, blocks=8, sd=0.004, seed=1):
    """Both arms around their values, with as much noise in a block as between blocks."""
    rng = np.random.default_rng([seed, blocks])
    entries = []
    for block in range(blocks):
        noise = 1 + sd * rng.standard_normal((2, 6))
        before, after = (
            tuple(float(v) for v in value * row) for value, row in zip((baseline, candidate), noise, strict=True)
        )
        entries.append(SignalSamples(case_id="x", block=block, signal=signal, baseline=before, candidate=after))
    return entries


def ruled(entries, again, *, effect=0.0, gating=Gating.GATING):
    timed = decide_cases([compared("x", effect, gating=gating)], POLICY)
    judged = judge_signals(entries, timed, SIGNALS)
    return judged[0], confirm_signals(timed, judged, again, POLICY)[0]


TWICE = samples(Signal.CPU, 1e-3, 2e-3)


def test_a_signal_that_relocated_arms_show_again_stays_red():
    _, verdict = ruled(TWICE, samples(Signal.CPU, 1e-3, 1.9e-3, blocks=5, seed=2))
    assert verdict.outcome is Outcome.REGRESSED
    assert verdict.reasons[-1] == fact("signal.confirmation", signal="cpu", confirmed=True, blocks=5)


def test_a_signal_that_was_luck_of_the_layout_is_inconclusive():
    flagged, verdict = ruled(TWICE, samples(Signal.CPU, 1e-3, 1e-3, blocks=10, seed=2))
    assert flagged.outcome is Outcome.REGRESSED
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reasons[-1] == fact("signal.confirmation", signal="cpu", confirmed=False, blocks=10)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("train_s of cpu-0", 1e-5, 2e-5), ("update_share of cpu", 0.5, 0.8), ("retries of cpu-0", 0.0, 6.0)],
)
def test_a_benchmarks_own_signal_is_confirmed_like_any_other(name, before, after):
    flagged = samples(name, before, after)
    _, verdict = ruled(flagged, samples(name, before, after, blocks=6, seed=2))
    assert verdict.reasons[-1] == fact("signal.confirmation", signal=name, confirmed=True, blocks=6)
    _, verdict = ruled(flagged, samples(name, after, after, blocks=6, seed=2))
    assert verdict.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("blocks", [0, 1])
def test_a_run_that_ended_before_the_confirmation_is_never_red_by_a_signal(blocks):
    _, verdict = ruled(TWICE, samples(Signal.CPU, 1e-3, 2e-3, blocks=blocks))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reasons[-1] == fact("signal.confirmation", signal="cpu", confirmed=False, blocks=None)


def test_counts_are_confirmed_by_their_difference():
    faults = samples(Signal.FAULTS, 0.0, 400.0)
    assert ruled(faults, samples(Signal.FAULTS, 0.0, 380.0, blocks=5))[1].outcome is Outcome.REGRESSED
    assert ruled(faults, samples(Signal.FAULTS, 0.0, 0.0, blocks=5))[1].outcome is Outcome.INCONCLUSIVE


def test_one_of_two_signals_that_comes_back_is_enough():
    both = [*TWICE, *samples(Signal.FAULTS, 0.0, 400.0)]
    again = [*samples(Signal.CPU, 1e-3, 1e-3, blocks=5), *samples(Signal.FAULTS, 0.0, 380.0, blocks=5)]
    assert ruled(both, again)[1].outcome is Outcome.REGRESSED


def test_a_case_whose_time_is_red_needs_no_confirmation_of_its_signals():
    flagged, verdict = ruled(TWICE, [], effect=0.5)
    assert flagged.outcome is verdict.outcome is Outcome.REGRESSED
    assert verdict == flagged


def test_advisory_cases_are_left_as_they_are():
    flagged, verdict = ruled(TWICE, [], gating=Gating.ADVISORY)
    assert verdict == flagged


def test_luck_comes_back_about_as_seldom_as_the_level_says():
    red = 0
    for seed in range(300):
        again = samples(Signal.CPU, 1e-3, 1e-3, blocks=5, sd=0.02, seed=seed)
        red += ruled(TWICE, again)[1].outcome is Outcome.REGRESSED
    assert red <= 300 * POLICY.confirm_level  # a third of the level at each of three analyses; this is the first


def test_the_analyses_of_a_confirmation_share_its_level():
    """A p between a third of the level and all of it would confirm a flag at a single analysis."""
    between = 0
    for step in range(60):
        again = samples(Signal.CPU, 1e-3, 1e-3 * (1 + 1e-4 * step), blocks=5, seed=2)
        p_value = ratio_bar([readable_pairs(entry.baseline, entry.candidate) for entry in again], 0.0).p_up()
        is_red = ruled(TWICE, again)[1].outcome is Outcome.REGRESSED
        assert is_red == (p_value <= POLICY.confirm_level / 3)
        between += POLICY.confirm_level / 3 < p_value <= POLICY.confirm_level
    assert between


def test_what_is_not_red_stays_as_it_is():
    same = samples(Signal.CPU, 1e-3, 1e-3)
    flagged, verdict = ruled(same, [])
    assert flagged.outcome is Outcome.UNCHANGED
    assert verdict == flagged


def test_every_case_keeps_its_place_whatever_is_confirmed_before_it():
    timed = decide_cases([compared(case_id, 0.0) for case_id in ("calm", "x", "still")], POLICY)
    judged = judge_signals(TWICE, timed, SIGNALS)
    found = confirm_signals(timed, judged, samples(Signal.CPU, 1e-3, 1.9e-3, blocks=5, seed=2), POLICY)
    assert [(verdict.case_id, verdict.outcome) for verdict in found] == [
        ("calm", Outcome.UNCHANGED),
        ("x", Outcome.REGRESSED),
        ("still", Outcome.UNCHANGED),
    ]


def test_a_signal_that_is_only_told_confirms_nothing():
    both = [*TWICE, *samples(Signal.INSTRUCTIONS, 1e9, 2e9)]
    again = [*samples(Signal.CPU, 1e-3, 1e-3, seed=2), *samples(Signal.INSTRUCTIONS, 1e9, 2e9, seed=2)]
    assert ruled(both, again)[1].outcome is Outcome.INCONCLUSIVE


def test_two_blocks_can_confirm():
    assert ruled(TWICE, samples(Signal.CPU, 1e-3, 2e-3, blocks=2, seed=2))[1].outcome is Outcome.REGRESSED


def test_more_of_a_count_at_all_confirms_it():
    """Half a fault more in each iteration, seen in thirty samples: far less than the margin that flags."""
    faults = samples(Signal.FAULTS, 0.0, 400.0)
    assert ruled(faults, samples(Signal.FAULTS, 0.0, 0.5, blocks=5))[1].outcome is Outcome.REGRESSED


def test_a_p_value_at_the_level_confirms():
    again = samples(Signal.CPU, 1e-3, 1.01e-3, blocks=5, seed=2)
    p_value = ratio_bar([readable_pairs(entry.baseline, entry.candidate) for entry in again], 0.0).p_up()
    timed = decide_cases([compared("x", 0.0)], POLICY)
    judged = judge_signals(TWICE, timed, SIGNALS)
    for level, outcome in ((3.01 * p_value, Outcome.REGRESSED), (2.99 * p_value, Outcome.INCONCLUSIVE)):
        policy = replace(POLICY, confirm_level=level)
        assert confirm_signals(timed, judged, again, policy)[0].outcome is outcome
