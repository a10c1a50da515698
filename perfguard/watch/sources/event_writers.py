"""Whether a process still writes a run's events: this distinguishes a slow run from one that died."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_WRITES = os.O_WRONLY | os.O_RDWR


class WriterSearch:
    """Looks for the process that writes a recording, first where it was seen last."""

    def __init__(self, path: Path, proc: Path = Path("/proc")) -> None:
        """Know of no writer of this recording yet; `proc` is where the kernel describes processes."""
        self._path = path
        self._proc = proc
        self._seen: Path | None = None

    def has_writer(self) -> bool | None:
        """Whether a process has the recording open for writing; None where that cannot be found out.

        Processes of other users cannot be looked into, nor those outside a container.
        """
        try:
            wanted = self._path.stat()
            if self._seen is not None and _writes(self._seen, wanted):
                return True
            processes = [entry for entry in self._proc.iterdir() if entry.name.isdigit()]
        except OSError:
            return None
        if os.geteuid() not in (0, wanted.st_uid):
            return None
        self._seen = next((process for process in processes if _writes(process, wanted)), None)
        return self._seen is not None


def _descriptors(process: Path) -> list[Path]:
    """What a process has open; nothing where it ended or belongs to somebody else."""
    try:
        return list((process / "fd").iterdir())
    except OSError:
        return []


def _writes(process: Path, wanted: os.stat_result) -> bool:
    return any(_is_open_for_writing(descriptor, wanted) for descriptor in _descriptors(process))


def _is_open_for_writing(descriptor: Path, wanted: os.stat_result) -> bool:
    try:
        found = descriptor.stat()
        if (found.st_dev, found.st_ino) != (wanted.st_dev, wanted.st_ino):
            return False
        lines = (descriptor.parent.parent / "fdinfo" / descriptor.name).read_text(encoding="ascii").splitlines()
        flags = next(line.partition(":")[2] for line in lines if line.startswith("flags:"))
        return bool(int(flags.strip(), 8) & _WRITES)
    except (OSError, ValueError, StopIteration):
        return False


def recording_of(pid: int, runs: Path, proc: Path = Path("/proc")) -> Path | None:
    """The run's folder below `runs` whose events a process has open; None where it has none, or has ended."""
    for descriptor in _descriptors(proc / str(pid)):
        with suppress(OSError):
            path = descriptor.readlink()
            if path.name == "events.jsonl" and path.parent.parent == runs.resolve():
                return path.parent
    return None
