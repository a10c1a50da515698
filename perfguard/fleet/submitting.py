"""From what somebody asks for to work and its shards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from perfguard.benchmarks.selection import suite_cases
from perfguard.config import LoadedConfig
from perfguard.errors import ArmError, UsageError
from perfguard.fleet.hosts import read_hosts
from perfguard.history.database import Database
from perfguard.history.project_names import project_name
from perfguard.records.fleet import Engine, Fitness, GateWork
from perfguard.runner.arms.credentials import without_password
from perfguard.runner.arms.git import path_in_repository, resolve_commit, run_git, top_level
from perfguard.runner.suites import budget_of, load_catalog, selected_cases


def commit_of(loaded: LoadedConfig, revision: str) -> str:
    """The commit of a revision in the project's repository. Raises UsageError: there is none."""
    repository = top_level(loaded.project)
    if repository is None:
        raise UsageError(f"{loaded.project} is in no git repository, so {revision!r} names no commit")
    return resolve_commit(repository, revision)


def work_of(
    loaded: LoadedConfig,
    commits: tuple[str, str],
    *,
    suite: str | None,
    budget_s: float | None,
    repository: str | None,
    shared_folder: Path | None,
    arguments: tuple[str, ...],
) -> GateWork:
    """The gate of a candidate against a baseline, as every host can run it; `commits` are baseline and candidate.

    Raises:
        UsageError: There is no such suite, or the repository's URL has a password.
    """
    if repository is not None and repository != without_password(repository):
        raise UsageError(
            "--repository has a password, which everybody could read who sees the queue; leave it out: hosts clone "
            "with git's credentials of their own"
        )
    chosen, catalog = suite or loaded.config.suite, load_catalog(loaded)
    suite_cases(catalog, chosen)
    return GateWork(
        project=project_name(loaded),
        repository=repository or repository_of(loaded),
        folder=path_in_repository(loaded.project).strip("/"),
        baseline=commits[0],
        candidate=commits[1],
        suite=chosen,
        budget_s=budget_s or budget_of(catalog, loaded, chosen),
        arguments=arguments,
        shared_folder=str((shared_folder or loaded.project / ".perfguard" / "fleet").absolute()),
    )


def out_of_reach(loaded: LoadedConfig, work: GateWork) -> str | None:
    """Why hosts may not find the candidate where they clone it from, as far as this clone knows."""
    if "://" not in work.repository and "@" not in work.repository:
        return (
            f"hosts clone {work.repository}, a folder, which other machines may not have; give --repository URL, or "
            "set the remote `origin` to one"
        )
    if work.repository == repository_of(loaded) and not run_git(
        loaded.project, "for-each-ref", "--count=1", f"--contains={work.candidate}", "refs/remotes", "refs/tags"
    ):
        return f"no branch of a remote has {work.candidate[:12]}, as far as this clone knows; push it"
    return None


def repository_of(loaded: LoadedConfig) -> str:
    """What hosts clone: git's remote `origin` without its password, else the repository's own path."""
    with suppress(ArmError):
        remote = run_git(loaded.project, "config", "--get", "remote.origin.url").decode(errors="replace").strip()
        remote = without_password(remote)
        return remote if "://" in remote or "@" in remote else str((loaded.project / remote).resolve())
    return str(top_level(loaded.project) or loaded.project)


def groups_of(
    loaded: LoadedConfig, *, suite: str | None, patterns: tuple[str, ...], shards: int
) -> tuple[tuple[str, ...], ...]:
    """Cases of each shard, dealt out in turns so that neighbours, which are alike, go to different ones.

    Raises:
        NothingSelectedError: No case matches.
    """
    if shards == 1 and not patterns:
        return ((),)
    cases = selected_cases(load_catalog(loaded), suite=suite or loaded.config.suite, patterns=patterns)
    if shards == 1:
        return (patterns,)
    dealt = (tuple(case.id for case in cases[start::shards]) for start in range(shards))
    return tuple(group for group in dealt if group)


def classes_of(database: Database, given: Sequence[str], engine: Engine) -> tuple[str, ...]:
    """The machine classes that were asked for; else each that a fit host is of.

    Raises:
        UsageError: None was asked for, and no host is fit.
    """
    if given:
        return tuple(dict.fromkeys(given))
    fit = [host.machine_id for host in read_hosts(database) if host.fitness is Fitness.FIT]
    if not fit:
        raise UsageError(
            "no fit host is registered; start `perfguard fleet worker` on one, or name --class"
            if engine is Engine.QUEUE
            else "name --class, a feature of the nodes to measure on; `sinfo -o %f` lists them"
        )
    return tuple(dict.fromkeys(fit))
