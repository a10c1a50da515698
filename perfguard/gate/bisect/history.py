"""The commits that a bisection searches, and every way in which two revisions can fail to span any."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfguard.errors import UsageError
from perfguard.records.bisection import Commit
from perfguard.runner.arms import git

MOST_COMMITS = 20_000
"""A search over more would take hundreds of megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where to look."""

    good: str
    """Revision that is fast."""
    bad: str = "HEAD"
    """Revision that is slow; contains the good one."""
    first_parent: bool = False
    """Take a merged branch as one commit."""
    paths: tuple[str, ...] = ()
    """Only commits that touch one of these; absolute, or pathspecs that begin with a colon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is searched."""

    good: Commit
    """The good revision."""
    bad: Commit
    """The bad revision."""
    commits: tuple[Commit, ...]
    """Commits that may be the first bad one, parents before children; the last is the bad revision,
    or the last that touches the paths and is taken to be as bad."""

    def parents(self) -> list[list[int]]:
        """Positions of each commit's parents; those outside are left out."""
        position = {commit.id: index for index, commit in enumerate(self.commits)}
        return [[position[parent] for parent in commit.parents if parent in position] for commit in self.commits]


def read_history(project: Path, span: Span) -> History:
    """The commits between two revisions.

    Raises:
        UsageError: No repository, no such revision, or nothing between them; with what to do.
    """
    repository = git.top_level(project)
    if repository is None:
        raise UsageError(f"{project} is not inside a git repository; a bisection needs the history of one")
    good = git.describe_commit(repository, git.resolve_commit(repository, span.good))
    bad = git.describe_commit(repository, git.resolve_commit(repository, span.bad))
    _require_ancestor(repository, good, bad, span)
    commits = git.commits_between(repository, good.id, bad.id, first_parent=span.first_parent, paths=span.paths)
    if not commits:
        raise UsageError(f"no commit after {span.good} up to {span.bad} touches {', '.join(span.paths)}")
    if len(commits) > MOST_COMMITS:
        too_many = (
            f"{len(commits)} commits lie between {span.good} and {span.bad}, at most {MOST_COMMITS} can be searched"
        )
        raise UsageError(f"{too_many}; use --first-parent, --path or a nearer --good")
    return History(good=good, bad=bad, commits=commits)


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
