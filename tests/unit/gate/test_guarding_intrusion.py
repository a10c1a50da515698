"""An arm that keeps the CPUs busy while the other is timed."""

from __future__ import annotations

import pytest

from perfguard.gate.rules.intrusion import guard_intrusion
from perfguard.records.run import CaseIntrusion
from perfguard.records.verdict import Outcome
from tests.compared_cases import verdict_without_times

CASE = "step.x"


def blocks(*ratios):
    """A block for each pair of what the baseline and the candidate took."""
    return [
        CaseIntrusion(case_id=CASE, block=block, baseline_ratio=baseline, candidate_ratio=candidate)
        for block, (baseline, candidate) in enumerate(ratios)
    ]


def guarded(intrusions, outcome=Outcome.UNCHANGED):
    (found,) = guard_intrusion([verdict_without_times(CASE, outcome, "as it was")], intrusions)
    return found


@pytest.mark.parametrize("outcome", [Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.INCONCLUSIVE])
def test_shows_nothing_of_cases_in_which_nothing_seems_wrong(outcome):
    found = guarded(blocks((0.0, 0.4), (0.01, 0.3), (0.0, 0.5)), outcome)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.reason == (
        "the candidate used 40% of the CPUs while the baseline was timed (limit 5%), so neither was measured on its "
        "own: end or stop the threads and processes that go on after a call; as it was"
    )


def test_is_told_of_both_arms():
    assert guarded(blocks((0.2, 0.4))).reason.startswith(
        "the baseline used 20% of the CPUs while the candidate was timed and the candidate used 40% of the CPUs while "
        "the baseline was timed (limit 5%)"
    )


@pytest.mark.parametrize("outcome", [Outcome.REGRESSED, Outcome.DIFFERENT, Outcome.FAILED, Outcome.NO_BASELINE])
def test_changes_nothing_where_something_is_wrong_anyhow(outcome):
    assert guarded(blocks((0.0, 0.4)), outcome) == verdict_without_times(CASE, outcome, "as it was")


@pytest.mark.parametrize(
    "intrusions",
    [
        [],
        blocks((None, None)),
        blocks((0.05, 0.05)),
        blocks((0.0, 0.0), (0.0, 0.9), (0.0, 0.0)),
    ],
    ids=["nothing measured", "not known", "at the limit", "in one block only"],
)
def test_is_none_below_the_limit_in_the_median_block(intrusions):
    assert guarded(intrusions).outcome is Outcome.UNCHANGED
