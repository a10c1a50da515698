"""One comment for each marker: found again, updated in place, never stacked, never set back by an older run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perfguard.github.api import Comment, GitHub

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
    mine = [comment for comment in github.comments(number) if comment.by_bot and _begins(comment.body, marker_line)]
    text = body.replace(marker_line, f"{marker_line}\n{run.line()}", 1)
    if not mine:
        github.add_comment(number, text)
        return f"commented on #{number}"
    newest = max((_run_of(comment) for comment in mine), key=_order)
    if _order(newest) > _order(run):
        return f"left the comment on #{number} as it is: it tells of a later run"
    first, *others = mine
    if first.body != text:
        github.change_comment(first, text)
    for other in others:  # two runs that began at once may both have found none
        github.remove_comment(other)
    return f"updated the comment on #{number}"


def _begins(body: str, marker_line: str) -> bool:
    return body.partition("\n")[0].rstrip("\r") == marker_line


def _run_of(comment: Comment) -> RunNumber | None:
    found = _RUN.search(comment.body)
    return RunNumber(run_id=int(found[1]), attempt=int(found[2])) if found else None


def _order(run: RunNumber | None) -> tuple[int, int]:
    return (run.run_id, run.attempt) if run else (0, 0)
