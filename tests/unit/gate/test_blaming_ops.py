"""What attributions add to verdicts, and what they say where both disagree."""

from __future__ import annotations

from dataclasses import replace

import pytest
from perfguard.gate.paired.blame import blamed

from perfguard.records.verdict import Outcome
from tests.commented_results import REGRESSED
from tests.example_attribution import attribution_of


def blame_of(outcome, delta_s, half_width_s):
    """What a verdict says of its ops whose profiled steps differ so much."""
    gate = REGRESSED.gate
    verdict = replace(gate.verdicts[0], outcome=outcome)
    shown = attribution_of(verdict.case_id)
    balance = replace(shown.balance, delta_s=delta_s, lower_s=delta_s - half_width_s, upper_s=delta_s + half_width_s)
    attributions = {verdict.case_id: replace(shown, balance=balance)}
    (told, *_) = blamed(replace(gate, verdicts=(verdict,)), attributions).verdicts
    return told.blame, shown.sentence


@pytest.mark.parametrize(
    ("outcome", "delta_s", "half_width_s"),
    [
        (Outcome.REGRESSED, 2e-3, 1e-3),
        (Outcome.REGRESSED, -1e-3, 2e-3),
        (Outcome.IMPROVED, -2e-3, 1e-3),
        (Outcome.UNCHANGED, -2e-3, 3e-3),
        (Outcome.INCONCLUSIVE, 2e-3, 1e-3),
    ],
)
def test_a_verdict_says_what_its_attribution_says(outcome, delta_s, half_width_s):
    told, sentence = blame_of(outcome, delta_s, half_width_s)
    assert told == sentence


@pytest.mark.parametrize(("outcome", "delta_s"), [(Outcome.REGRESSED, -2e-3), (Outcome.IMPROVED, 2e-3)])
def test_profiled_steps_that_went_the_other_way_are_said_to_explain_little(outcome, delta_s):
    told, sentence = blame_of(outcome, delta_s, 1e-3)
    assert told == f"the few steps that were profiled went the other way, so this explains little: {sentence}"


@pytest.mark.parametrize("delta_s", [-2e-3, 2e-3])
def test_profiled_steps_that_differ_where_the_verdict_is_unchanged_do_not_overrule_it(delta_s):
    told, sentence = blame_of(Outcome.UNCHANGED, delta_s, 1e-3)
    assert told == f"by all blocks the step is unchanged, the few that were profiled differ: {sentence}"
