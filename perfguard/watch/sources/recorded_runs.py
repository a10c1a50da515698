"""The runs of a project in one line each, read from the first and last lines of their events."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfguard.plain_files import open_plain

_FIRST_BYTES = 256 * 1024  # Enough for the start of a run of a thousand cases
_LAST_BYTES = 64 * 1024  # Enough for the end of a run
_LATEST_S = 1e11  # Seconds since the epoch; a recording may hold any number


class RecordedRun(Struct, frozen=True, kw_only=True):
    """A run that is recorded in a folder of this project."""

    name: str  # Of its folder
    started_at: float | None  # Seconds since the epoch; None where the recording does not tell
    command: tuple[str, ...]  # As it was typed
    outcome: str | None  # What it came to, such as `pass`; None where it has not ended, or was killed


def recorded_runs(runs: Path, *, most: int = 500) -> tuple[RecordedRun, ...]:
    """The newest runs in a folder, newest first; what cannot be read is left out."""
    names = sorted((path.parent.name for path in runs.glob("*/events.jsonl")), reverse=True)
    found = (_recorded(runs / name) for name in names[:most])
    return tuple(run for run in found if run is not None)


def _recorded(folder: Path) -> RecordedRun | None:
    with suppress(OSError, ValueError):
        file = open_plain(folder / "events.jsonl")
        if file is None:
            return None
        with file:
            started = _event(file.read(_FIRST_BYTES).split(b"\n", 1)[0])
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            ended = _event(file.read(_LAST_BYTES).rstrip(b"\n").rpartition(b"\n")[2])
        command, moment = started.get("command"), started.get("t_wall")
        outcome = ended.get("outcome") if ended.get("event") == "run_finished" else None
        return RecordedRun(
            name=folder.name,
            started_at=float(moment) if isinstance(moment, (int, float)) and abs(moment) < _LATEST_S else None,
            command=tuple(map(str, command)) if isinstance(command, list) else (),
            outcome=outcome if isinstance(outcome, str) else None,
        )
    return None


def _event(line: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}
