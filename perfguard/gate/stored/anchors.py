"""Anchors: freezing one, finding it, and pairing with its revision."""

from __future__ import annotations

from dataclasses import dataclass
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
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.session import Request
from perfguard.store.anchors import anchor_place, files_of, freeze, has_anchor, remove


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorArm:
    """The revision that `--anchor` compares with."""

    spec: ArmSpec
    """The arm."""
    since: str
    """Its day, ISO 8601."""
    origin: str
    """Where it was found, for the note."""


def freeze_anchor(
    loaded: LoadedConfig, source: str | None, machine_id: str, *, replace: bool
) -> tuple[Path, BaselineInfo]:
    """Freeze this machine's baseline of the configured suite; gives the anchor's directory and where it comes from.

    Args:
        loaded: The configuration.
        source: `git:REV` for the baseline as it was committed there; None for the present one.
        machine_id: This machine's.
        replace: Whether an anchor that exists may be replaced.

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
    anchor = _anchor_arm(request.loaded, request.fingerprint.machine_id)
    margin = request.loaded.config.anchor_margin
    note = fact("drift.paired", since=anchor.since, origin=anchor.origin, margin_ratio=margin)
    return compare_arms(request, anchor.spec, candidate, notes=(note,), is_anchor=True)


def _anchor_arm(loaded: LoadedConfig, machine_id: str) -> AnchorArm:
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
        return AnchorArm(spec=spec, since=git.date_of(repository, commit), origin=configured)
    anchor = anchor_of(loaded, _place(loaded, machine_id))
    if anchor is None:
        raise UsageError(
            f"there is no anchor of suite {loaded.config.suite!r} for this machine; run `perfguard baseline anchor`, "
            'or name a revision in the configuration: anchor = "git:REV"'
        )
    if anchor.info.commit is None:
        raise StoreError("the stored anchor names no commit; freeze a baseline that was recorded in a repository")
    commit_id = commit_of(loaded, anchor) or anchor.info.commit  # which git then says it does not know
    return AnchorArm(
        spec=parse_arm(f"git:{commit_id}"),
        since=anchor.info.created_at[:10],
        origin=f"stored for this machine, commit {commit_id[:12]}",
    )


def _place(loaded: LoadedConfig, machine_id: str) -> Path:
    return store_of(loaded).place(machine_id, loaded.config.suite)
