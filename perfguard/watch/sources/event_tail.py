"""A growing `events.jsonl`, read by somebody who must not disturb its writer: `stat`, and the bytes that are new."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

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
    problems: tuple[str, ...] = ()
    """What is newly found wrong with it, one sentence each."""
    is_gone: bool = False
    """Whether it was there and is not any more."""
    restarted: bool = False
    """Whether `events` begin anew; what was read before is void."""
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
        self._trouble = ""

    def poll(self) -> TailUpdate:
        """What is new. A file that cannot be read is a problem, said once, never an exception."""
        try:
            status = self._path.stat()
            if status.st_size == self._offset and status.st_mtime_ns == self._changed_ns and not self._trouble:
                return TailUpdate(is_cut=self._reader.is_inside_a_line)
            if not stat.S_ISREG(status.st_mode):
                return self._failed(f"{self._path} is not a file")
            update = self._read()
        except (FileNotFoundError, NotADirectoryError):
            return self._absent()
        except OSError as error:
            return self._failed(f"{self._path} cannot be read: {error.strerror or error}")
        self._trouble = ""
        return update

    def _absent(self) -> TailUpdate:
        self._changed_ns = -1
        if self._identity is None:
            return TailUpdate()
        problems = () if self._trouble else (f"{self._path} has vanished; what was read of it is still shown",)
        self._trouble = "absent"
        return TailUpdate(problems=problems, is_gone=True)

    def _failed(self, problem: str) -> TailUpdate:
        self._changed_ns = -1
        if problem == self._trouble:
            return TailUpdate()
        self._trouble = problem
        return TailUpdate(problems=(problem,))

    def _read(self) -> TailUpdate:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            head = os.pread(descriptor, _HEAD_BYTES, 0)
            problem = self._recognise(status, head)
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
        return replace(update, problems=(problem, *found.problems), restarted=True) if problem else update

    def _recognise(self, status: os.stat_result, head: bytes) -> str | None:
        """Start anew where this is not the file that was read before; then says why."""
        before, now = self._identity, _Identity(status.st_dev, status.st_ino, head)
        self._identity = now
        if before is None:
            return None
        why = None
        if (before.device, before.inode) != (now.device, now.inode):
            why = "was replaced"
        elif status.st_size < self._offset:
            why = "became shorter"
        elif not head.startswith(before.head):
            why = "was written anew"
        if why is None:
            return None
        self._reader, self._offset = LineReader(), 0
        return f"{self._path} {why}; it is read again from its beginning"
