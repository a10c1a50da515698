"""Finding stored baselines, by machine, directory or revision, and freezing them as anchors."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from perfguard.config import LoadedConfig
from perfguard.errors import ArmError, StoreError
from perfguard.profile.libraries.implementations import isa_class
from perfguard.records.record import BaselineInfo, StoredBaseline, StoredOpCounts
from perfguard.records.steps.ops import OpCounts
from perfguard.runner.arms import git
from perfguard.store.baselines import (
    FILES,
    OPTIONAL_FILES,
    BaselineStore,
    anchor_place,
    files_of,
    freeze,
    has_anchor,
    remove,
)
from perfguard.store.op_counts import load_op_counts, op_counts_file


class CountedBaseline(Struct, frozen=True, kw_only=True):
    """A baseline with what its steps execute."""

    baseline: StoredBaseline
    op_counts: Mapping[str, OpCounts] = field(default_factory=dict)
    """By case id; cases that were not counted are missing."""


def store_of(loaded: LoadedConfig) -> BaselineStore:
    """The project's baselines."""
    return BaselineStore(loaded.rules / loaded.config.baselines)


def find_stored(loaded: LoadedConfig, suite: str, machine_id: str) -> Path | None:
    """Directory of the baseline of a machine and suite; None where there is none."""
    store = store_of(loaded)
    return store.place(machine_id, suite) if store.exists(machine_id, suite) else None


def require_stored(loaded: LoadedConfig, suite: str, machine_id: str) -> Path:
    """Directory of the baseline of this machine and suite.

    Raises:
        StoreError: There is none; names the machines that there are baselines for.
    """
    place = find_stored(loaded, suite, machine_id)
    if place is None:
        stored = sorted(store_of(loaded).stored())
        here = [repr(path.name) for path in stored if path.parent.name == machine_id]
        others = sorted({path.parent.name for path in stored} - {machine_id})
        known = f"; of this machine there is {', '.join(here)} (name it with --suite)" if here else ""
        known += f"; baselines exist for {', '.join(others)}" if others else ""
        raise StoreError(
            f"no baseline of suite {suite!r} is stored for this machine ({machine_id}){known}; run `perfguard "
            "baseline update`, or compare with a revision: --baseline git:HEAD"
        )
    return place


def commit_of(loaded: LoadedConfig, stored: StoredBaseline) -> str | None:
    """The commit that holds a baseline's code in this clone; None where there is none.

    That is the one that was measured, or where a squash or a rebase has replaced it, one with the same files.
    """
    repository, info = git.top_level(loaded.project), stored.info
    if info.commit is None or repository is None:
        return None
    with contextlib.suppress(ArmError):
        return git.resolve_commit(repository, info.commit)
    folder = folder_of_baselines(loaded, repository)
    if info.code_id is None or folder is None:
        return None
    with contextlib.suppress(ArmError):
        return git.find_code(repository, info.code_id, without=folder, since=info.created_at)
    return None


def folder_of_baselines(loaded: LoadedConfig, repository: Path) -> Path | None:
    """Where the project keeps its baselines, relative to the repository; None where that is elsewhere."""
    with contextlib.suppress(ValueError):
        return store_of(loaded).root.resolve().relative_to(repository.resolve())
    return None


def op_counts_of_another_machine(loaded: LoadedConfig, suite: str, machine_id: str, isa: str) -> StoredOpCounts | None:
    """What another machine counted of a suite, if its libraries chose from the same instruction sets; else None.

    Of several the one that was recorded last. Times of another machine say nothing here, but counts do. `isa` is the
    widest instruction set of this machine, in oneDNN's words.
    """
    store = store_of(loaded)
    found: list[StoredOpCounts] = []
    for place in store.stored():
        if place.name != suite or place.parent.name == machine_id:
            continue
        with contextlib.suppress(StoreError):  # what is broken of another machine must not end this one's gate
            counted = load_op_counts(op_counts_file(place)).items()
            alike = {name: counts for name, counts in counted if isa_class(counts.isa_class) == isa_class(isa)}
            if alike:
                found.append(StoredOpCounts(info=store.load(place).info, op_counts=alike))
    return max(found, key=lambda stored: stored.info.created_at, default=None)


def named_baseline(loaded: LoadedConfig, name: str | None, machine_id: str) -> CountedBaseline:
    """A baseline by directory, by revision (this machine's, as committed there), or this machine's own for None.

    Raises:
        StoreError: There is none, or it is corrupt.
        ArmError: Git knows no such revision.
    """
    with contextlib.ExitStack() as stack:
        if name is None:
            place = require_stored(loaded, loaded.config.suite, machine_id)
        elif not (loaded.project / name).is_dir():
            place = stack.enter_context(_written(committed_files(loaded, name, machine_id)))
        else:
            place = loaded.project / name
        return CountedBaseline(baseline=store_of(loaded).load(place), op_counts=load_op_counts(op_counts_file(place)))


def committed_files(loaded: LoadedConfig, name: str, machine_id: str) -> dict[str, bytes]:
    """The files of this machine's baseline as the revision `name` holds them, which may begin with `git:`.

    Raises:
        StoreError: It was not committed there.
        ArmError: Git knows no such revision.
    """
    repository = git.top_level(loaded.project)
    if repository is None:
        raise StoreError(f"{name}: {loaded.project} is not inside a git repository")
    relative = store_of(loaded).place(machine_id, loaded.config.suite).resolve().relative_to(repository.resolve())
    commit = git.resolve_commit(repository, name.removeprefix("git:"))
    files = {}
    for file in (*FILES, *OPTIONAL_FILES):
        path = relative / file
        try:
            files[file] = git.run_git(repository, "show", f"{commit}:{path.as_posix()}")
        except ArmError:
            if file in FILES:
                raise StoreError(f"{name} holds no {path}; was this machine's baseline committed there?") from None
    return files


def freeze_anchor(
    loaded: LoadedConfig, source: str | None, machine_id: str, *, replace: bool
) -> tuple[Path, BaselineInfo]:
    """Freeze this machine's baseline of the configured suite; gives the anchor's directory and where it comes from.

    The source is the revision whose baseline it was, None for the present one. Only with `replace` an anchor that
    exists is replaced.

    Raises:
        StoreError: There is no such baseline, or it is corrupt.
        UsageError: There is an anchor already.
    """
    if source is None:
        files = files_of(require_stored(loaded, loaded.config.suite, machine_id))
    else:
        files = committed_files(loaded, source, machine_id)
    with _written(files) as place:
        info = store_of(loaded).load(place).info
    return freeze(files, store_of(loaded).place(machine_id, loaded.config.suite), replace=replace), info


def remove_anchor(loaded: LoadedConfig, machine_id: str) -> Path:
    """Remove the anchor of this machine and the configured suite; gives its directory.

    Raises:
        StoreError: There is none.
    """
    return remove(store_of(loaded).place(machine_id, loaded.config.suite))


def anchor_of(loaded: LoadedConfig, place: Path) -> StoredBaseline | None:
    """The anchor of the baseline at `place`; None where it has none.

    Raises:
        StoreError: It is corrupt.
    """
    return store_of(loaded).load(anchor_place(place)) if has_anchor(place) else None


@contextlib.contextmanager
def _written(files: Mapping[str, bytes]) -> Iterator[Path]:
    """A folder that holds the files, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="perfguard-") as scratch:
        for name, content in files.items():
            (Path(scratch) / name).write_bytes(content)
        yield Path(scratch)
