"""Comments on pull requests, from what the workflow runs that measured them left: all of that is taken for data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from perfguard.errors import PerfguardError, StoreError
from perfguard.integrations.github.api import Artifact, Comment, GitHub, PullRequest
from perfguard.integrations.github.connection import GitHubError, NotPermittedError
from perfguard.integrations.github.job import WorkflowRunEvent
from perfguard.integrations.github.pull_requests import Revisions, reproducing
from perfguard.records.result import RunResult
from perfguard.records.spec import Gating
from perfguard.records.verdict import GateOutcome, Outcome
from perfguard.report.comment.comment import CommentContext, marker_line, render_comment
from perfguard.store.artifacts import result_in_zip

MOST_GATES = 8  # Comments for one run; a workflow of a stranger could leave any number of artifacts
_ARTIFACT = re.compile(r"perfguard-(?P<name>[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*)-(?P<attempt>[0-9]{1,4})")
_LONGEST_NAME = 80
_RUN = re.compile(r"<!-- run (\d{1,19})\.(\d{1,9}) -->")


class RunNumber(NamedTuple):
    """Which run a comment is of: GitHub's id of it, which grows, and the attempt, from 1. A later one is larger."""

    run_id: int
    attempt: int

    def line(self) -> str:
        """How it stands in a comment."""
        return f"<!-- run {self.run_id}.{self.attempt} -->"


class Reported(Struct, frozen=True, kw_only=True):
    """What became of one artifact, or of all of them, as a sentence; and a comment that could not be written."""

    said: str
    unwritten: str | None = None
    error: PerfguardError | None = None  # What went wrong; a token that may not comment is no error


def comment_on(
    github: GitHub, run: WorkflowRunEvent, *, run_url: str | None, accept_label: str | None
) -> tuple[Reported, ...]:
    """Comment on the pull request of a workflow run, as GitHub describes the run.

    What is wrong with one artifact keeps no other from its comment.

    Raises:
        StoreError: There is no artifact of a gate.
        GitHubError: GitHub could not be asked.
    """
    pull = github.open_pull_request(run.head_sha, run.head_repository)
    if pull is None:
        return (Reported(said=f"no open pull request is at {run.head_sha[:12]} any more; nothing to comment on"),)
    latest = latest_artifacts(github.artifacts(run.id), run.attempt)
    if not latest:
        raise StoreError(f"workflow run {run.id} left no artifact named perfguard-NAME-ATTEMPT; did its gate run?")
    context = CommentContext(
        marker="",
        head_sha=run.head_sha,
        report_url=run_url,
        accept_label=accept_label,
        accepted_by=accept_label if accept_label in pull.labels else None,
        from_fork=pull.from_fork,
    )
    reported = []
    for name in sorted(latest)[:MOST_GATES]:
        attempt, artifact = latest[name]
        number = RunNumber(run_id=run.id, attempt=attempt)
        reported.append(_report(github, pull, artifact, replace(context, marker=name), number))
    if len(latest) > MOST_GATES:
        left_out = len(latest) - MOST_GATES
        reported.append(Reported(said=f"left {left_out} artifacts out: only {MOST_GATES} are reported"))
    return tuple(reported)


def latest_artifacts(artifacts: Sequence[Artifact], attempt: int | None) -> dict[str, tuple[int, Artifact]]:
    """The last attempt of each name; without those that are gone, and attempts that the run did not have yet."""
    latest: dict[str, tuple[int, Artifact]] = {}
    for artifact in artifacts:
        found = _ARTIFACT.fullmatch(artifact.name)
        if found is None or artifact.expired or len(found["name"]) > _LONGEST_NAME:
            continue
        name, number = found["name"], int(found["attempt"])
        is_possible = attempt is None or number <= attempt
        if is_possible and (name not in latest or number > latest[name][0]):
            latest[name] = (number, artifact)
    return latest


def _report(github: GitHub, pull: PullRequest, artifact: Artifact, context: CommentContext, run: RunNumber) -> Reported:
    body = None
    try:
        with github.downloaded(artifact) as file:
            result = result_in_zip(file, source=f"artifact {artifact.name}")
        require_consistent(result, source=f"artifact {artifact.name}")
        revisions = Revisions(baseline=pull.base_sha, candidate=pull.head_sha)
        body = render_comment(result, replace(context, reproduce=reproducing(result, revisions)))
        marker = marker_line(context.marker)
        return Reported(said=put_comment(github, pull.number, marker_line=marker, body=body, run=run))
    except NotPermittedError as error:
        if body is None:
            return Reported(said=f"{error}; give this job `permissions: actions: read`", error=error)
        hint = "give this job `permissions: pull-requests: write`; the comment is in the job's summary instead"
        return Reported(said=f"no comment on #{pull.number}: {error}; {hint}", unwritten=body)
    except (StoreError, GitHubError) as error:
        return Reported(said=f"no comment on #{pull.number}: {error}", unwritten=body, error=error)


def require_consistent(result: RunResult, *, source: str) -> None:
    """Refuse, by a StoreError, a result whose headline is better than its cases."""
    gate = result.gate
    if gate is None or gate.identical or gate.outcome is not GateOutcome.PASS:
        return
    red = (Outcome.REGRESSED, Outcome.FAILED, Outcome.DIFFERENT, Outcome.INVALID)
    for verdict in gate.verdicts:
        if verdict.gating is Gating.GATING and verdict.outcome in red:
            raise StoreError(
                f"{source} says that the gate passed, while {verdict.case_id[:80]!r} is {verdict.outcome.value}: it is "
                "refused, as no gate says that"
            )


def put_comment(github: GitHub, number: int, *, marker_line: str, body: str, run: RunNumber) -> str:
    """Write the comment, or update the one that is there; gives what was done, as a sentence.

    The comment is found again by the first line of its body, the marker. One of a later run is left alone.
    """
    marked = (c for c in github.comments(number) if c.body.partition("\n")[0].rstrip("\r") == marker_line)
    mine = _written_by_us(github, list(marked))
    text = body.replace(marker_line, f"{marker_line}\n{run.line()}", 1)
    if not mine:
        github.add_comment(number, text)
        return f"commented on #{number}"
    if max(map(_run_of, mine)) > run:
        return f"left the comment on #{number} as it is: it is about a later run"
    first, *others = mine
    for other in others:  # of runs that began at once, or of a request that was repeated
        github.remove_comment(other)
    if first.body.split() == text.split():  # GitHub may change line ends
        return f"the comment on #{number} says so already"
    github.change_comment(first, text)
    return f"updated the comment on #{number}"


def _written_by_us(github: GitHub, comments: Sequence[Comment]) -> list[Comment]:
    """Without those of people, who may quote the marker; unless the token is a person's own."""
    own = github.own_login() if any(not comment.by_bot for comment in comments) else None
    return [comment for comment in comments if comment.by_bot or comment.author == own]


def _run_of(comment: Comment) -> RunNumber:
    found = _RUN.match(comment.body.partition("\n")[2])
    return RunNumber(int(found[1]), int(found[2])) if found else RunNumber(0, 0)
