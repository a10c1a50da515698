"""Which commits of a git history a bisection looks at, and histories that it cannot search."""

from __future__ import annotations

import pytest

from perfguard.errors import ExitCode, MeasurementError, UsageError
from perfguard.gate.bisect import bisect
from perfguard.records.bisection import BisectionOutcome
from perfguard.runner.arms import git
from perfguard.runner.arms.git import CommitRange, started_bisect


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

    def test_a_culprit_on_a_merged_branch_is_named(self, repository, wanted, gate):
        first, slow, _ = self.merged(repository)
        assert bisect(wanted, CommitRange(good=first), run_gate=gate).culprit.id == slow

    def test_with_first_parent_the_merge_is_named(self, repository, wanted, gate):
        first, _, merge = self.merged(repository)
        found = bisect(wanted, CommitRange(good=first, first_parent=True), run_gate=gate)
        assert found.culprit.id == merge
        assert found.commits == 3

    def test_with_paths_only_commits_that_touch_them_are_measured(self, repository, wanted, gate):
        first = repository.commit("0", note="0")
        for number in range(1, 5):
            repository.commit(note=str(number))
        slow = repository.commit("8")
        for number in range(5, 9):
            repository.commit(note=str(number))
        path = str(repository.path / "speed")
        found = bisect(wanted, CommitRange(good=first, paths=(path,)), run_gate=gate)
        assert found.culprit.id == slow
        assert found.commits == 1
        assert gate.asked == [git.resolve_commit(repository.path, "HEAD"), slow]

    def innocent(self, repository):
        """Notes change before and after the slow commit, which does not touch them."""
        first = repository.commit("0", note="0")
        touching = [repository.commit(note=str(number)) for number in range(1, 5)]
        repository.commit("8")
        return first, touching

    def test_a_slowdown_outside_the_paths_is_blamed_on_no_commit_that_touches_them(self, repository, wanted, gate):
        first, touching = self.innocent(repository)
        span = CommitRange(good=first, paths=(str(repository.path / "notes"),))
        found = bisect(wanted, span, run_gate=gate)
        assert (found.outcome, found.exit_code) == (BisectionOutcome.ELSEWHERE, ExitCode.INCONCLUSIVE)
        assert (found.culprit, found.suspects) == (None, ())
        assert found.steps[-1].commit.id == touching[-1]

    def test_a_last_commit_of_the_paths_that_cannot_be_told_is_not_blamed(self, repository, wanted, gate):
        first, touching = self.innocent(repository)
        gate.error_at = {touching[-1]: MeasurementError("does not start")}
        span = CommitRange(good=first, paths=(str(repository.path / "notes"),))
        found = bisect(wanted, span, run_gate=gate)
        assert (found.outcome, found.culprit) == (BisectionOutcome.UNDECIDED, None)
        assert [commit.id for commit in found.suspects] == [touching[-1]]

    def test_commits_of_paths_are_linked_over_those_that_were_left_out(self, repository):
        first = repository.commit("0", note="0")
        repository.commit("1")
        repository.commit(note="1")
        repository.commit("2")
        paths = (str(repository.path / "speed"),)
        with started_bisect(repository.path, CommitRange(good=first, paths=paths)) as search:
            one, two = search.suspects()
        assert (one.parents, two.parents) == ((first,), (one.id,))


def test_a_bisection_of_the_users_own_and_the_checkout_stay_as_they_are(repository, wanted, gate):
    commits = repository.history("0", "0", "8", "8", "8")
    repository.git("bisect", "start", commits[4], commits[0])
    before = [repository.git(*words) for words in (("bisect", "log"), ("rev-parse", "HEAD"), ("for-each-ref",))]
    assert bisect(wanted, CommitRange(good=commits[0], bad=commits[4]), run_gate=gate).culprit.id == commits[2]
    after = [repository.git(*words) for words in (("bisect", "log"), ("rev-parse", "HEAD"), ("for-each-ref",))]
    assert after == before
    assert len(repository.git("worktree", "list").splitlines()) == 1


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
        with pytest.raises(UsageError, match=said), started_bisect(repository.path, CommitRange(good=good, bad=bad)):
            pass

    def test_paths_that_nothing_touches_are_named(self, repository, wanted, gate):
        repository.history("0", "8")
        span = CommitRange(good="HEAD~1", paths=(str(repository.path / "absent"),))
        with pytest.raises(UsageError, match="no commit after HEAD~1 up to HEAD touches .*absent"):
            bisect(wanted, span, run_gate=gate)

    def test_outside_a_repository_it_is_said(self, tmp_path, monkeypatch):
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
        with (
            pytest.raises(UsageError, match="is not inside a git repository"),
            started_bisect(tmp_path, CommitRange(good="HEAD~1")),
        ):
            pass

    def test_a_shallow_clone_is_told_to_fetch(self, repository, tmp_path):
        commits = repository.history("0", "0", "8")
        clone = tmp_path / "clone"
        git.run_git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository.path}", str(clone))
        with pytest.raises(UsageError, match="shallow clone"), started_bisect(clone, CommitRange(good=commits[0])):
            pass
        git.run_git(clone, "fetch", "-q", "--depth", "1", "origin", commits[0])
        with (
            pytest.raises(UsageError, match="git fetch --unshallow"),
            started_bisect(clone, CommitRange(good=commits[0])),
        ):
            pass

    def test_subjects_with_odd_characters_are_read_whole(self, repository):
        first = repository.commit("0")
        repository.commit("8", message="tabs\tand | pipes, ünïcode \x1b[31m and more\n\nA body\nof lines")
        with started_bisect(repository.path, CommitRange(good=first)) as search:
            (commit,) = search.suspects()
        assert commit.subject == "tabs\tand | pipes, ünïcode \x1b[31m and more"
        assert commit.parents == (first,)
