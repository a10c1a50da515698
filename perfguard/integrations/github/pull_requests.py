"""A gate on a pull request: what is compared with what, what the job leaves behind; and proposals of baselines."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from perfguard.config import LoadedConfig
from perfguard.errors import ArmError, HostUnfitError, UsageError
from perfguard.integrations.github.api import GitHub
from perfguard.records.result import ArmSummary, RunResult
from perfguard.report.comment.comment import CommentContext, render_comment
from perfguard.runner.arms import git
from perfguard.runner.arms.credentials import files_found, variables_found
from perfguard.units import format_count

PARENT, MERGE_BASE = "parent", "merge-base"
_CHECKOUTS = "arms"  # What folders with checkouts begin with
_MOST_BYTES = 32 * 1024**2  # Of a proposed baseline


class Revisions(Struct, frozen=True, kw_only=True):
    """Both sides of a pull request, as full commit ids: what is judged, and what it is compared with."""

    baseline: str
    candidate: str


def require_no_token(environment: Mapping[str, str]) -> None:
    """Refuse, by a UsageError, to measure where measured code could take a credential of the job."""
    found = variables_found(environment)
    if found:
        raise UsageError(
            f"{', '.join(found)} in the environment of a step that runs a pull request's code: measured code could act "
            "with it; drop it from the step's env (and `id-token: write` from the job's permissions)"
        )


def require_no_credentials(start: Path) -> None:
    """Refuse, by a UsageError, to measure where measured code could read a credential from a file."""
    repository = git.top_level(start)
    found = list(files_found(Path.home(), None if repository is None else repository / ".git"))
    if found:
        raise UsageError(
            f"{', '.join(found)} can be read by the pull request's code and may hold a credential: install bubblewrap, "
            "which hides it, or remove it (`persist-credentials: false` for actions/checkout)"
        )


def revisions_of(start: Path, against: str, base_ref: str | None) -> Revisions:
    """What a pull request is compared with: by default the first parent of the merge that GitHub checks out.

    `against` is `parent`, `merge-base` with the branch `base_ref`, or a revision.

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


def require_fresh(destination: Path, start: Path) -> None:
    """Refuse, by a UsageError, a place for the run that the checked-out revision has filled, or that is outside."""
    place = start.resolve() / destination
    led = place.resolve()
    if led != place and not destination.is_absolute():
        raise UsageError(f"--output-dir {destination} leads to {led} by a link; name another folder")
    if place.is_symlink() or (place.exists() and (not place.is_dir() or any(place.iterdir()))):
        raise UsageError(f"--output-dir {destination} is there already and would be mixed with the run; name another")


def keep_run(result: RunResult, destination: Path) -> None:
    """Copy what a run left to where the job uploads it from; HostUnfitError where it cannot be written.

    Checkouts, and what is no plain file, stay behind.
    """
    try:
        shutil.copytree(result.folder, destination, dirs_exist_ok=True, ignore=_left_out)
    except (OSError, shutil.Error) as error:
        raise HostUnfitError(f"the run could not be copied to {destination}: {error}") from error


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Checkouts; and links, pipes and sockets, which measured code may have left where it may write."""
    paths = {name: Path(folder) / name for name in names}
    plain = {name for name, path in paths.items() if not path.is_symlink() and (path.is_dir() or path.is_file())}
    checkouts = {name for name in plain if name.startswith(_CHECKOUTS) and paths[name].is_dir()}
    return {*names} - (plain - checkouts)


def reproducing(result: RunResult, revisions: Revisions | None = None) -> str | None:
    """The command that measures the same again; None where the result is of something else than two revisions.

    Where the result is a stranger's, the `revisions` come from GitHub.
    """
    arms = [_revision(result.arms[role]) for role in ("baseline", "candidate") if role in result.arms]
    if revisions is not None:
        arms = [f"git:{revisions.baseline}", f"git:{revisions.candidate}"]
    if len(arms) != 2 or not all(re.fullmatch(r"git:[0-9a-f]{40}", text) for text in arms):
        return None
    suite = f" --suite {result.suite}" if re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", result.suite) else ""
    return f"perfguard compare --baseline {arms[0]} --candidate {arms[1]}{suite}"


def _revision(arm: ArmSummary) -> str:
    """The arm by its commit, where it was measured as committed and with nothing else about it."""
    is_plain = re.fullmatch(r"git:[\w./~^@{}-]+|dir:\.", arm.text) is not None
    is_clean = arm.source_id is not None and "+" not in arm.source_id
    return f"git:{arm.commit}" if is_plain and is_clean and arm.commit else arm.text


def summary_of(result: RunResult, context: CommentContext, destination: Path, *, limit: int) -> str:
    """The job's summary, also kept beside the run."""
    text = render_comment(result, context, limit=limit)
    (destination / "summary.md").write_text(text, encoding="utf-8")
    return text


def propose_baseline(loaded: LoadedConfig, github: GitHub, *, into: str, branch: str) -> tuple[int, int] | None:
    """Propose what `perfguard baseline update` changed below the baselines, by GitHub's API: nothing is pushed.

    The newest commit of the branch `into` is the one that is checked out; `branch` is made, or moved. Gives the number
    of the pull request and of the changed files; None where nothing changed.

    Raises:
        ArmError: There is no repository.
        UsageError: The files are too many for a commit.
        GitHubError: GitHub could not be asked, or refused.
    """
    repository = git.top_level(loaded.project)
    if repository is None:
        raise ArmError(f"{loaded.project} is not inside a git repository")
    folder = (loaded.project / loaded.config.baselines).resolve().relative_to(repository.resolve())
    paths = {name: repository / name for name in git.uncommitted_files(repository, folder)}
    files = {name: path.read_bytes() if path.is_file() else None for name, path in paths.items()}
    if not files:
        return None
    total = sum(map(len, filter(None, files.values())))
    if total > _MOST_BYTES:
        raise UsageError(f"the new baseline has {total} bytes, more than {_MOST_BYTES}; it should be some hundred kB")
    parent = git.resolve_commit(repository, "HEAD")
    suite = loaded.config.suite
    title = f"New performance baseline of suite {suite}"
    machines = ", ".join(sorted({Path(name).parent.parent.name for name in files}))
    message = f"{title}\n\nMeasured on {machines}, at {parent}.\n"
    listed = "\n".join(f"- `{name}`" for name in sorted(files)[:50])
    body = (
        f"`perfguard baseline update --suite {suite}` measured {parent} again and changed "
        f"{format_count(len(files), 'file')}:\n\n{listed}\n\n"
        f"`perfguard baseline diff git:{parent}` on this branch shows what became slower or faster. A baseline that is "
        "merged is what later gates call unchanged: review it like code.\n"
    )
    github.commit(branch=branch, parent=parent, message=message, files=files)
    return github.propose(branch=branch, into=into, title=title, body=body), len(files)
