"""One comment for each marker: found again, updated in place, never stacked, never set back by an older run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perfguard.integrations.github.api import Comment, GitHub

_RUN = re.compile(r"<!-- run (\d{1,19})\.(\d{1,9}) -->")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNumber:
    """Which run a comment is of; a later one, or a later attempt of it, is larger."""

    run_id: int
    """GitHub's id of the workflow run, which grows."""
    attempt: int
    """Attempt of it, from 1."""

    def line(self) -> str:
        """How it stands in a comment."""
        return f"<!-- run {self.run_id}.{self.attempt} -->"


def put_comment(github: GitHub, number: int, *, marker_line: str, body: str, run: RunNumber) -> str:
    """Write the comment, or update the one that is there; gives what was done, as a sentence.

    Args:
        github: The repository.
        number: The pull request.
        marker_line: First line of `body`, which tells the comment from others.
        body: Markdown.
        run: The run that it tells of.
    """
    mine = _written_by_us(github, [c for c in github.comments(number) if _begins(c.body, marker_line)])
    text = body.replace(marker_line, f"{marker_line}\n{run.line()}", 1)
    if not mine:
        github.add_comment(number, text)
        return f"commented on #{number}"
    newest = max(_order(_run_of(comment)) for comment in mine)
    if newest > _order(run):
        return f"left the comment on #{number} as it is: it tells of a later run"
    first, *others = mine
    for other in others:  # of runs that began at once, or of a request that was repeated
        github.remove_comment(other)
    if _same(first.body, text):
        return f"the comment on #{number} says so already"
    github.change_comment(first, text)
    return f"updated the comment on #{number}"


def _written_by_us(github: GitHub, comments: Sequence[Comment]) -> list[Comment]:
    """Without those of people, who may quote the marker; unless the token is a person's own."""
    own = github.own_login() if any(not comment.by_bot for comment in comments) else None
    return [comment for comment in comments if comment.by_bot or comment.author == own]


def _begins(body: str, marker_line: str) -> bool:
    return body.partition("\n")[0].rstrip("\r") == marker_line


def _same(one: str, other: str) -> bool:
    """Whether two texts are the same but for line ends, which GitHub may change."""
    return one.split() == other.split()


def _run_of(comment: Comment) -> RunNumber | None:
    found = _RUN.match(comment.body.partition("\n")[2])
    return RunNumber(run_id=int(found[1]), attempt=int(found[2])) if found else None


def _order(run: RunNumber | None) -> tuple[int, int]:
    return (run.run_id, run.attempt) if run else (0, 0)
