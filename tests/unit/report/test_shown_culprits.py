"""What profiled steps say of a verdict where both disagree, and the lines on culprits that every output shows."""

from __future__ import annotations

import math

import pytest

from perfguard.records.verdict import Outcome
from perfguard.report.culprits import MOST_SHOWN, beyond_culprits, change_text, contradiction, culprit_lines, place_of
from perfguard.report.messages.catalog import describe
from tests.changed_values import replace
from tests.commented_results import REGRESSED
from tests.example_attribution import attribution_of

CASE = "step.resnet50[batch=8]"
FOUND = attribution_of(CASE)


def contradicted(outcome, delta_s, half_width_s):
    """The code of what is said where the profiled steps differ so much; None where nothing is."""
    verdict = replace(REGRESSED.gate.verdicts[0], outcome=outcome)
    balance = replace(FOUND.balance, delta_s=delta_s, lower_s=delta_s - half_width_s, upper_s=delta_s + half_width_s)
    doubt = contradiction(verdict, balance)
    return doubt and doubt.code


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
def test_profiled_steps_that_agree_with_the_verdict_need_no_remark(outcome, delta_s, half_width_s):
    assert contradicted(outcome, delta_s, half_width_s) is None


@pytest.mark.parametrize(("outcome", "delta_s"), [(Outcome.REGRESSED, -2e-3), (Outcome.IMPROVED, 2e-3)])
def test_profiled_steps_that_went_the_other_way_are_said_to_explain_little(outcome, delta_s):
    assert contradicted(outcome, delta_s, 1e-3) == "ops.went_the_other_way"


@pytest.mark.parametrize("delta_s", [-2e-3, 2e-3])
def test_profiled_steps_that_differ_where_the_verdict_is_unchanged_do_not_overrule_it(delta_s):
    assert contradicted(Outcome.UNCHANGED, delta_s, 1e-3) == "ops.differ_in_few_steps"


def with_culprits(*fields):
    (first,) = FOUND.culprits
    balance_s = FOUND.balance.delta_s
    culprits = tuple(
        replace(first, delta_s=share * balance_s, share=share, phase=first.phase, **more) for share, more in fields
    )
    return replace(FOUND, culprits=culprits)


@pytest.mark.parametrize(
    ("shares", "shown"),
    [((0.6, 0.3, 0.1), 2), ((0.4, 0.2, 0.1, 0.1), MOST_SHOWN), ((0.6, 0.04, 0.3), 2), ((0.004,), 1), ((0.9, 0.05), 1)],
    ids=["until most is explained", "at most three", "not what is next to nothing", "one in any case", "explained"],
)
def test_culprits_are_shown_until_most_of_the_step_is_explained(shares, shown):
    assert len(culprit_lines(with_culprits(*((share, {}) for share in shares)))) == shown


def test_a_change_whose_cost_is_within_the_noise_is_shown_first_or_not_at_all():
    noisy = {"lower_s": -1e-3, "upper_s": 1e-3}
    first = with_culprits((math.nan, noisy), (0.5, {}))
    assert len(culprit_lines(first)) == 2
    assert len(culprit_lines(with_culprits((0.5, {}), (math.nan, noisy)))) == 1


def test_a_culprit_is_headline_place_and_cost():
    (line,) = culprit_lines(FOUND)
    assert line.headline == describe(FOUND.culprits[0].fact)
    assert line.place == "train.py:88"
    assert line.cost == "+2.100 ms · 84 %"
    assert line.details == f"{line.place} · {line.cost}"


def test_without_culprits_the_gravest_change_of_op_counts_is_shown_without_a_cost():
    (line,) = culprit_lines(replace(FOUND, culprits=()))
    change = FOUND.op_count_changes[0]
    assert line == (describe(change.fact), place_of(change.fact), "")
    assert culprit_lines(replace(FOUND, culprits=(), op_count_changes=())) == []


@pytest.mark.parametrize(
    ("phases", "module", "places", "text"),
    [
        (("forward", "backward"), "ResNet.layer3", 4, "forward and backward of ResNet.layer3, 4 places"),
        (("optimizer",), "Adam", 1, "Adam"),
        (("load",), None, 1, "load"),
        (("forward",), None, 53, "forward, 53 places"),
    ],
)
def test_a_place_without_a_line_is_its_phase_and_module(phases, module, places, text):
    fact = FOUND.op_count_changes[0].fact
    subject = replace(fact.subject, op=module)
    assert place_of(replace(fact, subject=subject, values={"phases": phases, "places": places})) == text


def test_with_another_torch_a_change_names_both_versions():
    change = FOUND.op_count_changes[1]
    values = {**change.fact.values, "torch_before": "2.12.0", "torch_after": "2.13.0"}
    upgraded = replace(change, fact=replace(change.fact, values=values))
    assert change_text(upgraded) == f"{change_text(change)} (torch 2.12.0 → 2.13.0)"


def test_what_a_culprit_shows_is_no_changed_op_count_beside_it():
    change, other = FOUND.op_count_changes
    culprit = replace(
        FOUND.culprits[0], fact=replace(change.fact, subject=replace(change.fact.subject, place="a.py:1"))
    )
    assert beyond_culprits((change, other), replace(FOUND, culprits=(culprit,))) == [other]
    assert beyond_culprits((change, other), None) == [change, other]
