"""A gate on a pull request: what is compared with what, what the job leaves behind, and the comment on it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfguard.errors import ArmError, HostUnfitError, StoreError, UsageError
from perfguard.github.api import Artifact, GitHub, NotPermittedError
from perfguard.github.artifacts import result_in_zip
from perfguard.github.sticky import RunNumber, put_comment
from perfguard.model.result import RunResult
from perfguard.report.comment import CommentContext, marker_line, render_comment
from perfguard.runner import git

TOKENS = ("GITHUB_TOKEN", "GH_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN")
"""Variables that let whoever reads them act for the job."""
PARENT, MERGE_BASE = "parent", "merge-base"
_LEFT_OUT = ("arms*",)
_ARTIFACT = re.compile(r"perfguard-(?P<name>[A-Za-z0-9._-]{1,80})-(?P<attempt>[0-9]{1,4})")
_SUMMARY_NAME = "summary.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revisions:
    """Both sides of a pull request, as full commit ids."""

    baseline: str
    """What it is compared with."""
    candidate: str
    """What is judged."""


def require_no_token(environment: Mapping[str, str]) -> None:
    """Refuse to measure where measured code could take a credential of the job.

    Raises:
        UsageError: There is one; says how to leave it out.
    """
    found = [name for name in TOKENS if environment.get(name)]
    if found:
        raise UsageError(
            f"{', '.join(found)} in the environment of a step that runs a pull request's code: measured code could act "
            "with it; drop it from the step's env (and `id-token: write` from the job's permissions)"
        )


def revisions_of(start: Path, against: str, base_ref: str | None) -> Revisions:
    """What a pull request is compared with: by default the first parent of the merge commit that GitHub checks out.

    Args:
        start: Somewhere in the checkout.
        against: `parent`, `merge-base`, or a revision.
        base_ref: Name of the branch that the pull request goes into, for `merge-base`.

    Raises:
        ArmError: There is no such commit in the clone.
    """
    repository = git.top_level(start)
    if repository is None:
        raise ArmError(f"{start} is not inside a git repository; check the repository out first")
    candidate = git.resolve_commit(repository, "HEAD")
    if against == MERGE_BASE:
        branch = f"origin/{base_ref}" if base_ref else "origin/HEAD"
        return Revisions(baseline=git.merge_base(repository, branch, candidate), candidate=candidate)
    revision = "HEAD^1" if against == PARENT else against
    try:
        return Revisions(baseline=git.resolve_commit(repository, revision), candidate=candidate)
    except ArmError as error:
        if against != PARENT:
            raise
        raise ArmError(
            f"the clone does not hold the parent of {candidate[:12]}: check out with `fetch-depth: 2`, or more"
        ) from error


def keep_run(result: RunResult, destination: Path) -> None:
    """Copy what a run left, but for its checkouts, to where the job uploads it from.

    Raises:
        HostUnfitError: It cannot be written.
    """
    try:
        shutil.copytree(
            result.folder, destination, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT)
        )
    except (OSError, shutil.Error) as error:
        raise HostUnfitError(f"the run could not be copied to {destination}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What became of one artifact."""

    said: str
    """What was done, as a sentence."""
    unwritten: str | None = None
    """The comment, where the token may not write it."""


def comment_on(
    github: GitHub, *, run_id: int, head_sha: str, run_url: str | None, accept_label: str | None
) -> tuple[Reported, ...]:
    """Comment on the pull request of a workflow run, from what the run left; all of that is taken for data.

    Args:
        github: The repository.
        run_id: The run that measured.
        head_sha: The commit that it measured, as GitHub says.
        run_url: Page of the run.
        accept_label: The label that accepts a slowdown.

    Raises:
        StoreError: There is no artifact of a gate, or it holds no result that perfguard wrote.
        GitHubError: GitHub could not be asked.
    """
    pull = github.open_pull_request(head_sha)
    if pull is None:
        return (Reported(said=f"no open pull request has {head_sha[:12]} as its newest commit; nothing to comment on"),)
    latest = latest_artifacts(github.artifacts(run_id))
    if not latest:
        raise StoreError(f"workflow run {run_id} left no artifact named perfguard-NAME-ATTEMPT; did its gate run?")
    reported = []
    for name, (attempt, artifact) in sorted(latest.items()):
        with github.downloaded(artifact) as file:
            result = result_in_zip(file, source=f"artifact {artifact.name}")
        context = CommentContext(
            marker=name,
            reproduce=reproducing(result),
            report_url=run_url,
            accept_label=accept_label,
            accepted_by=accept_label if accept_label in pull.labels else None,
            from_fork=pull.from_fork,
        )
        body = render_comment(result, context)
        run = RunNumber(run_id=run_id, attempt=attempt)
        try:
            said = put_comment(github, pull.number, marker_line=marker_line(name), body=body, run=run)
            reported.append(Reported(said=said))
        except NotPermittedError as error:
            hint = "give this job `permissions: pull-requests: write`; the comment is in the job's summary instead"
            reported.append(Reported(said=f"no comment on #{pull.number}: {error}; {hint}", unwritten=body))
    return tuple(reported)


def latest_artifacts(artifacts: Sequence[Artifact]) -> dict[str, tuple[int, Artifact]]:
    """The last attempt of each name; expired ones are gone."""
    latest: dict[str, tuple[int, Artifact]] = {}
    for artifact in artifacts:
        found = _ARTIFACT.fullmatch(artifact.name)
        if found is None or artifact.expired:
            continue
        name, attempt = found["name"], int(found["attempt"])
        if name not in latest or attempt > latest[name][0]:
            latest[name] = (attempt, artifact)
    return latest


def reproducing(result: RunResult) -> str | None:
    """The command that measures the same again; None where the result is of something else than two revisions."""
    arms = [result.arms[role].text for role in ("baseline", "candidate") if role in result.arms]
    if len(arms) != 2 or not all(re.fullmatch(r"git:[0-9a-f]{40}", text) for text in arms):
        return None
    suite = f" --suite {result.suite}" if re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", result.suite) else ""
    return f"perfguard compare --baseline {arms[0]} --candidate {arms[1]}{suite}"


def summary_of(result: RunResult, context: CommentContext, destination: Path, *, limit: int) -> str:
    """The job's summary, also kept beside the run."""
    text = render_comment(result, context, limit=limit)
    (destination / _SUMMARY_NAME).write_text(text, encoding="utf-8")
    return text
