from __future__ import annotations

import math

import pytest

from perfguard.gate.rules.policy import decide_cases
from perfguard.gate.rules.stored import drift_note, merge_drift, screen_drift
from perfguard.records.facts import Severity, fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import Design, Outcome, Policy
from tests.changed_values import replace
from tests.compared_cases import compared

ALPHA = 0.002


def drifted(case_id="x", effect=0.079, *, error=0.004, margin=0.05, design=Design.ROUNDS, **fields):
    return compared(case_id, effect, sd=0.01, error=error, margin=margin, design=design, **fields)


def broken(case_id="x"):
    missing = fact("case.not_in_stored_baseline")
    return replace(
        drifted(case_id), estimate=None, p_regressed=None, problem=missing, problem_outcome=Outcome.NO_BASELINE
    )


def verdict(effect, *, margin=0.005, case_id="x", error=0.001, gating=Gating.GATING):
    policy = Policy(margin_ratio=margin, equivalence_ratio=max(0.02, margin))
    return decide_cases([drifted(case_id, effect, margin=margin, error=error, gating=gating)], policy)[0]


def beyond(*comparisons, alpha=ALPHA):
    found = screen_drift(comparisons, alpha=alpha)
    return [comparison.case_id for comparison in comparisons if comparison.case_id in found]


def test_what_is_shown_to_be_beyond_the_margin_has_drifted():
    assert beyond(drifted("far"), drifted("near", 0.049), drifted("wide", 0.079, error=0.02)) == ["far"]


def test_the_level_is_shared_by_the_gating_cases():
    edge = drifted("edge", 0.0665)
    assert edge.p_regressed is not None
    assert 0.00067 < edge.p_regressed < ALPHA
    assert beyond(edge) == beyond(edge, alpha=edge.p_regressed) == ["edge"]
    others = [drifted(f"other{n}", 0.0) for n in range(2)]
    assert beyond(edge, *others) == []
    assert beyond(edge, *(replace(other, gating=Gating.ADVISORY) for other in others)) == ["edge"]


def test_an_advisory_case_and_one_without_numbers_are_told_and_never_beyond():
    advisory = drifted("a", gating=Gating.ADVISORY)
    assert beyond(advisory, broken("b")) == []
    assert beyond() == []
    assert not screen_drift([advisory, broken("b")], alpha=ALPHA)
    notes = [drift_note(comparison, "2026-08-01", is_beyond=False) for comparison in (advisory, broken("b"))]
    assert [(note.code, note.subject.case_id) for note in notes] == [("drift.measured", "a"), ("drift.unknown", "b")]
    assert notes[0].values["log_ratio"] == pytest.approx(math.log(1.079))
    assert (notes[0].values["is_beyond"], notes[0].values["margin_ratio"]) == (False, 0.05)
    assert {note.values["since"] for note in notes} == {"2026-08-01"}


@pytest.mark.parametrize(("is_beyond", "severity"), [(True, Severity.NOTABLE), (False, Severity.INFO)])
def test_drift_is_worth_a_notice_beyond_the_margin_only(is_beyond, severity):
    assert drift_note(drifted(), "2026-08-01", is_beyond=is_beyond).severity is severity


def test_a_pair_with_the_anchor_reddens_what_no_single_step_did():
    now, paired = verdict(0.0), verdict(0.079, margin=0.05)
    assert (now.outcome, paired.outcome) == (Outcome.UNCHANGED, Outcome.REGRESSED)
    (merged,) = merge_drift([now], [paired], "2026-08-01")
    assert merged.outcome is Outcome.REGRESSED
    assert merged.comparison == paired.comparison
    drift = fact("drift.since_anchor", log_ratio=math.log1p(0.079), since="2026-08-01", in_small_steps=True)
    assert merged.reasons == (drift, *paired.reasons)


def test_a_case_that_runs_the_stored_baselines_own_code_may_have_drifted_all_the_same():
    now, paired = replace(verdict(0.0), outcome=Outcome.SAME_CODE), verdict(0.079, margin=0.05)
    (merged,) = merge_drift([now], [paired], "2026-08-01")
    assert merged.outcome is Outcome.REGRESSED
    assert merged.reasons[0].values["in_small_steps"] is True


def test_of_a_step_that_could_not_be_measured_it_is_not_said_that_it_was_small():
    now = verdict(0.0, error=0.05)
    assert now.outcome is Outcome.INCONCLUSIVE
    (merged,) = merge_drift([now], [verdict(0.079, margin=0.05)], "2026-08-01")
    assert merged.reasons[0].code == "drift.since_anchor"
    assert merged.reasons[0].values["in_small_steps"] is False


@pytest.mark.parametrize(
    "outcome", [Outcome.REGRESSED, Outcome.FAILED, Outcome.DIFFERENT, Outcome.NO_BASELINE, Outcome.INCOMPARABLE]
)
def test_what_is_worse_than_drift_already_keeps_its_verdict(outcome):
    now = replace(verdict(0.0), outcome=outcome)
    assert merge_drift([now], [verdict(0.079, margin=0.05)], "2026-08-01") == (now,)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.REGRESSED])
def test_whatever_else_a_pair_with_the_anchor_says_changes_nothing(outcome):
    now = verdict(0.0)
    paired = replace(verdict(0.079, margin=0.05), outcome=outcome)
    assert merge_drift([now], [paired], "2026-08-01") == (now,)
    advisory = replace(paired, outcome=Outcome.REGRESSED, gating=Gating.ADVISORY)
    assert merge_drift([now], [advisory], "2026-08-01") == (now,)


def test_other_cases_are_left_alone_and_the_order_stays():
    verdicts = [verdict(0.0, case_id=name) for name in "abc"]
    merged = merge_drift(verdicts, [verdict(0.079, margin=0.05, case_id="b")], "2026-08-01")
    assert [v.case_id for v in merged] == ["a", "b", "c"]
    assert [v.outcome for v in merged] == [Outcome.UNCHANGED, Outcome.REGRESSED, Outcome.UNCHANGED]
