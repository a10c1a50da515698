"""Finding stored baselines: this machine's own, another one by directory, or one as a revision holds it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from perfguard.config import LoadedConfig
from perfguard.errors import ArmError, StoreError
from perfguard.gate.stored.changes import CountedBaseline
from perfguard.profile.libraries.implementations import isa_class
from perfguard.records.record import StoredBaseline, StoredOpCounts
from perfguard.runner.arms import git
from perfguard.store.baselines import FILES, OPTIONAL_FILES, BaselineStore
from perfguard.store.op_counts import load_op_counts, op_counts_file


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

    Of several the one that was recorded last. Times of another machine say nothing here, but counts do.

    Args:
        loaded: The configuration.
        suite: The suite.
        machine_id: This machine's.
        isa: The widest instruction set of this machine, in oneDNN's words.
    """
    store = store_of(loaded)
    found: list[StoredOpCounts] = []
    for place in store.stored():
        if place.name != suite or place.parent.name == machine_id:
            continue
        with contextlib.suppress(StoreError):  # what is broken of another machine must not end this one's gate
            op_counts = load_op_counts(op_counts_file(place))
            alike = {
                name: counts for name, counts in op_counts.items() if isa_class(counts.isa_class) == isa_class(isa)
            }
            if alike:
                found.append(StoredOpCounts(info=store.load(place).info, op_counts=alike))
    return max(found, key=lambda stored: stored.info.created_at, default=None)


def named_baseline(loaded: LoadedConfig, name: str | None, machine_id: str) -> CountedBaseline:
    """A baseline by directory, by `git:REV` (this machine's, as committed there), or this machine's own for None.

    Raises:
        StoreError: There is none, or it is corrupt.
        ArmError: Git knows no such revision.
    """
    if name is None:
        return _counted(loaded, require_stored(loaded, loaded.config.suite, machine_id))
    if not name.startswith("git:"):
        return _counted(loaded, loaded.project / name)
    with _written(committed_files(loaded, name, machine_id)) as place:
        return _counted(loaded, place)


def _counted(loaded: LoadedConfig, place: Path) -> CountedBaseline:
    return CountedBaseline(baseline=store_of(loaded).load(place), op_counts=load_op_counts(op_counts_file(place)))


def committed_files(loaded: LoadedConfig, name: str, machine_id: str) -> dict[str, bytes]:
    """The files of this machine's baseline as `git:REV` holds them.

    Raises:
        StoreError: It was not committed there.
        ArmError: Git knows no such revision.
    """
    repository = git.top_level(loaded.project)
    if repository is None:
        raise StoreError(f"{name}: {loaded.project} is not inside a git repository")
    relative = store_of(loaded).place(machine_id, loaded.config.suite).resolve().relative_to(repository.resolve())
    commit = git.resolve_commit(repository, name.removeprefix("git:"))
    files = {file: _committed(repository, commit, relative / file, name) for file in FILES}
    for file in OPTIONAL_FILES:
        with contextlib.suppress(StoreError):
            files[file] = _committed(repository, commit, relative / file, name)
    return files


def loaded_files(loaded: LoadedConfig, files: Mapping[str, bytes]) -> StoredBaseline:
    """The baseline that the files make up.

    Raises:
        StoreError: One is corrupt, or of another schema.
    """
    with _written(files) as place:
        return store_of(loaded).load(place)


@contextlib.contextmanager
def _written(files: Mapping[str, bytes]) -> Iterator[Path]:
    """A folder that holds the files, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="perfguard-") as scratch:
        for name, content in files.items():
            (Path(scratch) / name).write_bytes(content)
        yield Path(scratch)


def _committed(repository: Path, commit: str, path: Path, name: str) -> bytes:
    try:
        return git.run_git(repository, "show", f"{commit}:{path.as_posix()}")
    except ArmError:
        raise StoreError(f"{name} holds no {path}; was this machine's baseline committed there?") from None
