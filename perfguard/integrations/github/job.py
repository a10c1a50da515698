"""A step of a GitHub job: what the runner tells it by variables and by the event's file.

Nothing that is read of a pull request is text that its author could have chosen: only people with a role in the
repository can set labels. All of a workflow run is GitHub's own word.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfguard.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestEvent:
    """The pull request that a gate runs for."""

    number: int
    head_sha: str
    """The commit that was pushed, not the merge of it."""
    from_fork: bool
    """Whether it comes from another repository."""
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRunEvent:
    """The workflow run that has ended."""

    id: int
    """Its number, which grows."""
    attempt: int | None
    """How often it was started, from 1; None where that is not known."""
    head_sha: str
    """The commit that was pushed."""
    head_repository: str | None
    """`owner/name` that it was pushed to; None where that is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the runner tells a step; everything is None outside GitHub."""

    repository: str | None
    """`owner/name`."""
    api_url: str | None
    """Where this GitHub's API is."""
    server_url: str | None
    """Where its pages are."""
    run_id: int | None
    """This workflow run."""
    base_ref: str | None
    """Branch that the pull request goes into."""
    ref_name: str | None
    """Branch that the run is for."""
    token: str | None
    """Of the job."""
    pull_request: PullRequestEvent | None
    """The pull request that the run is for."""
    workflow_run: WorkflowRunEvent | None
    """The run that this one reports on."""

    def run_url(self, run_id: int) -> str | None:
        """Page of a workflow run."""
        if not (self.server_url and self.repository):
            return None
        return f"{self.server_url}/{self.repository}/actions/runs/{run_id}"


def this_job(environment: Mapping[str, str] = os.environ) -> Job:
    """The job that this process is a step of. Raises UsageError: the runner's variables make no sense."""
    path = environment.get("GITHUB_EVENT_PATH")
    event = read_event(Path(path)) if path else {}
    run_id = environment.get("GITHUB_RUN_ID") or ""
    texts = ("repository", "api_url", "server_url", "base_ref", "ref_name", "token")
    return Job(
        **{name: environment.get(f"GITHUB_{name.upper()}") or None for name in texts},
        run_id=int(run_id) if run_id.isdigit() else None,
        pull_request=pull_request_of(event),
        workflow_run=workflow_run_of(event),
    )


def read_event(path: Path) -> Mapping[str, Any]:
    """The event in a file. Raises UsageError: it cannot be read, or is no JSON object."""
    try:
        event = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}, named by GITHUB_EVENT_PATH, is not an event of GitHub: {error}") from error
    if not isinstance(event, dict):
        raise UsageError(f"{path}, named by GITHUB_EVENT_PATH, is not an event of GitHub: not an object")
    return event


def pull_request_of(event: Mapping[str, Any]) -> PullRequestEvent | None:
    """The pull request of an event; None where it is about something else."""
    pull = event.get("pull_request")
    if not isinstance(pull, dict):
        return None
    with _complete("pull request"):
        head, base = pull["head"], pull["base"]
        # A fork that was deleted meanwhile has no repository any more.
        home = (head.get("repo") or {}).get("full_name")
        return PullRequestEvent(
            number=int(pull["number"]),
            head_sha=str(head["sha"]),
            from_fork=home != base["repo"]["full_name"],
            labels=tuple(str(label["name"]) for label in pull.get("labels") or ()),
        )


def workflow_run_of(event: Mapping[str, Any]) -> WorkflowRunEvent | None:
    """The workflow run that an event is about; None where it is about something else."""
    run = event.get("workflow_run")
    if not isinstance(run, dict):
        return None
    with _complete("workflow run"):
        return WorkflowRunEvent(
            id=int(run["id"]),
            attempt=int(run["run_attempt"]),
            head_sha=str(run["head_sha"]),
            head_repository=(run.get("head_repository") or {}).get("full_name"),
        )


@contextmanager
def _complete(what: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"the event's {what} lacks {error}; is GITHUB_EVENT_PATH the runner's own?") from error
