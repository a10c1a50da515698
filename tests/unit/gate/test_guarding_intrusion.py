"""An arm that keeps the CPUs busy while the other is timed."""

from __future__ import annotations

import pytest

from perfguard.gate.rules.measuring_guards import guard_intrusion
from perfguard.records.run import CaseIntrusion
from perfguard.records.verdict import Outcome
from tests.compared_cases import verdict_without_times
from tests.found_facts import codes_of

CASE = "step.x"


def blocks(*ratios):
    """A block for each pair of what the baseline and the candidate took."""
    return [
        CaseIntrusion(case_id=CASE, block=block, baseline_ratio=baseline, candidate_ratio=candidate)
        for block, (baseline, candidate) in enumerate(ratios)
    ]


def guarded(intrusions, outcome=Outcome.UNCHANGED):
    (found,) = guard_intrusion([verdict_without_times(CASE, outcome, "as.before")], intrusions)
    return found


@pytest.mark.parametrize("outcome", [Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.INCONCLUSIVE])
def test_shows_nothing_of_cases_in_which_nothing_seems_wrong(outcome):
    found = guarded(blocks((0.0, 0.4), (0.01, 0.3), (0.0, 0.5)), outcome)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert codes_of(found.reasons) == ["arm.intruded", "as.before"]
    assert found.reasons[0].subject.arm == "candidate"
    assert found.reasons[0].values == {"other": "baseline", "cpu_share": 0.4, "limit_share": 0.05}


def test_is_told_of_both_arms():
    first, second, _ = guarded(blocks((0.2, 0.4))).reasons
    assert (first.code, first.subject.arm, first.values["cpu_share"]) == ("arm.intruded", "baseline", 0.2)
    assert (second.code, second.subject.arm, second.values["cpu_share"]) == ("arm.intruded", "candidate", 0.4)


@pytest.mark.parametrize("outcome", [Outcome.REGRESSED, Outcome.DIFFERENT, Outcome.FAILED, Outcome.NO_BASELINE])
def test_changes_nothing_where_something_is_wrong_anyhow(outcome):
    assert guarded(blocks((0.0, 0.4)), outcome) == verdict_without_times(CASE, outcome, "as.before")


@pytest.mark.parametrize(
    "intrusions",
    [[], blocks((None, None)), blocks((0.05, 0.05)), blocks((0.0, 0.0), (0.0, 0.9), (0.0, 0.0))],
    ids=["nothing measured", "not known", "at the limit", "in one block only"],
)
def test_is_none_below_the_limit_in_the_median_block(intrusions):
    assert guarded(intrusions).outcome is Outcome.UNCHANGED
