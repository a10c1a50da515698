"""The rules of a gate as a revision has them, for a candidate that could have changed them to its own advantage."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perfguard.config import LoadedConfig, has_settings, load_config
from perfguard.errors import ArmError, NoRulesYetError, UsageError
from perfguard.records.facts import Fact, Severity, fact
from perfguard.runner.arms import git

_SHOWN = 5


class TrustedRules(Struct, frozen=True, kw_only=True):
    """What a gate goes by."""

    loaded: LoadedConfig  # Benchmarks, baselines and allow-list are read where its `rules` says
    notes: tuple[Fact, ...] = ()  # What the reader should know


@contextlib.contextmanager
def policy_of_revision(
    start: Path, revision: str, environment: Mapping[str, str], options: Mapping[str, Any], *, candidate: str = "HEAD"
) -> Iterator[TrustedRules]:
    """Configuration, benchmarks, baselines and allow-list as a revision has them; options still come on top.

    Notes name what the revision `candidate` would change of them. They are checked out for as long as the context
    lasts. The project, whose revisions are measured and whose `.perfguard` takes the run, stays where it is.

    Raises:
        ArmError: There is no repository, or no such revision.
        ConfigError: The revision's configuration is wrong.
        UsageError: What is checked out brings files of `.perfguard`.
        NoRulesYetError: The revision has no settings; the candidate brings the first.
    """
    repository = git.top_level(start)
    if repository is None:
        raise ArmError(f"--policy-from needs a git repository, and {start} is not inside one")
    commit = git.resolve_commit(repository, revision)
    require_own_folder(repository, commit, candidate)
    place = repository / ".perfguard" / "policy" / f"{commit[:16]}-{os.getpid()}"
    place.parent.mkdir(parents=True, exist_ok=True)
    git.add_worktree(repository, place, commit)
    try:
        below = start.resolve().relative_to(repository.resolve())
        inside = place / below if (place / below).is_dir() else place
        if not has_settings(inside) and git.run_git(
            repository, "ls-tree", "--name-only", candidate, "--", (below / "perfguard.toml").as_posix()
        ):
            raise NoRulesYetError(
                f"{revision[:40]} has no perfguard.toml, and the change brings the first one: nothing is gated yet. "
                "Once it is merged, gates take their rules from there"
            )
        loaded = load_config(inside, environment, options)
        project = repository / loaded.project.relative_to(place.resolve())
        yield TrustedRules(
            loaded=replace(loaded, project=project, policy=loaded.project),
            notes=_notes(repository, commit, candidate, loaded, place.resolve()),
        )
    finally:
        git.remove_worktree(repository, place)


def require_own_folder(start: Path, older: str, newer: str) -> None:
    """Refuse, by a UsageError, a change that brings files of `.perfguard`, such as a ready environment, or links."""
    repository = git.top_level(start) or start
    specs = [f":(top,glob)**/.perfguard{ending}" for ending in ("", "/**")]
    changed = git.run_git(repository, *git.NAMES_OF_CHANGES, older, newer, "--", *specs)
    if changed:
        name = changed.split(b"\0")[0].decode(errors="replace")
        raise UsageError(f"the change brings {name[:80]!r}, in a folder that is perfguard's own; take it out")


def _notes(repository: Path, commit: str, candidate: str, loaded: LoadedConfig, place: Path) -> tuple[Fact, ...]:
    """Which rules count, and which of them the candidate would change."""
    rules = fact("run.rules_of_revision", commit=commit[:12])
    inside, config = loaded.project.relative_to(place), loaded.config
    names = ("perfguard.toml", "pyproject.toml", config.baselines, *([config.asv] if config.asv else ()))
    changed = git.changed_files(repository, commit, candidate, [inside / name for name in names])
    patterns = [*config.benchmarks, *config.pytest, *config.timer, *(["**/conftest.py"] if config.pytest else ())]
    if patterns:
        matching = [(inside / pattern).as_posix() for pattern in patterns]
        changed += git.changed_matches(repository, commit, candidate, matching)
    if not changed:
        return (rules,)
    changed = tuple(dict.fromkeys(changed))
    shown, more = changed[:_SHOWN], len(changed) - len(changed[:_SHOWN])
    return (rules, fact("run.rules_changed", severity=Severity.GRAVE, files=shown, more=more or None))
