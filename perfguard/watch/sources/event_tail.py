"""A growing `events.jsonl`, read by somebody who must not disturb its writer: `stat`, and the bytes that are new."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perfguard.errors import StoreError
from perfguard.recordings import OF_NUMBERS, decode_event, event_decoder, require_numbers
from perfguard.records.events import EVENT_SCHEMA, Event, RunStarted, event_type
from perfguard.records.facts import Fact, Severity, fact
from perfguard.units import printable

MAX_LINE_BYTES = 8 * 1024**2  # A longer line is no event: the longest ones, attributions, have some tens of kilobytes
MAX_PROBLEMS = 20  # In one piece of the file; what is beyond is counted
MAX_POLL_BYTES = 1024**2
"""Read at a time, about 3,000 events: half a gigabyte is taken in pieces, and nobody waits for all of it."""
_HEAD_BYTES = 256  # Of the first line, which holds a run's name and its time: another head is another recording


class SeenEvent(Struct, frozen=True, kw_only=True):
    """An event with what its line says of it."""

    seq: int  # Number in the recording, from 0; -1 where the line does not tell
    t_wall: float  # When it was written, seconds since the epoch
    t_mono: float  # The same by the writer's monotonic clock, seconds
    event: Event


class TailUpdate(Struct, frozen=True, kw_only=True):
    """What a recording has to say since it was last asked."""

    events: tuple[SeenEvent, ...] = ()  # New events, in the order of the file
    problems: tuple[Fact, ...] = ()  # What is newly found wrong with it
    is_gone: bool = False  # Whether it was there and is not any more
    restarted: bool = False  # Whether `events` begin again; what was read before is void
    has_more: bool = False  # Whether more waits to be read at once
    is_cut: bool = False  # Whether it ends in the middle of a line, for now
    is_end: bool = False  # Whether nothing will ever follow: the end of a replay


class _Envelope(msgspec.Struct):
    event: str
    seq: int = -1
    t_wall: float = 0.0
    t_mono: float = 0.0


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class LineReader:
    """Takes a recording in pieces of any size; a line counts once its end has come."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_skipping = False
        self._lines = 0
        self._next_seq = 0
        self._unread = 0
        self._has_begun = False
        self._is_old = False
        self._unknown: set[str] = set()
        # Of the present piece:
        self._events: list[SeenEvent] = []
        self._problems: list[Fact] = []
        self._has_restarted = False

    @property
    def is_inside_a_line(self) -> bool:
        """Whether the last piece ended in the middle of a line."""
        return bool(self._rest) or self._is_skipping

    def feed(self, piece: bytes) -> TailUpdate:
        """The events that the piece completes, and what is wrong with it."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._lines += 1
            if self._is_skipping:
                self._is_skipping = False
            else:
                self._take(line)
        if self._is_skipping:
            self._rest = b""
        elif len(self._rest) > MAX_LINE_BYTES:
            self._rest, self._is_skipping = b"", True
            self._unread += 1
            number, most = self._lines + 1, MAX_LINE_BYTES
            self._problems.append(
                fact("recording.line_too_long", severity=Severity.NOTABLE, line=number, limit_bytes=most)
            )
        problems, more = self._problems[:MAX_PROBLEMS], len(self._problems) - MAX_PROBLEMS
        if more > 0:
            problems.append(fact("recording.more_problems", severity=Severity.NOTABLE, problems=more))
        update = TailUpdate(
            events=tuple(self._events),
            problems=tuple(problems),
            restarted=self._has_restarted,
            is_cut=self.is_inside_a_line,
        )
        self._events, self._problems, self._has_restarted = [], [], False
        return update

    def _take(self, line: bytes) -> None:
        try:
            envelope, event = _decode(line, is_old=self._is_old)
        except (StoreError, RecursionError) as error:
            self._unread += 1
            why = printable(str(error).removeprefix("it: "))[:160]
            self._problems.append(fact("recording.corrupt", severity=Severity.NOTABLE, line=self._lines, problem=why))
            return
        name, seq = envelope.event, envelope.seq
        if isinstance(event, RunStarted):
            self._begin(seq, event.schema)
        self._check_number(seq)
        if event is not None:
            self._events.append(SeenEvent(seq=seq, t_wall=envelope.t_wall, t_mono=envelope.t_mono, event=event))
        elif name not in self._unknown and len(self._unknown) < MAX_PROBLEMS:
            self._unknown.add(name)
            kind = printable(name)[:40]
            self._problems.append(fact("recording.unknown_event", severity=Severity.NOTABLE, kind=kind))

    def _begin(self, seq: int, schema: int) -> None:
        """A recording begins: say where its schema is another one, and start again where there was one before."""
        if self._has_begun and seq == 0:
            self._events.clear()
            self._has_restarted = True
            self._next_seq = self._unread = 0
        self._has_begun, self._is_old = True, schema < EVENT_SCHEMA
        if schema > EVENT_SCHEMA:
            known = EVENT_SCHEMA
            self._problems.append(
                fact("recording.foreign_schema", severity=Severity.NOTABLE, schema=schema, known_schema=known)
            )

    def _check_number(self, seq: int) -> None:
        """Events are numbered without gaps; lines that could not be read were spoken of already."""
        if seq < 0:
            return
        if seq > self._next_seq + self._unread:
            first, last = self._next_seq, seq - 1 if seq - 1 > self._next_seq else None
            self._problems.append(fact("recording.events_missing", severity=Severity.NOTABLE, first=first, last=last))
        elif seq < self._next_seq:
            self._problems.append(fact("recording.out_of_order", severity=Severity.NOTABLE, event=seq))
        self._next_seq = max(self._next_seq, seq + 1)
        self._unread = 0


def _decode(line: bytes, *, is_old: bool) -> tuple[_Envelope, Event | None]:
    """The event in a line; None for an event of another version.

    Two passes of a compiled decoder take a tenth of the time of `decode_event`, which is left to say what is wrong,
    and to read older schemas: the compiled decoder would pass over fields that were renamed since.

    Raises:
        StoreError: There is none.
        RecursionError: The line is nested too deeply to be looked at.
    """
    try:
        envelope = _ENVELOPE.decode(line)
    except (msgspec.MsgspecError, ValueError):
        decode_event(line, source="it")
        raise StoreError("its number or its time is none") from None
    kind = event_type(envelope.event)
    if kind is None:
        return envelope, None
    if kind in OF_NUMBERS or not (is_old or kind is RunStarted):  # the start itself holds the schema version
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            event = event_decoder(cast("Hashable", kind)).decode(line)
            require_numbers(event, "it")
            return envelope, event
    return envelope, decode_event(line, source="it")


class EventTail:
    """Reads a recording as it grows, from wherever it stands; nothing is held open between two polls."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_POLL_BYTES) -> None:
        """Begin before the first byte of a file, which need not exist yet; one poll reads at most `max_bytes`."""
        self._path = path
        self._max_bytes = max_bytes
        # Device and inode, and the first bytes.
        self._identity: tuple[tuple[int, int], bytes] | None = None
        self._reader = LineReader()
        self._offset = 0
        self._changed_ns = -1
        self._trouble: Fact | None = None

    def poll(self) -> TailUpdate:
        """What is new. A file that cannot be read is a problem, said once, never an exception."""
        path = str(self._path)
        try:
            status = self._path.stat()
            if status.st_size == self._offset and status.st_mtime_ns == self._changed_ns and not self._trouble:
                return TailUpdate(is_cut=self._reader.is_inside_a_line)
            if not stat.S_ISREG(status.st_mode):
                return self._failed(fact("recording.not_a_file", severity=Severity.NOTABLE, path=path))
            update = self._read()
        except (FileNotFoundError, NotADirectoryError):
            self._changed_ns = -1
            if self._identity is None or self._trouble is not None:
                return TailUpdate(is_gone=self._identity is not None)
            vanished = fact("recording.vanished", severity=Severity.NOTABLE, path=path)
            return replace(self._failed(vanished), is_gone=True)
        except OSError as error:
            problem = error.strerror or str(error)
            return self._failed(fact("recording.unreadable", severity=Severity.NOTABLE, path=path, problem=problem))
        self._trouble = None
        return update

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
            other = self._recognise(status, os.pread(descriptor, _HEAD_BYTES, 0))
            piece = os.pread(descriptor, self._max_bytes, self._offset)
        finally:
            os.close(descriptor)
        self._offset += len(piece)
        self._changed_ns = status.st_mtime_ns
        found = self._reader.feed(piece)
        return replace(
            found,
            problems=(other, *found.problems) if other else found.problems,
            restarted=found.restarted or other is not None,
            has_more=bool(piece) and self._offset < status.st_size,
        )

    def _recognise(self, status: os.stat_result, head: bytes) -> Fact | None:
        """Start again where this is not the file that was read before; then says why."""
        before, self._identity = self._identity, ((status.st_dev, status.st_ino), head)
        if before is None:
            return None
        path = str(self._path)
        if before[0] != self._identity[0]:
            other = fact("recording.replaced", severity=Severity.NOTABLE, path=path)
        elif status.st_size < self._offset:
            other = fact("recording.shortened", severity=Severity.NOTABLE, path=path)
        elif not head.startswith(before[1]):
            other = fact("recording.rewritten", severity=Severity.NOTABLE, path=path)
        else:
            return None
        self._reader, self._offset = LineReader(), 0
        return other
