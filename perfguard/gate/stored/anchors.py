"""Anchors: freezing one, finding it, and pairing with its revision."""

from __future__ import annotations

from pathlib import Path

from perfguard.config import LoadedConfig
from perfguard.errors import ArmError, ConfigError, StoreError, UsageError
from perfguard.gate.paired.compare_arms import compare_arms
from perfguard.gate.stored.lookup import commit_of, committed_files, loaded_files, require_stored, store_of
from perfguard.records.facts import fact
from perfguard.records.plan import ArmSpec
from perfguard.records.record import BaselineInfo, StoredBaseline
from perfguard.records.result import RunResult
from perfguard.runner.arms import git
from perfguard.runner.arms.arm_spec import parse_arm
from perfguard.runner.session import Request
from perfguard.store.anchors import anchor_place, files_of, freeze, has_anchor, remove


def freeze_anchor(
    loaded: LoadedConfig, source: str | None, machine_id: str, *, replace: bool
) -> tuple[Path, BaselineInfo]:
    """Freeze this machine's baseline of the configured suite; gives the anchor's directory and where it comes from.

    The source is `git:REV` for the baseline as it was committed there, None for the present one. Only with `replace` an
    anchor that exists is replaced.

    Raises:
        StoreError: There is no such baseline, or it is corrupt.
        UsageError: There is an anchor already, or `source` is no revision.
    """
    if source is not None and not source.startswith("git:"):
        raise UsageError(f"--from {source!r} is no revision; write git:REV")
    if source is None:
        files = files_of(require_stored(loaded, loaded.config.suite, machine_id))
    else:
        files = committed_files(loaded, source, machine_id)
    info = loaded_files(loaded, files).info
    return freeze(files, _place(loaded, machine_id), replace=replace), info


def remove_anchor(loaded: LoadedConfig, machine_id: str) -> Path:
    """Remove the anchor of this machine and the configured suite; gives its directory.

    Raises:
        StoreError: There is none.
    """
    return remove(_place(loaded, machine_id))


def anchor_of(loaded: LoadedConfig, place: Path) -> StoredBaseline | None:
    """The anchor of the baseline at `place`; None where it has none.

    Raises:
        StoreError: It is corrupt.
    """
    return store_of(loaded).load(anchor_place(place)) if has_anchor(place) else None


def gate_against_anchor(request: Request, candidate: ArmSpec) -> RunResult:
    """Pair the candidate with the anchor's revision, and judge by the anchor's margin.

    Raises:
        UsageError: No anchor is configured or stored.
        PerfguardError: The run could not be made.
    """
    spec, since, origin = _anchor_arm(request.loaded, request.fingerprint.machine_id)
    note = fact("drift.paired", since=since, origin=origin, margin_ratio=request.loaded.config.anchor_margin)
    return compare_arms(request, spec, candidate, notes=(note,), is_anchor=True)


def _anchor_arm(loaded: LoadedConfig, machine_id: str) -> tuple[ArmSpec, str, str]:
    """The revision that `--anchor` compares with, its day (ISO 8601), and where it was found."""
    repository = git.top_level(loaded.project)
    if repository is None:
        raise ArmError(f"--anchor needs a git repository, and {loaded.project} is not inside one")
    configured = loaded.config.anchor
    if configured is not None:
        spec = parse_arm(configured)
        if spec.revision is None or configured != f"git:{spec.revision}":
            origin = loaded.origins.get("anchor", "built-in")
            raise ConfigError(f"{origin}: anchor = {configured!r} must be a revision alone, written git:REV")
        commit = git.resolve_commit(repository, spec.revision)
        return spec, git.date_of(repository, commit), configured
    anchor = anchor_of(loaded, _place(loaded, machine_id))
    if anchor is None:
        raise UsageError(
            f"there is no anchor of suite {loaded.config.suite!r} for this machine; run `perfguard baseline anchor`, "
            'or name a revision in the configuration: anchor = "git:REV"'
        )
    if anchor.info.commit is None:
        raise StoreError("the stored anchor names no commit; freeze a baseline that was recorded in a repository")
    commit_id = commit_of(loaded, anchor) or anchor.info.commit  # which git then says it does not know
    origin = f"stored for this machine, commit {commit_id[:12]}"
    return parse_arm(f"git:{commit_id}"), anchor.info.created_at[:10], origin


def _place(loaded: LoadedConfig, machine_id: str) -> Path:
    return store_of(loaded).place(machine_id, loaded.config.suite)
