"""`bisect` twice on one history: what was answered is not measured again."""

from __future__ import annotations

import json

import pytest

from perfguard.errors import ExitCode, StoreError
from perfguard.gate.bisect import bisect
from perfguard.records.bisection import BisectionOutcome
from perfguard.runner.arms import git
from perfguard.runner.arms.git import CommitRange
from tests.bisected_histories import SORT, SUM, outcome_of, replace_verdicts
from tests.changed_values import replace


class TestKeeping:
    def test_a_second_bisection_measures_nothing_and_says_the_same(self, repository, wanted, gate):
        commits = repository.history("0", "0", "failed", "0", "8", "8", "8", "8")
        first = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        gate.asked.clear()
        second = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert gate.asked == []
        assert (second.gates, second.culprit, second.effects) == (0, first.culprit, first.effects)
        assert [step.commit for step in second.steps] == [step.commit for step in first.steps]
        assert all(step.is_reused for step in second.steps)

    def test_an_interrupted_one_goes_on(self, repository, wanted, gate):
        commits = repository.history("0", "0", "0", "0", "8", "8", "8", "8", "8")
        gate.interrupt_at = 2
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert outcome_of(found) == (BisectionOutcome.INTERRUPTED, ExitCode.INTERRUPTED)
        assert len(found.steps) == 1
        assert commits[4] in [commit.id for commit in found.suspects]
        before = set(gate.asked)
        gate.interrupt_at = None
        gate.asked.clear()
        assert bisect(wanted, CommitRange(good=commits[0]), run_gate=gate).culprit.id == commits[4]
        assert before.isdisjoint(gate.asked)

    def test_interrupted_between_two_gates_it_still_says_what_it_has(self, repository, wanted, gate):
        commits = repository.history("0", "0", "0", "8", "8")
        gate.error_at[commits[2]] = KeyboardInterrupt()
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert outcome_of(found) == (BisectionOutcome.INTERRUPTED, 130)
        assert [commit.id for commit in found.suspects] == commits[1:]

    def test_interrupted_between_the_ends_nothing_is_claimed(self, repository, wanted, gate):
        commits = repository.history("0", "8")
        gate.interrupt_at = 0
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert outcome_of(found) == (BisectionOutcome.INTERRUPTED, 130)
        assert (found.total, found.steps, found.suspects) == (None, (), ())

    def test_a_tree_that_was_met_before_is_not_measured_again(self, repository, wanted, gate):
        first = repository.commit("0", note="a")
        repository.commit("0", note="b")
        slow = repository.commit("8", note="b")
        repository.commit("8", note="c")
        back = repository.commit("8", note="b")  # the tree of `slow`
        repository.commit("8", note="d")
        found = bisect(wanted, CommitRange(good=first), run_gate=gate)
        assert found.culprit.id == slow
        assert len({git.tree_of(repository.path, commit) for commit in gate.asked}) == len(gate.asked)
        assert git.tree_of(repository.path, back) == git.tree_of(repository.path, slow)

    @pytest.mark.parametrize("change", ["budget", "setting", "cases", "fresh"])
    def test_other_conditions_are_measured_anew(self, repository, wanted, gate, change):
        commits = repository.history("0", "8")
        bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        loaded = wanted.loaded
        other = {
            "budget": replace(wanted, budget_s=61.0),
            "setting": replace(wanted, loaded=replace(loaded, config=replace(loaded.config, samples=3))),
            "cases": replace(wanted, cases=(SUM, SORT)),
            "fresh": wanted,
        }[change]
        found = bisect(other, CommitRange(good=commits[0]), is_fresh=change == "fresh", run_gate=gate)
        assert found.gates == 1

    def test_answers_that_were_the_hosts_fault_are_not_believed(self, repository, wanted, gate):
        commits = repository.history("0", "0", "8", "8")
        bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)  # keeps the ends
        log = next((repository.path / ".perfguard" / "bisect").glob("*.json"))
        kept = json.loads(log.read_text())
        kept["trees"] = {tree: a for tree, a in kept["trees"].items() if tree == json.loads(kept["settings"]["bad"])}
        log.write_text(json.dumps(kept))
        broken = replace_verdicts(gate)
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=broken)
        assert found.outcome is BisectionOutcome.UNDECIDED
        assert bisect(wanted, CommitRange(good=commits[0]), run_gate=gate).culprit.id == commits[2]

    @pytest.mark.parametrize("text", ["{", "[]", '{"schema": 99}', '{"schema": 1, "good": 5}'])
    def test_a_corrupt_file_is_named_and_fresh_gets_past_it(self, repository, wanted, gate, text):
        commits = repository.history("0", "8")
        found = bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        with open(found.log, "w") as stream:  # noqa: PTH123
            stream.write(text)
        with pytest.raises(StoreError, match="bisect/.*json"):
            bisect(wanted, CommitRange(good=commits[0]), run_gate=gate)
        assert bisect(wanted, CommitRange(good=commits[0]), is_fresh=True, run_gate=gate).exit_code == 0
