"""What GitHub tells a job about the event that started it: the file that GITHUB_EVENT_PATH names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfguard.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestEvent:
    """The pull request that a gate runs for. Nothing of it is text that the author could have chosen."""

    number: int
    """Its number."""
    head_sha: str
    """The commit that was pushed, not the merge of it."""
    from_fork: bool
    """Whether it comes from another repository."""
    labels: tuple[str, ...]
    """Labels, which only people with a role in the repository can set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRunEvent:
    """The workflow run that has ended. All of it is GitHub's own word."""

    id: int
    """Its number, which grows."""
    attempt: int | None
    """How often it was started, from 1; None where that is not known."""
    head_sha: str
    """The commit that was pushed."""
    head_repository: str | None
    """`owner/name` that it was pushed to; None where that is deleted."""


def read_event(path: Path) -> Mapping[str, Any]:
    """The event.

    Raises:
        UsageError: It cannot be read, or is no JSON object.
    """
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
    try:
        head, base = pull["head"], pull["base"]
        # A fork that was deleted meanwhile has no repository any more.
        home = (head.get("repo") or {}).get("full_name")
        return PullRequestEvent(
            number=int(pull["number"]),
            head_sha=str(head["sha"]),
            from_fork=home != base["repo"]["full_name"],
            labels=tuple(str(label["name"]) for label in pull.get("labels") or ()),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"the event's pull request lacks {error}; is GITHUB_EVENT_PATH the runner's own?") from error


def workflow_run_of(event: Mapping[str, Any]) -> WorkflowRunEvent | None:
    """The workflow run that an event is about; None where it is about something else."""
    run = event.get("workflow_run")
    if not isinstance(run, dict):
        return None
    try:
        return WorkflowRunEvent(
            id=int(run["id"]),
            attempt=int(run["run_attempt"]),
            head_sha=str(run["head_sha"]),
            head_repository=(run.get("head_repository") or {}).get("full_name"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"the event's workflow run lacks {error}; is GITHUB_EVENT_PATH the runner's own?") from error
