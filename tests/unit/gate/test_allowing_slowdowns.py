from __future__ import annotations

import math
from datetime import date, timedelta

import pytest

from perfguard.gate.rules.policy import conclude, decide_cases
from perfguard.gate.rules.rulings import allowance_notes, apply_allowances
from perfguard.records.allowance import Allowance
from perfguard.records.facts import Severity, fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import Confirmation, Design, GateOutcome, ModeReport, Outcome, Policy, SignalFinding
from tests.changed_values import replace
from tests.compared_cases import compared
from tests.found_facts import codes_of

TODAY = date(2026, 11, 21)
POLICY = Policy()
LIMITS = {"limit_ratio": 0.03, "until": "2027-01-31"}
"""Of `entry()`."""


def regressed(case_id="x", effect=0.021, *, sd=0.004, gating=Gating.GATING, design=Design.PAIRED, confirmed=True):
    """A confirmed verdict on the times."""
    comparison = compared(case_id, effect, sd=sd, gating=gating, design=design)
    verdict = decide_cases([comparison], POLICY)[0]
    if design is Design.PAIRED and verdict.outcome is Outcome.REGRESSED:
        entry = Confirmation(confirmed=confirmed, estimate=comparison.estimate, p_slower=1e-4)
        verdict = replace(verdict, confirmation=entry)
    return verdict


def entry(case="x", percent=3.0, *, days=71, reason="new padding code, see #12"):
    return Allowance(case=case, max_ratio=percent / 100, until=TODAY + timedelta(days=days), reason=reason)


def cpu(baseline, candidate, *, outcome=Outcome.REGRESSED, gating=True):
    return SignalFinding(
        signal="cpu",
        outcome=outcome,
        gating=gating,
        unit="s",
        baseline=baseline,
        candidate=candidate,
        p_adjusted=1e-9,
        fact=fact("signal.measured", signal="cpu", baseline_s=baseline, candidate_s=candidate),
    )


def ruled(verdict, *entries, **options):
    (found,) = apply_allowances([verdict], entries, TODAY, POLICY, **options)
    return found


def test_a_regression_within_its_allowance_is_allowed_and_the_gate_passes():
    verdict = regressed()
    assert verdict.outcome is Outcome.REGRESSED
    found = ruled(verdict, entry())
    assert found.outcome is Outcome.ALLOWED
    assert found.allowance == fact("allowance.applied", LIMITS, why="new padding code, see #12", entries=None)
    assert codes_of(found.reasons) == ["verdict.allowed_effect", "allowance.applied"]
    assert found.reasons[0].values == {
        "log_ratio": pytest.approx(math.log1p(0.021)),
        "log_ratio_lower": pytest.approx(math.log1p(0.0181), abs=1e-4),
        "log_ratio_upper": pytest.approx(math.log1p(0.0239), abs=1e-4),
    }
    result = conclude([found], POLICY)
    assert result.outcome is GateOutcome.PASS
    assert result.reasons == (
        fact("gate.passed", unchanged=0, cases=1, equivalence_ratio=0.02, faster=(), allowed=("x",)),
    )


@pytest.mark.parametrize("effect", [0.031, 0.2])
def test_beyond_its_allowance_a_case_stays_red_and_says_so(effect):
    verdict = regressed(effect=effect)
    found = ruled(verdict, entry())
    assert (found.outcome, found.allowance) == (Outcome.REGRESSED, None)
    assert found.reasons == (*verdict.reasons, fact("allowance.exceeded", LIMITS))


def test_a_slowdown_at_the_very_limit_is_allowed():
    assert ruled(regressed(effect=0.03), entry()).outcome is Outcome.ALLOWED


def test_a_slowdown_shown_at_the_very_level_to_be_beyond_is_not_allowed():
    """An estimate on the limit has the p-value 0.5."""
    (found,) = apply_allowances([regressed(effect=0.03)], [entry()], TODAY, replace(POLICY, alpha=0.5))
    assert found.outcome is Outcome.REGRESSED


def test_an_entry_applies_on_its_last_day_and_not_on_the_next():
    verdict = regressed()
    assert ruled(verdict, entry(days=0)).outcome is Outcome.ALLOWED
    assert ruled(verdict, entry(days=-1)) == verdict


def test_an_entry_for_another_case_changes_nothing():
    verdict = regressed()
    assert ruled(verdict, entry("y"), entry("x.*"), entry("x[m=1]")) == verdict


@pytest.mark.parametrize(
    "pattern", ["kernel.linear[m=1,dtype=bf16]", "kernel.linear", "kernel.*", "*bf16]", "tag:slow"]
)
def test_patterns_name_cases_as_the_option_case_does(pattern):
    case_id = "kernel.linear[m=1,dtype=bf16]"
    assert ruled(regressed(case_id), entry(pattern), tags={case_id: ("slow",)}).outcome is Outcome.ALLOWED
    assert ruled(regressed("kernelxlinear"), entry(pattern)).outcome is Outcome.REGRESSED


def test_of_several_entries_the_strictest_applies_and_it_is_said():
    found = ruled(regressed(), entry("*", 50), entry("x", 1), entry("x", 3))
    assert found.outcome is Outcome.REGRESSED
    assert found.reasons[-1] == fact("allowance.exceeded", {**LIMITS, "limit_ratio": 0.01})
    allowed = ruled(regressed(), entry("*", 50), entry("x", 3), entry("x", 1, days=-1))
    assert allowed.outcome is Outcome.ALLOWED
    assert allowed.allowance.values["entries"] == 2


@pytest.mark.parametrize("effect", [0.0, -0.1])
def test_what_is_not_slower_needs_no_allowance(effect):
    verdict = regressed(effect=effect)
    assert ruled(verdict, entry()) == verdict


def test_an_advisory_case_is_left_alone():
    verdict = regressed(gating=Gating.ADVISORY)
    assert ruled(verdict, entry()) == verdict


def test_rounds_against_a_stored_baseline_need_no_confirmation():
    assert ruled(regressed(design=Design.ROUNDS), entry()).outcome is Outcome.ALLOWED


class TestOtherThanTime:
    def test_a_case_that_is_red_for_its_cpu_seconds_alone_is_not_covered(self):
        verdict = regressed(effect=0.0)
        burns = replace(verdict, outcome=Outcome.REGRESSED, signals=(cpu(0.01, 0.0101),))
        found = ruled(burns, entry(percent=100))
        assert found.outcome is Outcome.REGRESSED
        assert found.reasons == (*burns.reasons, fact("allowance.only_for_time", {**LIMITS, "limit_ratio": 1.0}))

    def test_nor_is_one_whose_flag_was_not_confirmed_and_whose_cpu_seconds_made_it_red(self):
        verdict = replace(regressed(confirmed=False), outcome=Outcome.REGRESSED, signals=(cpu(0.01, 0.02),))
        assert ruled(verdict, entry()).reasons[-1] == fact("allowance.only_for_time", LIMITS)

    def test_nor_is_one_whose_time_the_luck_of_modes_explains(self):
        modes = ModeReport(
            slow_over_fast=0.1,
            baseline_slow_share=0.4,
            candidate_slow_share=0.5,
            p_mix=0.5,
            mix_changed=False,
            explains_effect=True,
        )
        verdict = replace(regressed(), modes=modes, signals=(cpu(0.01, 0.02),))
        assert ruled(verdict, entry()).reasons[-1] == fact("allowance.only_for_time", LIMITS)
        assert ruled(replace(verdict, signals=(), modes=replace(modes, mix_changed=True)), entry()).outcome is (
            Outcome.ALLOWED
        )

    def test_a_slowdown_within_the_allowance_does_not_excuse_twice_the_cpu_seconds(self):
        found = ruled(replace(regressed(), signals=(cpu(0.01, 0.02),)), entry())
        assert found.outcome is Outcome.REGRESSED
        assert found.reasons[-1] == fact("allowance.exceeded_by_signals", LIMITS, signals=("cpu",))

    def test_cpu_seconds_that_grew_no_further_than_the_time_may_are_covered_with_it(self):
        verdict = replace(regressed(effect=0.15), signals=(cpu(0.01, 0.0115),))
        assert ruled(verdict, entry(percent=20)).outcome is Outcome.ALLOWED

    def test_a_confirmation_does_not_make_up_for_times_that_were_not_red(self):
        unclear = replace(regressed(), p_adjusted=0.5, signals=(cpu(0.01, 0.0101),))
        assert ruled(unclear, entry(percent=100)).outcome is Outcome.REGRESSED

    def test_times_exactly_at_the_level_are_red_and_covered(self):
        assert ruled(replace(regressed(), p_adjusted=POLICY.alpha), entry()).outcome is Outcome.ALLOWED

    @pytest.mark.parametrize(
        ("finding", "outcome"),
        [
            (cpu(2.0, 3.0), Outcome.ALLOWED),
            (cpu(2.0, 3.001), Outcome.REGRESSED),
            (cpu(0.0, 1e-6), Outcome.REGRESSED),
            (cpu(-1.0, 1.0), Outcome.REGRESSED),
        ],
    )
    def test_a_signal_may_grow_to_the_very_limit_and_from_nothing_to_nothing(self, finding, outcome):
        assert ruled(replace(regressed(), signals=(finding,)), entry(percent=50)).outcome is outcome

    @pytest.mark.parametrize("finding", [cpu(0.01, 0.02, gating=False), cpu(0.01, 0.02, outcome=Outcome.INCONCLUSIVE)])
    def test_signals_that_do_not_redden_do_not_stand_in_the_way(self, finding):
        assert ruled(replace(regressed(), signals=(finding,)), entry()).outcome is Outcome.ALLOWED

    def test_another_computation_is_never_allowed(self):
        found = ruled(regressed(), entry(), different={"x"})
        assert found.outcome is Outcome.REGRESSED
        assert found.reasons[-1] == fact("allowance.only_for_same_results", LIMITS)


class TestNotes:
    def test_every_entry_has_one_used_or_not_expired_or_not(self):
        entries = (entry("x"), entry("y*", 5, reason="later"), entry("z", days=-3))
        verdicts = apply_allowances([regressed("x"), regressed("z")], entries, TODAY, POLICY)
        used, unused, expired = allowance_notes(entries, verdicts, TODAY)
        assert (used.code, used.values["pattern"], used.values["case_ids"]) == ("allowance.used", "x", ("x",))
        assert used.values["limit_ratio"] == pytest.approx(0.03)
        assert (unused.code, unused.values["pattern"], unused.values["why"]) == ("allowance.unused", "y*", "later")
        assert (expired.code, expired.values) == ("allowance.expired", {"pattern": "z", "until": "2026-11-18"})
        assert [note.severity for note in (used, unused, expired)] == [
            Severity.NOTABLE,
            Severity.INFO,
            Severity.NOTABLE,
        ]

    def test_a_pattern_names_the_cases_that_used_it_and_an_overlapped_one_is_not_used(self):
        entries = (entry("case*", 3), entry("*", 9))
        verdicts = apply_allowances([regressed(f"case{n}") for n in range(5)], entries, TODAY, POLICY)
        first, second = allowance_notes(entries, verdicts, TODAY)
        assert first.values["case_ids"] == tuple(f"case{n}" for n in range(5))
        assert second.code == "allowance.unused"

    def test_without_an_allow_list_there_is_none(self):
        assert allowance_notes((), [regressed()], TODAY) == ()
