"""`show`: a recorded run, found by its name, with the verdict that it had."""

from __future__ import annotations

import contextlib
from pathlib import Path

from perfguard.config import LoadedConfig
from perfguard.errors import StoreError
from perfguard.records.result import RunResult
from perfguard.store.artifacts import RESULT_NAME, parse_result
from perfguard.watch.sources.event_sources import read_beside


def runs_of(loaded: LoadedConfig) -> Path:
    """The folder that a project's runs are recorded in; need not exist."""
    return loaded.project / ".perfguard" / "runs"


def find_run(loaded: LoadedConfig, name: str | None) -> Path:
    """Folder of a run by its id or path; the latest one for None.

    Raises:
        StoreError: There is none.
    """
    runs = runs_of(loaded)
    if name is not None:
        for place in (runs / name, loaded.project / name):
            if (place / "events.jsonl").is_file():
                return place
        raise StoreError(
            f"there is no run {name!r} in {runs}, and no events.jsonl at that path; without a name the latest is taken"
        )
    latest = latest_run(loaded)
    if latest is None:
        raise StoreError(f"no run is recorded in {runs}; `perfguard gate` makes one")
    return latest


def latest_run(loaded: LoadedConfig) -> Path | None:
    """Folder of the latest run; None where none is recorded."""
    return max((path.parent for path in runs_of(loaded).glob("*/events.jsonl")), default=None)


def show_run(loaded: LoadedConfig, folder: Path) -> RunResult:
    """The result that a run had; judged now from its events where it left none.

    Raises:
        StoreError: Neither can be read.
    """
    content = read_beside(folder, RESULT_NAME)
    with contextlib.suppress(StoreError):
        if content is not None:
            return parse_result(content, source=RESULT_NAME)
    from perfguard.gate.rejudge import rejudge_run  # with all of the statistics, which a finished run needs no more

    return rejudge_run(loaded, folder)
