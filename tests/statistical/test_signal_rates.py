"""False alarms and power of the signals' rules, by seeded simulation; tolerances as in test_gate_error_rates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from perfguard.gate.rules.signals import RULES, Scale, SignalPolicy, judge_signals
from perfguard.records.run import Signal, SignalSamples
from perfguard.records.verdict import Outcome
from tests.compared_cases import verdict_without_times

CASES, BLOCKS, SAMPLES = 6, 12, 6
LOUD = SignalPolicy(alpha=0.05, gating=tuple(Signal))
TYPICAL = {Signal.CPU: 0.01, Signal.MEMORY: 4e8, Signal.FAULTS: 40.0, Signal.SWITCHES: 8.0, Signal.ENERGY: 2.0}


def gate(rng, rules, factor):
    """Findings of one run in which every signal of the candidate is `factor(rule)` times the baseline's."""
    entries, verdicts = [], []
    for index in range(CASES):
        verdicts.append(verdict_without_times(f"c{index}", Outcome.UNCHANGED))
        for rule in rules:
            level = TYPICAL.get(rule.signal, 1e9)
            for block in range(BLOCKS):
                # Blocks shift each arm with heavy tails; samples scatter inside them. Amounts with a margin of
                # 2 % are also the quieter ones.
                noise = 0.02 if rule.scale is Scale.COUNT else 0.4 * rule.margin_ratio
                shift = noise * rng.standard_t(4, (2, 1))
                values = level * np.exp(shift + noise * rng.standard_normal((2, SAMPLES)))
                values[1] *= factor(rule)
                if rule.scale is Scale.COUNT:
                    values = rng.poisson(values).astype(float)
                entries.append(
                    SignalSamples(
                        case_id=f"c{index}",
                        block=block,
                        signal=rule.signal,
                        baseline=tuple(values[0]),
                        candidate=tuple(values[1]),
                    )
                )
    return judge_signals(entries, verdicts, LOUD)


def at_margin(rule):
    """The largest change that must still pass."""
    return 1 + max(rule.margin_ratio, rule.margin / TYPICAL.get(rule.signal, 1e9))


def is_red(verdicts):
    return any(verdict.outcome is Outcome.REGRESSED for verdict in verdicts)


def test_signals_that_changed_by_their_margin_fail_a_gate_no_more_often_than_alpha():
    rng = np.random.default_rng(11)
    gates = 60
    red = sum(is_red(gate(rng, RULES, at_margin)) for _ in range(gates))
    # Without correction over 6 cases and 6 signals a valid test would redden about four gates in five.
    assert red <= stats.binom.ppf(1 - 1e-4, gates, LOUD.alpha)


def test_identical_arms_are_never_told_to_have_changed():
    rng = np.random.default_rng(12)
    for _ in range(20):
        for verdict in gate(rng, RULES, lambda rule: 1.0):
            assert {found.outcome for found in verdict.signals} <= {Outcome.UNCHANGED, Outcome.INCONCLUSIVE}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.signal)
def test_twice_the_excess_of_the_margins_is_found_in_every_case(rule):
    rng = np.random.default_rng(13)
    factor = (
        math.exp(2.5 * math.log(at_margin(rule))) if rule.scale is not Scale.COUNT else 1 + 2.5 * (at_margin(rule) - 1)
    )
    found = [verdict.outcome for _ in range(5) for verdict in gate(rng, [rule], lambda _: factor)]
    assert found.count(Outcome.REGRESSED) >= stats.binom.ppf(1e-4, len(found), 0.9)
