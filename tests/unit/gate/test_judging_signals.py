from __future__ import annotations

import math

import numpy as np
import pytest

from perfguard.gate.rules.policy import decide_cases
from perfguard.gate.rules.signals import RULES, Scale, SignalPolicy, SignalRule, judge_signals, missing_signals, rule_of
from perfguard.records.facts import fact
from perfguard.records.run import Arm, Signal, SignalSamples
from perfguard.records.spec import Gating
from perfguard.records.verdict import Outcome, Policy
from tests.changed_values import replace
from tests.compared_cases import compared
from tests.found_facts import codes_of, fact_of

POLICY = SignalPolicy()
BLOCKS, SAMPLES = 10, 6
MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("train_s of cpu-0", {"unit": "s", "margin_ratio": 0.1, "follows_time": True}),
        ("update_share of cpu", {"unit": "", "margin": 0.1, "scale": Scale.SHARE}),
        ("updates of cpu", {"unit": "", "margin_ratio": 0.1, "margin": 0.5, "scale": Scale.COUNT}),
    ],
)
def test_a_signal_of_a_benchmarks_own_has_the_rule_of_its_suffix(name, rule):
    assert rule_of(name) == SignalRule(signal=name, is_own=True, **rule)


def timed(case_id="x", effect=0.0, *, sd=0.004, gating=Gating.GATING, analyses=1):
    """A verdict on the times alone."""
    return decide_cases([compared(case_id, effect, sd=sd, gating=gating, analyses=analyses)], Policy())[0]


def measured(signal, baseline, candidate, *, case_id="x", sd=0.004, blocks=BLOCKS, seed=1):
    """Samples around two typical values, with block noise of `sd` relative to each."""
    rng = np.random.default_rng([seed, blocks, *case_id.encode()])
    entries = []
    for block in range(blocks):
        first, second = 1 + sd * rng.standard_normal((2, SAMPLES)) + sd * rng.standard_normal((2, 1))
        entries.append(
            SignalSamples(
                case_id=case_id,
                block=block,
                signal=signal,
                baseline=tuple(float(value) for value in baseline * first),
                candidate=tuple(float(value) for value in candidate * second),
            )
        )
    return entries


def finding(entries, verdict=None, policy=POLICY):
    (found,) = judge_signals(entries, [verdict or timed()], policy)[0].signals
    return found


def test_an_op_that_burns_twice_the_cores_for_the_same_time_regressed():
    verdict = timed()
    assert verdict.outcome is Outcome.UNCHANGED
    (judged,) = judge_signals(measured(Signal.CPU, 0.0121, 0.0237), [verdict], POLICY)
    assert judged.outcome is Outcome.REGRESSED
    assert judged.gating is Gating.GATING
    assert codes_of(judged.reasons) == ["signal.regressed", *codes_of(verdict.reasons)]
    assert judged.reasons[0].values == {
        "signal": "cpu",
        "baseline_s": pytest.approx(0.0121, rel=0.01),
        "candidate_s": pytest.approx(0.0237, rel=0.01),
        "blocks": 10,
        "in_same_time": True,
    }
    (found,) = judged.signals
    assert (found.signal, found.outcome, found.gating, found.unit) == ("cpu", Outcome.REGRESSED, True, "s")
    assert found.p_adjusted is not None
    assert found.p_adjusted < 1e-6


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.signal)
def test_each_signal_regresses_improves_and_stays(rule):
    typical = {Signal.CPU: 0.01, Signal.MEMORY: 400 * MIB, Signal.FAULTS: 100, Signal.SWITCHES: 40, Signal.ENERGY: 2}
    value = typical.get(rule.signal, 1e9)
    assert finding(measured(rule.signal, value, value * 1.8)).outcome is Outcome.REGRESSED
    assert finding(measured(rule.signal, value * 1.8, value)).outcome is Outcome.IMPROVED
    assert finding(measured(rule.signal, value, value)).outcome is Outcome.UNCHANGED


def test_only_a_gating_signal_changes_the_outcome():
    entries = measured(Signal.INSTRUCTIONS, 1e9, 2e9)
    (told,) = judge_signals(entries, [timed()], POLICY)
    assert (told.outcome, told.signals[0].outcome, told.signals[0].gating) == (
        Outcome.UNCHANGED,
        Outcome.REGRESSED,
        False,
    )
    (failed,) = judge_signals(entries, [timed()], SignalPolicy(gating=(Signal.CPU, Signal.INSTRUCTIONS)))
    assert failed.outcome is Outcome.REGRESSED
    assert failed.reasons[0].code == "signal.regressed"
    assert (failed.reasons[0].values["signal"], failed.reasons[0].values["in_same_time"]) == ("instructions", True)


def test_an_advisory_case_is_told_and_never_fails():
    (told,) = judge_signals(measured(Signal.CPU, 0.01, 0.02), [timed(gating=Gating.ADVISORY)], POLICY)
    assert told.outcome is Outcome.UNCHANGED
    assert told.signals[0].outcome is Outcome.REGRESSED
    assert not told.signals[0].gating


def test_a_speed_up_that_costs_cores_stays_one_and_says_so():
    verdict = timed(effect=-0.3)
    (judged,) = judge_signals(measured(Signal.CPU, 0.01, 0.02), [verdict], POLICY)
    assert judged.outcome is Outcome.IMPROVED
    assert codes_of(judged.reasons) == ["verdict.effect", "signal.regressed"]
    assert judged.reasons[1].values["in_same_time"] is False


def test_what_already_regressed_keeps_its_reasons():
    verdict = timed(effect=0.3)
    (judged,) = judge_signals(measured(Signal.CPU, 0.01, 0.02), [verdict], POLICY)
    assert (judged.outcome, judged.reasons) == (Outcome.REGRESSED, verdict.reasons)


def test_an_open_case_is_red_where_its_cpu_time_is():
    verdict = timed(sd=0.04)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    (judged,) = judge_signals(measured(Signal.CPU, 0.01, 0.02), [verdict], POLICY)
    assert judged.outcome is Outcome.REGRESSED
    assert fact_of(judged.reasons, "signal.regressed").values["in_same_time"] is False


def test_a_signal_fails_the_gate_though_the_times_are_too_noisy_to_gate():
    verdict = timed(sd=0.08)
    assert (verdict.gating, codes_of(verdict.reasons)[0]) == (Gating.ADVISORY, "verdict.demoted")
    (same,) = judge_signals(measured(Signal.CPU, 0.01, 0.01), [verdict], POLICY)
    assert (same.gating, same.reasons) == (Gating.ADVISORY, verdict.reasons)
    (judged,) = judge_signals(measured(Signal.CPU, 0.01, 0.02), [verdict], POLICY)
    assert (judged.outcome, judged.gating) == (Outcome.REGRESSED, Gating.GATING)
    assert codes_of(judged.reasons) == ["signal.regressed", *codes_of(verdict.reasons)[1:]]


def test_a_difference_below_the_margin_is_no_regression():
    assert finding(measured(Signal.CPU, 0.01, 0.0104)).outcome is Outcome.UNCHANGED


def test_memory_must_clear_both_margins():
    assert finding(measured(Signal.MEMORY, 50 * MIB, 56 * MIB)).outcome is Outcome.UNCHANGED
    assert finding(measured(Signal.MEMORY, 800 * MIB, 815 * MIB)).outcome is Outcome.UNCHANGED
    assert finding(measured(Signal.MEMORY, 400 * MIB, 430 * MIB)).outcome is Outcome.REGRESSED
    assert finding(measured(Signal.MEMORY, 56 * MIB, 50 * MIB)).outcome is Outcome.UNCHANGED
    assert finding(measured(Signal.MEMORY, 815 * MIB, 800 * MIB)).outcome is Outcome.UNCHANGED
    assert finding(measured(Signal.MEMORY, 430 * MIB, 400 * MIB)).outcome is Outcome.IMPROVED


def test_page_faults_out_of_none_are_found_and_a_few_are_not():
    entries = measured(Signal.FAULTS, 0, 84, sd=0.0)
    found = finding(entries)
    assert (found.outcome, found.baseline, found.candidate) == (Outcome.REGRESSED, 0.0, 84.0)
    assert finding(measured(Signal.FAULTS, 0, 4, sd=0.0)).outcome is Outcome.UNCHANGED
    assert finding(measured(Signal.FAULTS, 0, 0, sd=0.0)).outcome is Outcome.UNCHANGED
    (judged,) = judge_signals(entries, [timed()], SignalPolicy(gating=(Signal.FAULTS,)))
    assert judged.reasons[0].code == "signal.regressed"
    assert (judged.reasons[0].values["baseline"], judged.reasons[0].values["candidate"]) == (0.0, 84.0)


def test_identical_counts_are_only_as_certain_as_counts_are():
    # 11 against a margin of 10: ten identical blocks are no proof that the true rate is above the margin.
    assert finding(measured(Signal.FAULTS, 0, 11, sd=0.0, blocks=5)).outcome is Outcome.INCONCLUSIVE


def test_amounts_that_never_vary_are_compared_without_a_crash():
    assert finding(measured(Signal.INSTRUCTIONS, 1e9, 1e9, sd=0.0)).outcome is Outcome.UNCHANGED
    assert finding(measured(Signal.INSTRUCTIONS, 1e9, 1.1e9, sd=0.0)).outcome is Outcome.REGRESSED


def test_a_signal_that_an_arm_cannot_read_has_no_finding():
    entries = measured(Signal.ENERGY, 1.0, 2.0)
    alone = [replace(entry, candidate=(None,) * SAMPLES) for entry in entries]
    assert judge_signals(alone, [timed()], POLICY)[0].signals == ()
    assert judge_signals([], [timed()], POLICY)[0].signals == ()


def test_blocks_and_samples_that_could_not_be_read_are_left_out():
    entries = measured(Signal.CPU, 0.01, 0.02)
    holes = [
        replace(entry, baseline=(None, *entry.baseline[1:])) if entry.block % 2 else entry for entry in entries[2:]
    ]
    holes += [replace(entry, candidate=()) for entry in entries[:2]]
    found = finding(holes)
    assert found.outcome is Outcome.REGRESSED
    assert (found.fact.code, found.fact.values["blocks"]) == ("signal.measured", 8)


@pytest.mark.parametrize("wild", [math.inf, -math.inf, math.nan, -1.0])
def test_a_value_that_is_no_amount_is_left_out(wild):
    entries = measured(Signal.CPU, 0.01, 0.01)
    entries[3] = replace(entries[3], candidate=(wild, *entries[3].candidate[1:]))
    entries[4] = replace(entries[4], baseline=(wild,) * SAMPLES)
    found = finding(entries)
    assert found.outcome is Outcome.UNCHANGED
    assert (found.fact.code, found.fact.values["blocks"]) == ("signal.measured", 9)


def test_an_arm_that_reads_zero_is_not_compared_by_its_ratio():
    found = finding(measured(Signal.CPU, 0.0, 0.01))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.fact == fact("signal.zero", signal="cpu")
    assert found.p_adjusted is None


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_fewer_blocks_than_the_minimum_say_nothing(blocks):
    (judged,) = judge_signals(measured(Signal.CPU, 0.01, 0.02, blocks=blocks), [timed()], POLICY)
    assert judged.outcome is Outcome.UNCHANGED
    assert judged.signals[0].outcome is Outcome.INCONCLUSIVE
    assert judged.signals[0].fact == fact("signal.too_few_blocks", signal="cpu", blocks=blocks, needed=5)


def test_voided_blocks_do_not_count():
    entries = measured(Signal.CPU, 0.01, 0.02)
    (judged,) = judge_signals(entries, [timed()], POLICY, voided=frozenset(range(7)))
    assert judged.signals[0].fact == fact("signal.too_few_blocks", signal="cpu", blocks=3, needed=5)


def test_gating_signals_are_corrected_over_the_gating_cases_and_all_looks():
    alone = finding(measured(Signal.CPU, 0.01, 0.0108, sd=0.01))
    names = [f"c{index}" for index in range(12)]
    verdicts = [timed(), *(timed(name) for name in names), timed("advisory", gating=Gating.ADVISORY)]
    entries = measured(Signal.CPU, 0.01, 0.0108, sd=0.01)
    for name in (*names, "advisory"):
        entries += measured(Signal.CPU, 0.01, 0.01, case_id=name, sd=0.01)
    family = judge_signals(entries, verdicts, POLICY)[0].signals[0]
    assert alone.p_adjusted is not None
    assert family.p_adjusted == pytest.approx(13 * alone.p_adjusted)
    later = finding(measured(Signal.CPU, 0.01, 0.0108, sd=0.01), timed(analyses=4))
    assert later.p_adjusted == pytest.approx(10 * alone.p_adjusted)


def test_findings_stand_in_the_order_of_the_rules():
    entries = [
        *measured(Signal.INSTRUCTIONS, 1e9, 1e9),
        *measured(Signal.FAULTS, 1, 1),
        *measured(Signal.CPU, 0.01, 0.01),
    ]
    (judged,) = judge_signals(entries, [timed()], POLICY)
    assert [found.signal for found in judged.signals] == ["cpu", "faults", "instructions"]


def test_the_verdicts_keep_their_order_and_those_without_data_stay_as_they_were():
    verdicts = [timed("a"), timed("b")]
    judged = judge_signals(measured(Signal.CPU, 0.01, 0.02, case_id="b"), verdicts, POLICY)
    assert [verdict.case_id for verdict in judged] == ["a", "b"]
    assert judged[0] == verdicts[0]
    assert judged[1].outcome is Outcome.REGRESSED


def test_a_signal_that_both_arms_lack_is_named_once():
    both = {Arm.BASELINE: {"energy": "no counter"}, Arm.CANDIDATE: {"energy": "no counter", "memory": "refused"}}
    assert missing_signals(both) == (
        fact("signal.missing", signal="energy", why="no counter"),
        fact("signal.missing", arm="candidate", signal="memory", why="refused"),
    )
    assert missing_signals({}) == ()


@pytest.mark.parametrize(("margin_ratio", "outcome"), [(0.005, Outcome.REGRESSED), (0.9, Outcome.UNCHANGED)])
def test_cpu_seconds_of_a_slowdown_that_the_project_accepts_are_accepted_too(margin_ratio, outcome):
    verdict = timed(effect=0.3)
    tolerant = replace(verdict, comparison=replace(verdict.comparison, margin_ratio=margin_ratio))
    assert finding(measured(Signal.CPU, 1e-3, 1.3e-3), tolerant).outcome is outcome


def test_memory_has_no_part_in_the_margin_of_time():
    verdict = timed()
    tolerant = replace(verdict, comparison=replace(verdict.comparison, margin_ratio=0.9))
    assert finding(measured(Signal.MEMORY, 5e8, 8e8), tolerant).outcome is Outcome.REGRESSED


@pytest.mark.parametrize(
    ("signal", "baseline", "margin"),
    [
        (Signal.CPU, 0.01, 0.0005),
        (Signal.MEMORY, 400 * MIB, 20 * MIB),
        (Signal.MEMORY, 100 * MIB, 8 * MIB),
        (Signal.FAULTS, 10_000, 5_000),
        (Signal.FAULTS, 1, 10),
        (Signal.SWITCHES, 1_000, 500),
        (Signal.SWITCHES, 0, 2),
        (Signal.ENERGY, 2.0, 0.1),
        (Signal.INSTRUCTIONS, 1e9, 2e7),
    ],
)
def test_a_signal_regresses_beyond_its_margin_and_not_below(signal, baseline, margin):
    blocks = 400 if margin < 20 and signal in (Signal.FAULTS, Signal.SWITCHES) else BLOCKS
    for share, outcome in ((0.9, Outcome.UNCHANGED), (1.1, Outcome.REGRESSED)):
        entries = measured(signal, baseline, baseline + share * margin, sd=0.0005, blocks=blocks)
        assert finding(entries).outcome is outcome


@pytest.mark.parametrize("signal", [Signal.CPU, Signal.ENERGY, Signal.INSTRUCTIONS])
def test_what_follows_time_has_at_least_the_margin_of_time(signal):
    tolerant = timed()
    tolerant = replace(tolerant, comparison=replace(tolerant.comparison, margin_ratio=0.5))
    assert finding(measured(signal, 1.0, 1.3)).outcome is Outcome.REGRESSED
    assert finding(measured(signal, 1.0, 1.3), tolerant).outcome is Outcome.UNCHANGED


def test_signals_have_a_thousandth_as_their_level():
    """A p-value of exactly the level is significant."""
    borderline = [finding(measured(Signal.CPU, 0.01, 0.0105 + step * 5e-6, sd=0.01)) for step in range(100)]
    assert any(0.001 < found.p_adjusted < 0.002 for found in borderline)
    assert all((found.outcome is Outcome.REGRESSED) == (found.p_adjusted <= 0.001) for found in borderline)
    entries = measured(Signal.CPU, 0.01, 0.0106, sd=0.01)
    level = finding(entries).p_adjusted
    assert finding(entries, policy=SignalPolicy(alpha=level)).outcome is Outcome.REGRESSED
    assert finding(entries, policy=SignalPolicy(alpha=math.nextafter(level, 0))).outcome is not Outcome.REGRESSED


def test_an_improvement_at_the_very_level_is_one():
    entries = measured(Signal.CPU, 0.0107, 0.01, sd=0.01)
    (swapped,) = judge_signals(measured_swapped(entries), [timed()], POLICY)
    level = swapped.signals[0].p_adjusted
    assert finding(entries, policy=SignalPolicy(alpha=level)).outcome is Outcome.IMPROVED
    assert finding(entries, policy=SignalPolicy(alpha=math.nextafter(level, 0))).outcome is not Outcome.IMPROVED


def measured_swapped(entries):
    return [replace(entry, baseline=entry.candidate, candidate=entry.baseline) for entry in entries]


def test_any_of_several_gating_signals_reddens():
    entries = [*measured(Signal.CPU, 0.01, 0.01), *measured(Signal.FAULTS, 0, 84)]
    (judged,) = judge_signals(entries, [timed()], SignalPolicy(gating=(Signal.CPU, Signal.FAULTS)))
    assert [found.outcome for found in judged.signals] == [Outcome.UNCHANGED, Outcome.REGRESSED]
    assert judged.outcome is Outcome.REGRESSED


def test_identical_amounts_scatter_by_a_thousandth_at_least():
    """10 KiB beyond the margin of 8 MiB, in every block alike, are less than a peak of 100 MiB is known to."""
    entries = measured(Signal.MEMORY, 100 * MIB, 108.01 * MIB, sd=0.0)
    assert finding(entries).outcome is Outcome.INCONCLUSIVE


def test_improvements_are_corrected_over_the_family_too():
    verdicts = [timed(), *(timed(f"c{index}") for index in range(12))]
    others = [entry for v in verdicts[1:] for entry in measured(Signal.CPU, 0.01, 0.01, case_id=v.case_id, sd=0.01)]
    alone, together = [], []
    for step in range(40):
        entries = measured(Signal.CPU, 0.0105 + step * 1e-5, 0.01, sd=0.01)
        alone.append(finding(entries).outcome is Outcome.IMPROVED)
        together.append(judge_signals([*entries, *others], verdicts, POLICY)[0].signals[0].outcome is Outcome.IMPROVED)
    assert sum(together) < sum(alone)


def test_five_blocks_are_enough():
    assert finding(measured(Signal.CPU, 0.01, 0.02, blocks=5)).outcome is Outcome.REGRESSED


@pytest.mark.parametrize(
    ("name", "unchanged", "regressed", "improved"),
    [
        ("train_s of cpu-0 (CPU)", (1e-5, 1.05e-5), (1e-5, 1.3e-5), (1.3e-5, 1e-5)),
        ("update_share of cpu", (0.5, 0.55), (0.5, 0.7), (0.7, 0.5)),
        ("retries of cpu-0 (CPU)", (0.0, 0.0), (0.0, 3.0), (3.0, 0.0)),
    ],
)
def test_a_benchmarks_own_signals_gate_by_what_their_names_say(name, unchanged, regressed, improved):
    assert finding(measured(name, *unchanged)).outcome is Outcome.UNCHANGED
    assert finding(measured(name, *improved)).outcome is Outcome.IMPROVED
    (judged,) = judge_signals(measured(name, *regressed), [timed()], POLICY)
    assert (judged.outcome, judged.reasons[0].code) == (Outcome.REGRESSED, "signal.regressed")
    assert judged.reasons[0].values["signal"] == name
    assert judged.signals[0].gating


def test_own_signals_of_an_advisory_case_fail_no_gate():
    entries = measured("update_share of cpu", 0.5, 0.8)
    (told,) = judge_signals(entries, [timed(gating=Gating.ADVISORY)], POLICY)
    assert (told.outcome, told.signals[0].outcome) == (Outcome.UNCHANGED, Outcome.REGRESSED)
