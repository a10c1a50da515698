"""A growing `events.jsonl`, read by somebody who must not disturb its writer: `stat`, and the bytes that are new."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from perfguard.records.facts import Fact, Severity, fact
from perfguard.watch.sources.line_reader import LineReader, SeenEvent

MAX_POLL_BYTES = 1024**2
"""Read at a time, about 3,000 events: half a gigabyte is taken in pieces, and nobody waits for all of it."""
_HEAD_BYTES = 256
"""Of the first line, which holds a run's name and its time: another head is another recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailUpdate:
    """What a recording has to say since it was last asked."""

    events: tuple[SeenEvent, ...] = ()
    """New events, in the order of the file."""
    problems: tuple[Fact, ...] = ()
    """What is newly found wrong with it."""
    is_gone: bool = False
    """Whether it was there and is not any more."""
    restarted: bool = False
    """Whether `events` begin again; what was read before is void."""
    has_more: bool = False
    """Whether more waits to be read at once."""
    is_cut: bool = False
    """Whether it ends in the middle of a line, for now."""
    is_end: bool = False
    """Whether nothing will ever follow: the end of a replay."""


@dataclass(frozen=True, slots=True)
class _Identity:
    device: int
    inode: int
    head: bytes


class EventTail:
    """Reads a recording as it grows, from wherever it stands; nothing is held open between two polls."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_POLL_BYTES) -> None:
        """Begin before the first byte.

        Args:
            path: The file; it need not exist yet.
            max_bytes: Most that one poll reads.
        """
        self._path = path
        self._max_bytes = max_bytes
        self._identity: _Identity | None = None
        self._reader = LineReader()
        self._offset = 0
        self._changed_ns = -1
        self._trouble: Fact | None = None

    def poll(self) -> TailUpdate:
        """What is new. A file that cannot be read is a problem, said once, never an exception."""
        try:
            status = self._path.stat()
            if status.st_size == self._offset and status.st_mtime_ns == self._changed_ns and not self._trouble:
                return TailUpdate(is_cut=self._reader.is_inside_a_line)
            if not stat.S_ISREG(status.st_mode):
                return self._failed(fact("recording.not_a_file", severity=Severity.NOTABLE, path=str(self._path)))
            update = self._read()
        except (FileNotFoundError, NotADirectoryError):
            return self._absent()
        except OSError as error:
            return self._failed(
                fact(
                    "recording.unreadable",
                    severity=Severity.NOTABLE,
                    path=str(self._path),
                    problem=error.strerror or str(error),
                )
            )
        self._trouble = None
        return update

    def _absent(self) -> TailUpdate:
        self._changed_ns = -1
        if self._identity is None:
            return TailUpdate()
        if self._trouble is not None:
            return TailUpdate(is_gone=True)
        return replace(
            self._failed(fact("recording.vanished", severity=Severity.NOTABLE, path=str(self._path))), is_gone=True
        )

    def _failed(self, trouble: Fact) -> TailUpdate:
        self._changed_ns = -1
        if trouble == self._trouble:
            return TailUpdate()
        self._trouble = trouble
        return TailUpdate(problems=(trouble,))

    def _read(self) -> TailUpdate:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            head = os.pread(descriptor, _HEAD_BYTES, 0)
            other = self._recognise(status, head)
            piece = os.pread(descriptor, self._max_bytes, self._offset)
        finally:
            os.close(descriptor)
        self._offset += len(piece)
        self._changed_ns = status.st_mtime_ns
        found = self._reader.feed(piece)
        update = TailUpdate(
            events=found.events,
            problems=found.problems,
            restarted=found.restarted,
            has_more=bool(piece) and self._offset < status.st_size,
            is_cut=self._reader.is_inside_a_line,
        )
        return replace(update, problems=(other, *found.problems), restarted=True) if other else update

    def _recognise(self, status: os.stat_result, head: bytes) -> Fact | None:
        """Start again where this is not the file that was read before; then says why."""
        before, now = self._identity, _Identity(status.st_dev, status.st_ino, head)
        self._identity = now
        if before is None:
            return None
        path = str(self._path)
        if (before.device, before.inode) != (now.device, now.inode):
            other = fact("recording.replaced", severity=Severity.NOTABLE, path=path)
        elif status.st_size < self._offset:
            other = fact("recording.shortened", severity=Severity.NOTABLE, path=path)
        elif not head.startswith(before.head):
            other = fact("recording.rewritten", severity=Severity.NOTABLE, path=path)
        else:
            return None
        self._reader, self._offset = LineReader(), 0
        return other
