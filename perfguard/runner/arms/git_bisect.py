"""`git bisect` without a checkout: git chooses the commits, in a worktree without files that nobody else uses."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from perfguard.errors import ArmError, UsageError
from perfguard.records.bisection import Answer, Commit
from perfguard.runner.arms import git


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where to look."""

    good: str  # Revision that is fast
    bad: str = "HEAD"  # Revision that is slow; contains the good one
    first_parent: bool = False  # Take a merged branch as one commit
    paths: tuple[str, ...] = ()
    """Only commits that touch one of these; absolute, or pathspecs that begin with a colon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitBisect:
    """A bisection that git drives."""

    worktree: Path  # Where its state lives
    span: Span  # Paths are relative to the worktree
    good: Commit
    bad: Commit

    def suspects(self) -> tuple[Commit, ...]:
        """Commits that may be the first bad one after all answers so far, parents before children."""
        ends = ("refs/bisect/bad", "--not", "--glob=refs/bisect/good-*")
        return git.list_commits(self.worktree, *ends, first_parent=self.span.first_parent, paths=self.span.paths)

    def chosen(self) -> str:
        """Id of the commit to test next."""
        return git.resolve_commit(self.worktree, "BISECT_HEAD")

    def tell(self, commit: Commit, answer: Answer) -> None:
        """Take in what a commit is; it is one of the suspects."""
        with suppress(ArmError):  # git also fails where only skipped commits are left, or none
            git.run_git(self.worktree, "bisect", answer.value, commit.id)


@contextmanager
def started_bisect(project: Path, span: Span) -> Iterator[GitBisect]:
    """A bisection, gone with all its state at the end.

    Raises:
        UsageError: No repository, no such revision, or nothing between them; with what to do.
    """
    repository = git.top_level(project)
    if repository is None:
        raise UsageError(f"{project} is not inside a git repository; a bisection needs the history of one")
    good, bad = (git.describe_commit(repository, git.resolve_commit(repository, r)) for r in (span.good, span.bad))
    _require_ancestor(repository, good, bad, span)
    if not git.list_commits(repository, bad.id, f"^{good.id}", first_parent=span.first_parent, paths=span.paths):
        raise UsageError(f"no commit after {span.good} up to {span.bad} touches {', '.join(span.paths)}")
    relative = (path if path.startswith(":") else os.path.relpath(path, repository) for path in span.paths)
    with tempfile.TemporaryDirectory(prefix="perfguard-bisect-") as folder:
        worktree = Path(folder) / "tree"
        git.add_worktree(repository, worktree, good.id, files=False)
        try:
            search = GitBisect(worktree=worktree, span=replace(span, paths=tuple(relative)), good=good, bad=bad)
            options = ("--no-checkout", *(["--first-parent"] if span.first_parent else ()))
            git.run_git(worktree, "bisect", "start", *options, bad.id, good.id, "--", *search.span.paths)
            yield search
        finally:
            git.remove_worktree(repository, worktree)


def _require_ancestor(repository: Path, good: Commit, bad: Commit, span: Span) -> None:
    if good.id == bad.id:
        raise UsageError(f"--good {span.good} and --bad {span.bad} are the same commit ({good.short_id}); name two")
    if git.is_ancestor(repository, good.id, bad.id):
        return
    problem = f"--good {span.good} ({good.short_id}) is not an ancestor of --bad {span.bad} ({bad.short_id})"
    if git.is_ancestor(repository, bad.id, good.id):
        raise UsageError(f"{problem}, but the other way round; exchange them")
    if git.is_shallow(repository):
        raise UsageError(f"{problem} as far as this shallow clone knows; run `git fetch --unshallow` first")
    raise UsageError(f"{problem}; name a good commit that it contains: try `git merge-base {span.good} {span.bad}`")
