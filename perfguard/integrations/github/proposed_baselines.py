"""A new baseline as a pull request of its own, by GitHub's API: no credentials in the clone, nothing to push."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfguard.config import LoadedConfig
from perfguard.errors import ArmError, UsageError
from perfguard.integrations.github.api import GitHub
from perfguard.runner.arms import git
from perfguard.units import format_count

_MOST_BYTES = 32 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedBaseline:
    """Where the new baseline can be reviewed."""

    number: int
    """The pull request."""
    branch: str
    """Its branch."""
    files: int
    """Files that it changes."""


def propose_baseline(loaded: LoadedConfig, github: GitHub, *, into: str, branch: str) -> ProposedBaseline | None:
    """Propose what `perfguard baseline update` changed below the baselines; None where it changed nothing.

    Args:
        loaded: The configuration.
        github: The repository.
        into: Branch that it is proposed for; its newest commit is the one that is checked out.
        branch: Branch that takes the commit; made, or moved.

    Raises:
        ArmError: There is no repository.
        UsageError: The files are too many for a commit.
        GitHubError: GitHub could not be asked, or refused.
    """
    repository = git.top_level(loaded.project)
    if repository is None:
        raise ArmError(f"{loaded.project} is not inside a git repository")
    folder = (loaded.project / loaded.config.baselines).resolve().relative_to(repository.resolve())
    files = {name: _content(repository / name) for name in git.uncommitted_files(repository, folder)}
    if not files:
        return None
    total = sum(len(content) for content in files.values() if content is not None)
    if total > _MOST_BYTES:
        raise UsageError(f"the new baseline has {total} bytes, more than {_MOST_BYTES}; it should be some hundred kB")
    parent = git.resolve_commit(repository, "HEAD")
    suite = loaded.config.suite
    title = f"New performance baseline of suite {suite}"
    github.commit(branch=branch, parent=parent, message=_message(title, parent, files), files=files)
    number = github.propose(branch=branch, into=into, title=title, body=_body(suite, parent, files))
    return ProposedBaseline(number=number, branch=branch, files=len(files))


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _message(title: str, parent: str, files: dict[str, bytes | None]) -> str:
    machines = sorted({Path(name).parent.parent.name for name in files})
    return f"{title}\n\nMeasured on {', '.join(machines)}, at {parent}.\n"


def _body(suite: str, parent: str, files: dict[str, bytes | None]) -> str:
    listed = "\n".join(f"- `{name}`" for name in sorted(files)[:50])
    return (
        f"`perfguard baseline update --suite {suite}` measured {parent} again and changed "
        f"{format_count(len(files), 'file')}:\n\n{listed}\n\n"
        f"`perfguard baseline diff git:{parent}` on this branch shows what became slower or faster. A baseline that is "
        "merged is what later gates call unchanged: review it like code.\n"
    )
