"""What a recording keeps of a gate's reasons."""

from __future__ import annotations

import json

import pytest

from perfguard.codec import from_builtins, to_json
from perfguard.records.facts import Fact, fact
from perfguard.records.verdict import Outcome, Policy
from perfguard.report.messages.catalog import describe
from tests.compared_cases import compared, judge, unmeasured

SLOW = compared("slow", 0.12)
CRASH = unmeasured("crash", problem=fact("case.failed", arm="candidate", error="no"), problem_outcome=Outcome.FAILED)
WIDE = compared("wide", 0.0, sd=0.03)


@pytest.mark.parametrize("comparisons", [(SLOW, CRASH, WIDE), (CRASH,), (WIDE,), (SLOW,), (compared("same", 0.0),)])
def test_reasons_are_read_as_they_were_written(comparisons):
    """Also those of cases without an effect: JSON has no number for what is not known."""
    reasons = judge(comparisons, Policy()).reasons
    assert from_builtins(json.loads(to_json(reasons)), tuple[Fact, ...], source="test") == reasons


def test_the_effects_of_regressed_cases_are_kept_and_told():
    (regressed, *_) = (found for found in judge((SLOW, CRASH), Policy()).reasons if found.values["outcome"] != "failed")
    assert regressed.values["log_ratios"] == (SLOW.estimate.log_ratio,)
    assert "+12.0 %" in describe(regressed)
