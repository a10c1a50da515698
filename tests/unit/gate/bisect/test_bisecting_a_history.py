"""`bisect` on real git histories, around gates that measure nothing: which commit is named."""

from __future__ import annotations

import math

import pytest

from perfguard.errors import ArmError, HostUnfitError, MeasurementError
from perfguard.gate.bisect import bisect
from perfguard.records.bisection import Answer, BisectionOutcome
from perfguard.records.facts import fact
from perfguard.runner.arms.git import CommitRange
from tests.bisected_histories import SORT, SUM, outcome_of
from tests.changed_values import replace
from tests.example_attribution import attribution_of
from tests.found_facts import codes_of


class TestNaming:
    def test_the_first_slower_commit_is_named_with_its_effect(self, repository, wanted, gate):
        commits = repository.history("0", "0", "0", "8", "8", "8", "8")
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert outcome_of(found) == (BisectionOutcome.FOUND, 0)
        assert found.culprit.id == commits[3]
        assert (found.culprit.subject, found.culprit.author) == ("change 4", "Ada Müller")
        (effect,) = found.effects
        assert math.expm1(effect.log_ratio) == pytest.approx(0.08)
        assert effect.lower < effect.log_ratio < effect.upper
        assert found.unexplained == ()
        assert found.gates == len(gate.asked) <= 1 + 3

    def test_the_bad_revision_itself_is_named_without_a_gate_of_its_own(self, repository, wanted, gate):
        commits = repository.history("0", "0", "8")
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[2]
        assert gate.asked == [commits[2], commits[1]]
        assert math.expm1(found.effects[0].log_ratio) == pytest.approx(0.08)

    def test_the_cause_that_the_commits_gate_named_is_kept_with_it(self, repository, wanted, gate):
        commits = repository.history("0", "0", "8", "8")
        blamed = attribution_of(SUM.id)

        def run_gate(*given):
            return replace(gate(*given), attributions=(blamed,))

        for _ in range(2):  # the second time all answers are known
            found = bisect(wanted, CommitRange(good=commits[0]), run_gate=run_gate)
            assert [effect.cause for effect in found.effects] == [blamed.culprits[0].fact]
        assert found.gates == 0

    def test_of_several_culprits_the_first_is_named_and_the_rest_is_said(self, repository, wanted, gate):
        commits = repository.history("0", "0", "3", "3", "3", "3", "8")
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[2]
        (rest,) = found.unexplained
        assert (rest.code, rest.subject.case_id) == ("bisect.unexplained", SUM.id)
        assert rest.values == {
            "culprit_log_ratio": pytest.approx(math.log1p(0.03)),
            "total_log_ratio": pytest.approx(math.log1p(0.08)),
            "slower_later": True,
        }

    def test_a_slowdown_that_was_partly_won_back_is_said(self, repository, wanted, gate):
        commits = repository.history("0", "20", "20", "20", "8")
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[1]
        assert found.unexplained[0].values["slower_later"] is False

    def test_a_small_slowdown_is_not_waved_through_as_unchanged(self, repository, wanted, gate):
        """1.6 % lies inside the usual 2 % of `unchanged`; half of it is what a good commit must stay below."""
        commits = repository.history("0", "0", "1.6", "1.6", "1.6", "1.6")
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[2]
        assert gate.requests[0].loaded.config.equivalence == 0.02
        assert all(r.loaded.config.equivalence == pytest.approx(0.008) for r in gate.requests[1:])
        assert found.good_within_ratio == pytest.approx(0.008)

    def test_only_cases_that_regressed_are_measured_further(self, repository, wanted, gate):
        commits = repository.history("0", "0", "8", "8")
        found = bisect(replace(wanted, cases=(SUM, SORT)), CommitRange(good=commits[0]), run_gate=gate)
        assert [[case.id for case in r.cases] for r in gate.requests] == [[SUM.id, SORT.id], *[[SUM.id]] * 2]
        assert found.culprit.id == commits[2]

    def test_any_of_the_regressed_cases_makes_a_commit_bad(self, repository, wanted, gate):
        commits = [
            repository.commit(speed, sort=sort, note=str(number))
            for number, (speed, sort) in enumerate([("0", "0"), ("0", "5"), ("0", "5"), ("8", "5"), ("8", "5")])
        ]
        found = bisect(replace(wanted, cases=(SUM, SORT)), CommitRange(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[1]
        assert [effect.case_id for effect in found.effects] == [SORT.id]
        (rest,) = found.unexplained
        assert rest.subject.case_id == SUM.id
        assert rest.values["culprit_log_ratio"] == pytest.approx(0.0)
        assert rest.values["total_log_ratio"] == pytest.approx(math.log1p(0.08))


class TestSkipping:
    @pytest.mark.parametrize("what", ["failed", "different", "inconclusive", "no-baseline"])
    def test_what_cannot_be_told_is_skipped(self, repository, wanted, gate, what):
        commits = repository.history("0", "0", "8", what, "8", "8", "8")
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[2]
        assert found.steps[0].commit.id == commits[3]
        assert (found.steps[0].measured.answer, found.steps[0].measured.gate) == (Answer.SKIP, what)

    @pytest.mark.parametrize("error", [ArmError("pip failed\nwith a long log"), MeasurementError("it dies")])
    def test_a_commit_that_does_not_even_start_is_skipped(self, repository, wanted, gate, error):
        commits = repository.history("0", "0", "8", "8", "8", "8", "8")
        gate.error_at[commits[3]] = error
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[2]
        assert found.steps[0].measured.reasons == (fact("bisect.not_measurable", error=str(error).splitlines()[0]),)

    def test_commits_that_cannot_be_told_apart_are_all_named(self, repository, wanted, gate):
        commits = repository.history("0", "0", "failed", "failed", "8", "8")
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert outcome_of(found) == (BisectionOutcome.UNDECIDED, 4)
        assert [commit.id for commit in found.suspects] == commits[2:5]
        assert found.culprit is None

    def test_an_unfit_host_ends_the_search_and_keeps_the_answers(self, repository, wanted, gate):
        commits = repository.history("0", "0", "0", "8", "8", "8", "8")
        gate.error_at[commits[1]] = gate.error_at[commits[2]] = HostUnfitError("another run measures here")
        with pytest.raises(HostUnfitError):
            bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        gate.error_at.clear()
        gate.asked.clear()
        bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert commits[6] not in gate.asked


class TestNothingToFind:
    @pytest.mark.parametrize(
        ("last", "ending"),
        [
            ("0.1", (BisectionOutcome.NO_REGRESSION, 4)),
            ("-0.5", (BisectionOutcome.NO_REGRESSION, 4)),
            ("inconclusive", (BisectionOutcome.INCONCLUSIVE, 4)),
            ("different", (BisectionOutcome.INCONCLUSIVE, 4)),
            ("failed", (BisectionOutcome.FAILED, 3)),
            ("no-baseline", (BisectionOutcome.FAILED, 3)),
        ],
    )
    def test_it_is_said_where_nothing_regressed(self, repository, wanted, gate, last, ending):
        commits = repository.history("0", "0", last)
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert outcome_of(found) == ending
        assert gate.asked == [commits[2]]
        assert (found.culprit, found.suspects) == (None, ())

    def test_equal_trees_are_not_measured(self, repository, wanted, gate):
        first = repository.commit("0")
        repository.commit("8")
        repository.commit("0")
        found = bisect(wanted, CommitRange(good=first), run_gate=gate)
        assert outcome_of(found) == (BisectionOutcome.NO_REGRESSION, 4)
        assert gate.asked == []
        assert codes_of(found.total.reasons) == ["bisect.same_tree"]

    def test_what_was_not_answered_is_tried_again(self, repository, wanted, gate):
        commits = repository.history("0", "0", "8")
        gate.host_is_unstable = True
        repository.commit("inconclusive")
        span = CommitRange(good=commits[0])
        assert bisect(wanted, span, run_gate=gate).outcome is BisectionOutcome.INCONCLUSIVE
        assert bisect(wanted, span, run_gate=gate).gates == 1
