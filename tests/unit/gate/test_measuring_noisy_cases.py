from __future__ import annotations

import math

import pytest

from perfguard.gate.rules.compare import SequentialGate
from perfguard.gate.rules.confirmation import flagged_cases
from perfguard.gate.rules.policy import conclude
from perfguard.records.run import CaseSamples, PairedData
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import GateOutcome, Outcome, Policy
from tests.changed_values import replace

NOISE = (-0.09, 0.07, -0.05, 0.08, 0.02, -0.04, -0.02, 0.06, 0.04, -0.07, 0.0, -0.03)
"""Block SD 5.9 %, above the policy's limit."""
NOISY = Case(benchmark="noisy", target="m:f")
QUIET = tuple(Case(benchmark=f"quiet{number}", target="m:f") for number in range(11))
CASES = (NOISY, *QUIET)


def measured(effect, blocks):
    def samples(case, block):
        log_ratio = math.log1p(effect) + NOISE[block] if case is NOISY else NOISE[block] / 50
        return CaseSamples(case_id=case.id, block=block, baseline_s=(1.0,), candidate_s=(math.exp(log_ratio),))

    ids = tuple(case.id for case in CASES)
    return PairedData(case_ids=ids, samples=tuple(samples(c, b) for c in CASES for b in range(blocks)), conditions=())


@pytest.fixture
def gate():
    return SequentialGate(CASES, Policy(), planned_blocks=12)


@pytest.mark.parametrize(("effect", "outcome"), [(0.16, Outcome.REGRESSED), (-0.14, Outcome.IMPROVED)])
def test_a_case_too_noisy_to_gate_is_measured_until_the_family_shows_its_effect(gate, effect, outcome):
    gate.analyse(measured(effect, 8), blocks=8, final=False)
    early = gate.verdicts()[0]
    assert early.comparison.p_regressed < Policy().alpha or early.comparison.p_improved < Policy().alpha
    assert (early.gating, early.outcome) == (Gating.ADVISORY, Outcome.INCONCLUSIVE)
    assert gate.answered() == {case.id for case in QUIET}

    assert gate.analyse(measured(effect, 12), blocks=12, final=True) == {NOISY.id: outcome}
    assert gate.verdicts()[0].gating is Gating.GATING
    assert NOISY.id in gate.answered()


def test_a_regression_shown_in_spite_of_the_noise_fails_the_gate(gate):
    gate.analyse(measured(0.16, 12), blocks=12, final=True)
    assert flagged_cases(gate.verdicts()) == (NOISY.id,)
    assert conclude(gate.verdicts(), Policy()).outcome is GateOutcome.REGRESSED


def test_a_case_that_noise_leaves_open_does_not_make_the_gate_inconclusive(gate):
    gate.analyse(measured(0.0, 12), blocks=12, final=True)
    assert gate.verdicts()[0].outcome is Outcome.INCONCLUSIVE
    assert NOISY.id not in gate.answered()
    assert conclude(gate.verdicts(), Policy()).outcome is GateOutcome.PASS


def test_a_noisy_case_that_the_suite_calls_advisory_never_fails_the_gate():
    advisory = Case(benchmark="noisy", target="m:f", gating=Gating.ADVISORY)
    gate = SequentialGate((advisory, *QUIET), Policy(), planned_blocks=12)
    gate.analyse(measured(0.5, 12), blocks=12, final=True)
    assert gate.verdicts()[0].outcome is Outcome.REGRESSED
    assert conclude(gate.verdicts(), Policy()).outcome is GateOutcome.PASS


@pytest.mark.parametrize("effect", [0.0, 0.08, 0.16, 0.25, -0.14])
def test_the_noise_limit_decides_neither_what_is_flagged_nor_what_is_answered(effect):
    limited, unlimited = (
        SequentialGate(CASES, replace(Policy(), max_block_sd_ratio=limit), planned_blocks=12) for limit in (0.05, 1.0)
    )
    for blocks in range(5, 13):
        for gate in (limited, unlimited):
            gate.analyse(measured(effect, blocks), blocks=blocks, final=blocks == 12)
        assert limited.answered() == unlimited.answered()
        assert flagged_cases(limited.verdicts()) == flagged_cases(unlimited.verdicts())
