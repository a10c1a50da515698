"""A step of a GitHub job: what its environment says, and the files and lines by which it answers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from perfguard.errors import UsageError
from perfguard.integrations.github.events import (
    PullRequestEvent,
    WorkflowRunEvent,
    pull_request_of,
    read_event,
    workflow_run_of,
)
from perfguard.integrations.github.workflow_commands import (
    Annotation,
    Level,
    annotation_line,
    output_lines,
    stop_and_resume,
)

__all__ = ["Annotation", "Job", "Level", "add_summary", "annotate", "commands_stopped", "set_outputs", "this_job"]


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
    """The job that this process is a step of.

    Raises:
        UsageError: The runner's variables make no sense.
    """
    path = environment.get("GITHUB_EVENT_PATH")
    event = read_event(Path(path)) if path else {}
    run_id = environment.get("GITHUB_RUN_ID") or ""
    return Job(
        repository=environment.get("GITHUB_REPOSITORY") or None,
        api_url=environment.get("GITHUB_API_URL") or None,
        server_url=environment.get("GITHUB_SERVER_URL") or None,
        run_id=int(run_id) if run_id.isdigit() else None,
        base_ref=environment.get("GITHUB_BASE_REF") or None,
        ref_name=environment.get("GITHUB_REF_NAME") or None,
        token=environment.get("GITHUB_TOKEN") or None,
        pull_request=pull_request_of(event),
        workflow_run=workflow_run_of(event),
    )


def add_summary(text: str) -> None:
    """Add Markdown to the job's summary; outside GitHub it goes to stdout."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        click.echo(text)
        return
    _append(path, text + "\n", "GITHUB_STEP_SUMMARY")


def set_outputs(values: Mapping[str, str]) -> None:
    """Give the step's outputs; nothing happens outside GitHub."""
    path = os.environ.get("GITHUB_OUTPUT")
    if path:
        _append(path, output_lines(values), "GITHUB_OUTPUT")


@contextlib.contextmanager
def commands_stopped() -> Iterator[None]:
    """While entered, nothing that is printed counts as a command to GitHub's runner.

    An exception leaves it so for the rest of the step: what is printed of it may hold foreign text too.
    """
    stop, resume = stop_and_resume()
    click.echo(stop)
    yield
    sys.stderr.flush()
    click.echo(resume)


def annotate(annotations: Sequence[Annotation]) -> None:
    """Show annotations in the pull request."""
    for annotation in annotations:
        click.echo(annotation_line(annotation))


def _append(path: str, text: str, variable: str) -> None:
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path}, named by {variable}, cannot be written: {error.strerror}") from error
