"""`.perfguard/runs/<id>/`: everything a run leaves behind, written as it happens."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from perfguard.codec import to_json
from perfguard.errors import HostUnfitError, MeasurementError, StoreError
from perfguard.recordings import decode_event, encode_event
from perfguard.records.events import BlockFinished, Event, RunFinished, RunStarted
from perfguard.records.run import CaseFailed

_NEEDED_BYTES = 256 * 1024 * 1024  # Bundles, logs and raw files of a long run stay well below
EVENTS = "events.jsonl"
_FOLDERS = ("raw", "logs")
_SYNCED = (BlockFinished, CaseFailed, RunFinished)


class RunFolder:
    """A run's folder and its event stream."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream = (path / EVENTS).open("ab", buffering=0)
        with contextlib.suppress(OSError):  # not every network file system has locks
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held for as long as the run goes on
        self._seq = 0

    @classmethod
    def create(cls, project: Path) -> RunFolder:
        """Make a new, empty run folder.

        Raises:
            HostUnfitError: The place cannot be written, or the disk is nearly full.
        """
        runs = project / ".perfguard" / "runs"
        run_id = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + secrets.token_hex(3)
        try:
            runs.mkdir(parents=True, exist_ok=True)
            if not (marker := runs.parent / ".gitignore").exists():
                marker.write_text("*\n", encoding="utf-8")
            free = shutil.disk_usage(runs).free
            if free < _NEEDED_BYTES:
                raise HostUnfitError(
                    f"only {free // 1024**2} MiB are free at {runs}; a run needs {_NEEDED_BYTES // 1024**2} MiB: free "
                    "some, or remove old runs there"
                )
            for name in _FOLDERS:
                (runs / run_id / name).mkdir(parents=True)
            return cls(runs / run_id)
        except OSError as error:
            raise HostUnfitError(
                f"{runs} cannot be written ({error.strerror or error}); nothing was measured: make it writable or run "
                "from another directory"
            ) from error

    @property
    def run_id(self) -> str:
        """Name of the folder."""
        return self.path.name

    def emit(self, event: Event) -> None:
        """Append one event.

        Raises:
            MeasurementError: The disk is full or gone; what was written before stays readable.
        """
        left = encode_event(event, seq=self._seq, t_wall=time.time(), t_mono=time.monotonic())
        try:
            while left:  # a disk that fills up may take only part of a line
                left = left[os.write(self._stream.fileno(), left) :]
            if isinstance(event, _SYNCED):
                os.fsync(self._stream.fileno())
        except OSError as error:
            raise MeasurementError(
                f"{self.path / 'events.jsonl'} cannot be written any more ({error.strerror}); what was measured up to "
                "here is kept"
            ) from error
        self._seq += 1

    def write_json(self, name: str, value: object) -> Path:
        """Write one JSON document beside the events."""
        path = self.path / name
        try:
            path.write_text(to_json(value, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise MeasurementError(f"{path} cannot be written: {error.strerror}") from error
        return path

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def remove(self) -> None:
        """Remove what the run wrote; the folder stays where someone else wrote into it, too."""
        for written in self.path.glob("*.json*"):
            written.unlink(missing_ok=True)
        for name in _FOLDERS:
            shutil.rmtree(self.path / name, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()


def read_events(path: Path) -> Iterator[Event]:
    """The events of a run; a last line that was cut off is left out.

    Raises:
        StoreError: The file is missing or holds something else.
    """
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if line.endswith(b"\n"):
                    yield decode_event(line[:-1], source=f"{path}:{number}")
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def mode_of(folder: Path) -> str:
    """What kind of run a folder has, as its first event says; empty where there is none."""
    first = next(read_events(folder / "events.jsonl"), None)
    return first.mode if isinstance(first, RunStarted) else ""
