"""A step of a GitHub job: what the runner passes to it, and the annotations and outputs by which it answers.

The runner passes variables and the event's file. Foreign text is made harmless in every answer. Source:
https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands

Nothing that is read of a pull request is text that its author could have chosen: only people with a role in the
repository can set labels. All of a workflow run is GitHub's own word.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfguard.errors import UsageError
from perfguard.records.result import RunResult
from perfguard.records.spec import Gating
from perfguard.records.steps.ops import Attribution
from perfguard.records.verdict import Outcome, Verdict
from perfguard.report.culprits import culprit_texts, line_in_tree
from perfguard.report.lines import names_in
from perfguard.report.messages.catalog import describe_all
from perfguard.units import printable

MOST_ANNOTATIONS = 10  # GitHub shows no more of one kind in a step
_LONGEST_MESSAGE = 1000


class PullRequestEvent(Struct, frozen=True, kw_only=True):
    """The pull request that a gate runs for."""

    head_sha: str  # The commit that was pushed, not the merge of it
    from_fork: bool  # Whether it comes from another repository
    labels: tuple[str, ...]


class WorkflowRunEvent(Struct, frozen=True, kw_only=True):
    """The workflow run that has ended."""

    id: int  # Its number, which grows
    attempt: int | None  # How often it was started, from 1; None where that is not known
    head_sha: str
    head_repository: str | None  # `owner/name` that the commit was pushed to; None where that is deleted


class Job(Struct, frozen=True, kw_only=True):
    """What the runner passes to a step, under the names of its variables; everything is None outside GitHub."""

    repository: str | None  # `owner/name`
    api_url: str | None
    server_url: str | None
    run_id: int | None
    base_ref: str | None  # Branch that the pull request goes into
    ref_name: str | None  # Branch that the run is for
    token: str | None
    pull_request: PullRequestEvent | None
    workflow_run: WorkflowRunEvent | None  # The run that this one reports on

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
    """The event in a file; UsageError where it cannot be read, or is no JSON object."""
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


class Level(str, Enum):
    """Kinds of annotations."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


class Annotation(Struct, frozen=True, kw_only=True):
    """A remark that GitHub shows in the pull request, at a line of a file where one is known."""

    level: Level
    title: str  # One line
    message: str
    file: str | None = None  # Path in the repository
    line: int | None = None


def annotation_line(annotation: Annotation) -> str:
    """The workflow command that makes an annotation."""
    places = {"file": annotation.file, "line": annotation.line, "title": annotation.title}
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in places.items() if value)
    return f"::{annotation.level.value} {properties}::{_data(annotation.message[:_LONGEST_MESSAGE])}"


def output_lines(values: Mapping[str, str]) -> str:
    """The text that gives a step's outputs, to be added to the file that GITHUB_OUTPUT names.

    Each value is set between delimiters that nobody can guess, so that no value can add an output of its own.
    """
    blocks = []
    for name, value in values.items():
        delimiter = f"end-{secrets.token_hex(16)}"
        blocks.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    return "".join(blocks)


def stop_and_resume() -> tuple[str, str]:
    """Two lines: what stands between them is no command to the runner, whoever wrote it."""
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}", f"::{token}::"


def _data(text: str) -> str:
    """Text as a command's message: the runner takes `%25`, `%0D` and `%0A` back."""
    return printable(text, keep="\n").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(" ".join(text.split())).replace(":", "%3A").replace(",", "%2C")


_LEVELS = {
    Outcome.REGRESSED: Level.ERROR,
    Outcome.FAILED: Level.ERROR,
    Outcome.INVALID: Level.ERROR,
    Outcome.DIFFERENT: Level.ERROR,
    Outcome.INCONCLUSIVE: Level.WARNING,
    Outcome.INCOMPARABLE: Level.WARNING,
    Outcome.NO_BASELINE: Level.WARNING,
    Outcome.ALLOWED: Level.NOTICE,
}


def annotations_of(result: RunResult) -> tuple[Annotation, ...]:
    """An annotation for each case that is not in order, at most ten of a kind, regressions first."""
    if result.gate is None:
        return ()
    blamed = {attribution.case_id: attribution for attribution in result.attributions}
    ranked = sorted(result.gate.verdicts, key=lambda v: (v.gating is Gating.ADVISORY, list(Outcome).index(v.outcome)))
    # Identical arms pass by construction; what noise hid of them is nothing to warn of.
    annotated = _LEVELS.keys() - ({Outcome.INCONCLUSIVE} if result.gate.identical else set())
    names = names_in(result)
    remarks = [_remark(v, names[v.case_id], blamed.get(v.case_id)) for v in ranked if v.outcome in annotated]
    return tuple(remark for level in Level for remark in [r for r in remarks if r.level is level][:MOST_ANNOTATIONS])


def _remark(verdict: Verdict, name: str, attribution: Attribution | None) -> Annotation:
    level = _LEVELS[verdict.outcome]
    if verdict.gating is Gating.ADVISORY and level is Level.ERROR:
        level = Level.WARNING
    file, line = line_in_tree(attribution)
    return Annotation(
        level=level,
        title=f"perfguard: {name} {verdict.outcome.value}",
        message="\n".join([describe_all(verdict.reasons), *(culprit_texts(attribution) if attribution else ())]),
        file=file,
        line=line,
    )
