"""`bisect` on real git histories, around gates that measure nothing: a fake that reads the speed out of the tree."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace

import pytest

from perfguard.config import Config, LoadedConfig
from perfguard.errors import ArmError, ExitCode, HostUnfitError, MeasurementError, StoreError, UsageError
from perfguard.model.bisection import Answer, BisectionOutcome
from perfguard.model.estimate import Estimate, Interval
from perfguard.model.result import RunResult
from perfguard.model.spec import Case, Gating
from perfguard.model.verdict import Comparison, GateOutcome, GateResult, Outcome, Policy, Verdict
from perfguard.pipeline.bisect import bisect
from perfguard.pipeline.bisect_history import Span, read_history
from perfguard.pipeline.session import Request
from perfguard.runner import git

SUM, SORT = (
    Case(benchmark="tiny.sum", target="bench.py:sum", tags=("no-torch",)),
    Case(benchmark="tiny.sort", target="bench.py:sort", tags=("no-torch",)),
)
HALF_WIDTH = 0.004
OUTCOME_OF = {
    "regressed": GateOutcome.REGRESSED,
    "failed": GateOutcome.FAILED,
    "different": GateOutcome.DIFFERENT,
    "no-baseline": GateOutcome.NO_BASELINE,
    "inconclusive": GateOutcome.INCONCLUSIVE,
}


@dataclass
class Repository:
    """A repository whose file `speed` says how each case does: a percentage, or the name of an outcome."""

    path: object
    made: int = 0

    def commit(self, speed=None, *, sort="0", note=None, message=None):
        self.made += 1
        if speed is not None:
            (self.path / "speed").write_text(json.dumps({SUM.id: speed, SORT.id: sort}))
        if note is not None:
            (self.path / "notes").write_text(note)
        git.run_git(self.path, "add", "-A")
        git.run_git(self.path, "commit", "-q", "--allow-empty", "-m", message or f"change {self.made}")
        return git.resolve_commit(self.path, "HEAD")

    def history(self, *speeds):
        """A commit for each speed; notes differ, so that all trees do."""
        return [self.commit(speed, note=str(number)) for number, speed in enumerate(speeds)]

    def git(self, *arguments):
        return git.run_git(self.path, *arguments).decode().strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "repository"
    path.mkdir()
    made = Repository(path)
    made.git("init", "-q", "-b", "main")
    made.git("config", "user.name", "Ada Müller")
    made.git("config", "user.email", "ada@example.org")
    return made


@dataclass
class FakeGate:
    """Judges by what is written in the trees."""

    repository: Repository
    asked: list = field(default_factory=list)
    requests: list = field(default_factory=list)
    host_is_unstable: bool = False
    interrupt_at: int | None = None
    error_at: dict = field(default_factory=dict)

    def __call__(self, request, baseline, candidate):
        assert self.repository.path == request.loaded.project
        commit = candidate.revision
        if commit in self.error_at:
            raise self.error_at[commit]
        if self.interrupt_at == len(self.asked):
            return result_of(request, None, exit_code=130, verdict="interrupted")
        self.asked.append(commit)
        self.requests.append(request)
        speeds = [json.loads(self.repository.git("show", f"{r}:speed")) for r in (baseline.revision, commit)]
        verdicts = tuple(
            verdict_of(case.id, speeds[0][case.id], speeds[1][case.id], request.loaded.config) for case in request.cases
        )
        worst = next((OUTCOME_OF[o] for o in OUTCOME_OF if any(v.outcome.value == o for v in verdicts)), None)
        outcome = GateOutcome.HOST_UNSTABLE if self.host_is_unstable else worst or GateOutcome.PASS
        return result_of(request, gate_of(verdicts, outcome), exit_code=0, verdict=outcome.value)


def verdict_of(case_id, before, after, config):
    estimate, outcome = None, None
    try:
        effect = (100 + float(after)) / (100 + float(before)) - 1
    except ValueError:
        outcome = Outcome(after)
    else:
        log_ratio = math.log1p(effect)
        lower, upper = log_ratio - HALF_WIDTH, log_ratio + HALF_WIDTH
        estimate = Estimate(
            log_ratio=log_ratio,
            standard_error=HALF_WIDTH / 2.2,
            block_sd=0.01,
            blocks=10,
            degrees_of_freedom=9,
            interval=Interval(lower=lower, upper=upper, level=0.95),
        )
        if lower > math.log1p(config.margin):
            outcome = Outcome.REGRESSED
        elif max(-lower, upper) < math.log1p(config.equivalence):
            outcome = Outcome.UNCHANGED
        else:
            outcome = Outcome.INCONCLUSIVE
    comparison = Comparison(
        case_id=case_id,
        gating=Gating.GATING,
        estimate=estimate,
        p_regressed=None,
        p_improved=None,
        baseline_median_s=None,
        candidate_median_s=None,
        margin_ratio=config.margin,
    )
    return Verdict(
        case_id=case_id, outcome=outcome, gating=Gating.GATING, reason=f"is {outcome.value}", comparison=comparison
    )


def gate_of(verdicts, outcome):
    return GateResult(
        outcome=outcome,
        reason=f"is {outcome.value}",
        verdicts=verdicts,
        policy=Policy(),
        blocks_total=10,
        blocks_voided=0,
    )


def result_of(request, gate, *, exit_code, verdict):
    return RunResult(
        command="bisect",
        run_id="run",
        folder=".perfguard/runs/run",
        suite=request.suite,
        machine_id="m",
        machine="a machine",
        cpus=(0,),
        arms={},
        gate=gate,
        exit_code=exit_code,
        verdict=verdict,
        reason="because",
        duration_s=1.0,
    )


@pytest.fixture
def gate(repository):
    return FakeGate(repository)


@pytest.fixture
def request_(repository):
    loaded = LoadedConfig(config=Config(), origins={}, project=repository.path)
    return Request(
        command="bisect", arguments=(), loaded=loaded, suite="tiny.*", cases=(SUM,), budget_s=60.0, inherited={}
    )


def outcome_of(found):
    return found.outcome, found.exit_code


class TestNaming:
    def test_the_first_slower_commit_is_named_with_its_effect(self, repository, request_, gate):
        commits = repository.history("0", "0", "0", "8", "8", "8", "8")
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert outcome_of(found) == (BisectionOutcome.FOUND, 0)
        assert found.culprit.id == commits[3]
        assert (found.culprit.subject, found.culprit.author) == ("change 4", "Ada Müller")
        (effect,) = found.effects
        assert math.expm1(effect.log_ratio) == pytest.approx(0.08)
        assert effect.lower < effect.log_ratio < effect.upper
        assert found.unexplained == ()
        assert "change 4 (Ada Müller" in found.reason
        assert "+8.00 %" in found.reason
        assert found.gates == len(gate.asked) <= 1 + 3

    def test_the_bad_revision_itself_is_named_without_a_gate_of_its_own(self, repository, request_, gate):
        commits = repository.history("0", "0", "8")
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[2]
        assert gate.asked == [commits[2], commits[1]]
        assert math.expm1(found.effects[0].log_ratio) == pytest.approx(0.08)

    def test_of_several_culprits_the_first_is_named_and_the_rest_is_said(self, repository, request_, gate):
        commits = repository.history("0", "0", "3", "3", "3", "3", "8")
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[2]
        (sentence,) = found.unexplained
        assert sentence.startswith(f"{SUM.id}: +3.00 % here, +8.00 % in total: later commits make it slower still")

    def test_a_slowdown_that_was_partly_won_back_is_said(self, repository, request_, gate):
        commits = repository.history("0", "20", "20", "20", "8")
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[1]
        assert "later commits win a part of it back" in found.unexplained[0]

    def test_a_small_slowdown_is_not_waved_through_as_unchanged(self, repository, request_, gate):
        """1.6 % lies inside the usual 2 % of `unchanged`; half of it is what a good commit must stay below."""
        commits = repository.history("0", "0", "1.6", "1.6", "1.6", "1.6")
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[2]
        assert gate.requests[0].loaded.config.equivalence == 0.02
        assert all(r.loaded.config.equivalence == pytest.approx(0.008) for r in gate.requests[1:])

    def test_only_cases_that_regressed_are_measured_further(self, repository, request_, gate):
        commits = repository.history("0", "0", "8", "8")
        found = bisect(replace(request_, cases=(SUM, SORT)), Span(good=commits[0]), run_gate=gate)
        assert [[case.id for case in r.cases] for r in gate.requests] == [[SUM.id, SORT.id], *[[SUM.id]] * 2]
        assert found.culprit.id == commits[2]

    def test_any_of_the_regressed_cases_makes_a_commit_bad(self, repository, request_, gate):
        commits = [
            repository.commit(speed, sort=sort, note=str(number))
            for number, (speed, sort) in enumerate([("0", "0"), ("0", "5"), ("0", "5"), ("8", "5"), ("8", "5")])
        ]
        found = bisect(replace(request_, cases=(SUM, SORT)), Span(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[1]
        assert [effect.case_id for effect in found.effects] == [SORT.id]
        assert found.unexplained[0].startswith(f"{SUM.id}: +0.00 % here, +8.00 % in total")


class TestSkipping:
    @pytest.mark.parametrize("what", ["failed", "different", "inconclusive", "no-baseline"])
    def test_what_cannot_be_told_is_skipped(self, repository, request_, gate, what):
        commits = repository.history("0", "0", "8", what, "8", "8", "8")
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[2]
        assert found.steps[0].commit.id == commits[3]
        assert (found.steps[0].measured.answer, found.steps[0].measured.gate) == (Answer.SKIP, what)

    @pytest.mark.parametrize("error", [ArmError("pip failed\nwith a long log"), MeasurementError("it dies")])
    def test_a_commit_that_does_not_even_start_is_skipped(self, repository, request_, gate, error):
        commits = repository.history("0", "0", "8", "8", "8", "8", "8")
        gate.error_at[commits[3]] = error
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert found.culprit.id == commits[2]
        assert found.steps[0].measured.reason == str(error).splitlines()[0]

    def test_commits_that_cannot_be_told_apart_are_all_named(self, repository, request_, gate):
        commits = repository.history("0", "0", "failed", "failed", "8", "8")
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert outcome_of(found) == (BisectionOutcome.UNDECIDED, 4)
        assert [commit.id for commit in found.suspects] == commits[2:5]
        assert found.culprit is None
        assert "one of 3" in found.reason

    def test_an_unfit_host_ends_the_search_and_keeps_the_answers(self, repository, request_, gate):
        commits = repository.history("0", "0", "0", "8", "8", "8", "8")
        gate.error_at[commits[1]] = gate.error_at[commits[2]] = HostUnfitError("another run measures here")
        with pytest.raises(HostUnfitError):
            bisect(request_, Span(good=commits[0]), run_gate=gate)
        gate.error_at.clear()
        gate.asked.clear()
        bisect(request_, Span(good=commits[0]), run_gate=gate)
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
    def test_it_is_said_where_nothing_regressed(self, repository, request_, gate, last, ending):
        commits = repository.history("0", "0", last)
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert outcome_of(found) == ending
        assert gate.asked == [commits[2]]
        assert (found.culprit, found.suspects) == (None, ())

    def test_equal_trees_are_not_measured(self, repository, request_, gate):
        first = repository.commit("0")
        repository.commit("8")
        repository.commit("0")
        found = bisect(request_, Span(good=first), run_gate=gate)
        assert outcome_of(found) == (BisectionOutcome.NO_REGRESSION, 4)
        assert gate.asked == []
        assert "the same tree" in found.reason

    def test_what_was_not_answered_is_tried_again(self, repository, request_, gate):
        commits = repository.history("0", "0", "8")
        gate.host_is_unstable = True
        repository.commit("inconclusive")
        span = Span(good=commits[0])
        assert bisect(request_, span, run_gate=gate).outcome is BisectionOutcome.INCONCLUSIVE
        assert bisect(request_, span, run_gate=gate).gates == 1


class TestKeeping:
    def test_a_second_bisection_measures_nothing_and_says_the_same(self, repository, request_, gate):
        commits = repository.history("0", "0", "failed", "0", "8", "8", "8", "8")
        first = bisect(request_, Span(good=commits[0]), run_gate=gate)
        gate.asked.clear()
        second = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert gate.asked == []
        assert (second.gates, second.culprit, second.effects) == (0, first.culprit, first.effects)
        assert [step.commit for step in second.steps] == [step.commit for step in first.steps]
        assert all(step.is_reused for step in second.steps)

    def test_an_interrupted_one_goes_on(self, repository, request_, gate):
        commits = repository.history("0", "0", "0", "0", "8", "8", "8", "8", "8")
        gate.interrupt_at = 2
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert outcome_of(found) == (BisectionOutcome.INTERRUPTED, ExitCode.INTERRUPTED)
        assert len(found.steps) == 1
        assert commits[4] in [commit.id for commit in found.suspects]
        before = set(gate.asked)
        gate.interrupt_at = None
        gate.asked.clear()
        assert bisect(request_, Span(good=commits[0]), run_gate=gate).culprit.id == commits[4]
        assert before.isdisjoint(gate.asked)

    def test_interrupted_between_two_gates_it_still_says_what_it_has(self, repository, request_, gate):
        commits = repository.history("0", "0", "0", "8", "8")
        gate.error_at[commits[2]] = KeyboardInterrupt()
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert outcome_of(found) == (BisectionOutcome.INTERRUPTED, 130)
        assert [commit.id for commit in found.suspects] == commits[1:]

    def test_interrupted_between_the_ends_nothing_is_claimed(self, repository, request_, gate):
        commits = repository.history("0", "8")
        gate.interrupt_at = 0
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert outcome_of(found) == (BisectionOutcome.INTERRUPTED, 130)
        assert (found.total, found.steps, found.suspects) == (None, (), ())

    def test_a_tree_that_was_met_before_is_not_measured_again(self, repository, request_, gate):
        first = repository.commit("0", note="a")
        repository.commit("0", note="b")
        slow = repository.commit("8", note="b")
        repository.commit("8", note="c")
        back = repository.commit("8", note="b")  # the tree of `slow`
        repository.commit("8", note="d")
        found = bisect(request_, Span(good=first), run_gate=gate)
        assert found.culprit.id == slow
        assert len({git.tree_of(repository.path, commit) for commit in gate.asked}) == len(gate.asked)
        assert git.tree_of(repository.path, back) == git.tree_of(repository.path, slow)

    @pytest.mark.parametrize("change", ["budget", "setting", "cases", "fresh"])
    def test_other_conditions_are_measured_anew(self, repository, request_, gate, change):
        commits = repository.history("0", "8")
        bisect(request_, Span(good=commits[0]), run_gate=gate)
        loaded = request_.loaded
        other = {
            "budget": replace(request_, budget_s=61.0),
            "setting": replace(request_, loaded=replace(loaded, config=replace(loaded.config, slices=3))),
            "cases": replace(request_, cases=(SUM, SORT)),
            "fresh": request_,
        }[change]
        found = bisect(other, Span(good=commits[0]), is_fresh=change == "fresh", run_gate=gate)
        assert found.gates == 1

    def test_answers_that_were_the_hosts_fault_are_not_believed(self, repository, request_, gate):
        commits = repository.history("0", "0", "8", "8")
        bisect(request_, Span(good=commits[0]), run_gate=gate)  # keeps the ends
        log = next((repository.path / ".perfguard" / "bisect").glob("*.json"))
        kept = json.loads(log.read_text())
        kept["trees"] = {tree: a for tree, a in kept["trees"].items() if tree == kept["bad"]}
        log.write_text(json.dumps(kept))
        broken = replace_verdicts(gate)
        found = bisect(request_, Span(good=commits[0]), run_gate=broken)
        assert found.outcome is BisectionOutcome.UNDECIDED
        assert bisect(request_, Span(good=commits[0]), run_gate=gate).culprit.id == commits[2]

    @pytest.mark.parametrize("text", ["{", "[]", '{"schema": 99}', '{"schema": 1, "good": 5}'])
    def test_a_corrupt_file_is_named_and_fresh_gets_past_it(self, repository, request_, gate, text):
        commits = repository.history("0", "8")
        found = bisect(request_, Span(good=commits[0]), run_gate=gate)
        with open(found.log, "w") as stream:  # noqa: PTH123
            stream.write(text)
        with pytest.raises(StoreError, match="bisect/.*json"):
            bisect(request_, Span(good=commits[0]), run_gate=gate)
        assert bisect(request_, Span(good=commits[0]), is_fresh=True, run_gate=gate).exit_code == 0


def replace_verdicts(gate):
    """The same gate on a host that lets nothing be told."""

    def run(request, baseline, candidate):
        result = gate(request, baseline, candidate)
        verdicts = tuple(replace(verdict, outcome=Outcome.INCONCLUSIVE) for verdict in result.gate.verdicts)
        return replace(result, verdict="host-unstable", gate=gate_of(verdicts, GateOutcome.HOST_UNSTABLE))

    return run


class TestHistories:
    def merged(self, repository):
        """main: a - - b - - m - c, and a branch a - x(slow) - y that m merges."""
        first = repository.commit("0", note="a")
        repository.git("checkout", "-q", "-b", "branch")
        slow = repository.commit("8", message="slow on a branch")
        repository.commit(message="empty")
        repository.git("checkout", "-q", "main")
        repository.commit(note="b")
        repository.git("merge", "-q", "--no-ff", "-m", "merge", "branch")
        merge = git.resolve_commit(repository.path, "HEAD")
        repository.commit(note="c")
        return first, slow, merge

    def test_a_culprit_on_a_merged_branch_is_named(self, repository, request_, gate):
        first, slow, _ = self.merged(repository)
        assert bisect(request_, Span(good=first), run_gate=gate).culprit.id == slow

    def test_with_first_parent_the_merge_is_named(self, repository, request_, gate):
        first, _, merge = self.merged(repository)
        found = bisect(request_, Span(good=first, first_parent=True), run_gate=gate)
        assert found.culprit.id == merge
        assert found.commits == 3

    def test_with_paths_only_commits_that_touch_them_are_measured(self, repository, request_, gate):
        first = repository.commit("0", note="0")
        for number in range(1, 5):
            repository.commit(note=str(number))
        slow = repository.commit("8")
        for number in range(5, 9):
            repository.commit(note=str(number))
        path = str(repository.path / "speed")
        found = bisect(request_, Span(good=first, paths=(path,)), run_gate=gate)
        assert found.culprit.id == slow
        assert found.commits == 1
        assert gate.asked == [git.resolve_commit(repository.path, "HEAD"), slow]

    def innocent(self, repository):
        """Notes change before and after the slow commit, which does not touch them."""
        first = repository.commit("0", note="0")
        touching = [repository.commit(note=str(number)) for number in range(1, 5)]
        repository.commit("8")
        return first, touching

    def test_a_slowdown_outside_the_paths_is_blamed_on_no_commit_that_touches_them(self, repository, request_, gate):
        first, touching = self.innocent(repository)
        span = Span(good=first, paths=(str(repository.path / "notes"),))
        found = bisect(request_, span, run_gate=gate)
        assert (found.outcome, found.exit_code) == (BisectionOutcome.ELSEWHERE, ExitCode.INCONCLUSIVE)
        assert (found.culprit, found.suspects) == (None, ())
        assert found.steps[-1].commit.id == touching[-1]
        assert "no commit that touches the paths is to blame" in found.reason

    def test_a_last_commit_of_the_paths_that_cannot_be_told_is_not_blamed(self, repository, request_, gate):
        first, touching = self.innocent(repository)
        gate.error_at = {touching[-1]: MeasurementError("does not start")}
        span = Span(good=first, paths=(str(repository.path / "notes"),))
        found = bisect(request_, span, run_gate=gate)
        assert (found.outcome, found.culprit) == (BisectionOutcome.UNDECIDED, None)
        assert [commit.id for commit in found.suspects] == [touching[-1]]
        assert f"{touching[-1][:10]} is the only one left" in found.reason

    def test_commits_of_paths_are_linked_over_those_that_were_left_out(self, repository):
        first = repository.commit("0", note="0")
        repository.commit("1")
        repository.commit(note="1")
        repository.commit("2")
        history = read_history(repository.path, Span(good=first, paths=(str(repository.path / "speed"),)))
        assert history.parents() == [[], [0]]


class TestBadInput:
    @pytest.mark.parametrize(
        ("good", "bad", "said"),
        [
            ("nowhere", "HEAD", "git knows no revision 'nowhere'"),
            ("HEAD", "nowhere", "git knows no revision 'nowhere'"),
            ("HEAD", "HEAD", "are the same commit"),
            ("HEAD", "HEAD~1", "the other way round; exchange them"),
            ("other", "HEAD", r"is not an ancestor of --bad HEAD .*git merge-base other HEAD"),
            ("--all", "HEAD", "is not a revision"),
        ],
    )
    def test_revisions_that_span_nothing_are_explained(self, repository, good, bad, said):
        repository.history("0", "8")
        repository.git("checkout", "-q", "-b", "other", "HEAD~1")
        repository.commit("1")
        repository.git("checkout", "-q", "main")
        with pytest.raises(UsageError, match=said):
            read_history(repository.path, Span(good=good, bad=bad))

    def test_paths_that_nothing_touches_are_named(self, repository):
        repository.history("0", "8")
        with pytest.raises(UsageError, match="no commit after HEAD~1 up to HEAD touches .*absent"):
            read_history(repository.path, Span(good="HEAD~1", paths=(str(repository.path / "absent"),)))

    def test_outside_a_repository_it_is_said(self, tmp_path, monkeypatch):
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
        with pytest.raises(UsageError, match="is not inside a git repository"):
            read_history(tmp_path, Span(good="HEAD~1"))

    def test_a_shallow_clone_is_told_to_fetch(self, repository, tmp_path):
        commits = repository.history("0", "0", "8")
        clone = tmp_path / "clone"
        git.run_git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository.path}", str(clone))
        with pytest.raises(UsageError, match="shallow clone"):
            read_history(clone, Span(good=commits[0]))
        git.run_git(clone, "fetch", "-q", "--depth", "1", "origin", commits[0])
        with pytest.raises(UsageError, match="git fetch --unshallow"):
            read_history(clone, Span(good=commits[0]))

    def test_subjects_with_odd_characters_are_read_whole(self, repository):
        first = repository.commit("0")
        repository.commit("8", message="tabs\tand | pipes, ünïcode \x1b[31m and more\n\nA body\nof lines")
        (commit,) = read_history(repository.path, Span(good=first)).commits
        assert commit.subject == "tabs\tand | pipes, ünïcode \x1b[31m and more"
        assert commit.parents == (first,)
