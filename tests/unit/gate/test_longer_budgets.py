"""The budget that an open gate is expected to need."""

from __future__ import annotations

import pytest

from perfguard.gate.rules.longer_budget import LongerBudget, longer_budget
from perfguard.records.facts import fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import GateOutcome, GateResult, Outcome, Policy, Verdict
from tests.changed_values import replace
from tests.commented_results import REGRESSED


def verdict(case_id, *, more_s=None, outcome=Outcome.INCONCLUSIVE, gating=Gating.GATING):
    known = REGRESSED.gate.verdicts[0]
    return replace(
        known, case_id=case_id, outcome=outcome, gating=gating, reasons=(fact("verdict.too_noisy", more_s=more_s),)
    )


def gate(*verdicts: Verdict, outcome=GateOutcome.INCONCLUSIVE) -> GateResult:
    return replace(REGRESSED.gate, outcome=outcome, verdicts=verdicts, policy=Policy())


def test_the_neediest_open_case_decides_and_half_minutes_are_full():
    found = gate(verdict("a", more_s=40.0), verdict("b", more_s=100.0), verdict("c", outcome=Outcome.UNCHANGED))
    assert longer_budget(found, budget_s=165.0, max_blocks=60) == LongerBudget(budget_s=270.0)


@pytest.mark.parametrize(
    "open_gate",
    [
        gate(verdict("a", more_s=40.0), verdict("b")),  # more blocks do not help the second
        gate(verdict("a", more_s=40.0), outcome=GateOutcome.REGRESSED),
        gate(verdict("a", more_s=40.0), outcome=GateOutcome.HOST_UNSTABLE),
        gate(verdict("a", more_s=40.0, gating=Gating.ADVISORY)),
    ],
)
def test_nothing_is_offered_where_a_longer_budget_would_not_decide(open_gate):
    assert longer_budget(open_gate, budget_s=165.0, max_blocks=60) is None


def test_a_limit_of_blocks_that_is_too_low_is_raised_as_well():
    reasons = (fact("verdict.too_noisy", more_s=40.0, needed_blocks=61),)
    found = gate(replace(verdict("a"), reasons=reasons))
    assert longer_budget(found, budget_s=165.0, max_blocks=60) == LongerBudget(budget_s=210.0, blocks=61)
    assert longer_budget(found, budget_s=165.0, max_blocks=61) == LongerBudget(budget_s=210.0)


def test_the_case_that_needs_most_blocks_decides_about_their_limit():
    few, many = ((fact("verdict.too_noisy", more_s=40.0, needed_blocks=blocks),) for blocks in (40, 90))
    found = gate(replace(verdict("a"), reasons=few), replace(verdict("b"), reasons=many))
    assert longer_budget(found, budget_s=165.0, max_blocks=60) == LongerBudget(budget_s=210.0, blocks=90)


def test_an_advisory_case_asks_for_nothing():
    found = gate(verdict("a", more_s=10.0), verdict("b", more_s=1000.0, gating=Gating.ADVISORY))
    assert longer_budget(found, budget_s=170.0, max_blocks=60) == LongerBudget(budget_s=180.0)
