"""A growing `events.jsonl`, read by somebody who must not disturb its writer: `stat`, and the bytes that are new."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from perfguard.codec import OF_NUMBERS, decode_event
from perfguard.errors import StoreError
from perfguard.records.events import EVENT_SCHEMA, Event, OpsCompared, RunStarted, event_type
from perfguard.records.facts import Fact, Severity, fact
from perfguard.units import printable

MAX_LINE_BYTES = 8 * 1024**2
"""A longer line is no event: the longest ones, attributions, have some tens of kilobytes."""
MAX_PROBLEMS = 20
"""In one piece of the file; what is beyond is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEvent:
    """An event with what its line says of it."""

    seq: int
    """Number in the recording, from 0; -1 where the line does not tell."""
    t_wall: float
    """When it was written, seconds since the epoch."""
    t_mono: float
    """The same by the writer's monotonic clock, seconds."""
    event: Event
    """What happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLines:
    """What a piece of the file adds."""

    events: tuple[SeenEvent, ...] = ()
    """New events, in the order of the file."""
    problems: tuple[Fact, ...] = ()
    """What is wrong with the piece."""
    restarted: bool = False
    """Whether a recording begins again with `events`; what was read before belongs to another one."""


class _Envelope(msgspec.Struct):
    event: str
    seq: int = -1
    t_wall: float = 0.0
    t_mono: float = 0.0


@dataclass(slots=True)
class _Piece:
    """What was found in one piece so far."""

    events: list[SeenEvent]
    problems: list[Fact]
    restarted: bool = False


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

    @property
    def is_inside_a_line(self) -> bool:
        """Whether the last piece ended in the middle of a line."""
        return bool(self._rest) or self._is_skipping

    def feed(self, piece: bytes) -> ReadLines:
        """The events that the piece completes."""
        found = _Piece([], [])
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._lines += 1
            if self._is_skipping:
                self._is_skipping = False
            else:
                self._take(line, found)
        self._bound_the_rest(found)
        return ReadLines(events=tuple(found.events), problems=_bounded(found.problems), restarted=found.restarted)

    def _bound_the_rest(self, found: _Piece) -> None:
        if self._is_skipping:
            self._rest = b""
        elif len(self._rest) > MAX_LINE_BYTES:
            self._is_skipping = True
            self._rest = b""
            long = fact(
                "recording.line_too_long", severity=Severity.NOTABLE, line=self._lines + 1, limit_bytes=MAX_LINE_BYTES
            )
            self._leave_out(found, long)

    def _take(self, line: bytes, found: _Piece) -> None:
        try:
            seen = _decode(line, is_old=self._is_old)
        except _UnknownEventError as unknown:
            self._check_number(unknown.seq, found)
            if unknown.name not in self._unknown and len(self._unknown) < MAX_PROBLEMS:
                self._unknown.add(unknown.name)
                found.problems.append(
                    fact("recording.unknown_event", severity=Severity.NOTABLE, kind=printable(unknown.name)[:40])
                )
            return
        except (StoreError, RecursionError) as error:
            why = printable(str(error).removeprefix("it: "))[:160]
            self._leave_out(found, fact("recording.corrupt", severity=Severity.NOTABLE, line=self._lines, problem=why))
            return
        self._begin(seen, found)
        self._check_number(seen.seq, found)
        found.events.append(seen)

    def _leave_out(self, found: _Piece, why: Fact) -> None:
        self._unread += 1
        found.problems.append(why)

    def _begin(self, seen: SeenEvent, found: _Piece) -> None:
        """A recording begins: say where its schema is another one, and start again where there was one before."""
        if not isinstance(seen.event, RunStarted):
            return
        if self._has_begun and seen.seq == 0:
            found.events.clear()
            found.restarted = True
            self._next_seq = self._unread = 0
        self._has_begun = True
        self._is_old = seen.event.schema < EVENT_SCHEMA
        if seen.event.schema > EVENT_SCHEMA:
            found.problems.append(
                fact(
                    "recording.foreign_schema",
                    severity=Severity.NOTABLE,
                    schema=seen.event.schema,
                    known_schema=EVENT_SCHEMA,
                )
            )

    def _check_number(self, seq: int, found: _Piece) -> None:
        """Events are numbered without gaps; lines that could not be read were spoken of already."""
        if seq < 0:
            return
        if seq > self._next_seq + self._unread:
            last = seq - 1 if seq - 1 > self._next_seq else None
            found.problems.append(
                fact("recording.events_missing", severity=Severity.NOTABLE, first=self._next_seq, last=last)
            )
        elif seq < self._next_seq:
            found.problems.append(fact("recording.out_of_order", severity=Severity.NOTABLE, event=seq))
        self._next_seq = max(self._next_seq, seq + 1)
        self._unread = 0


class _UnknownEventError(StoreError):
    """A line that is an event of another version."""

    def __init__(self, name: str, seq: int) -> None:
        super().__init__(name)
        self.name = name
        self.seq = seq


def _decode(line: bytes, *, is_old: bool) -> SeenEvent:
    """The event in a line.

    Two passes of a compiled decoder take a tenth of the time of `decode_event`, which is left to say what is wrong,
    and to read older schemas: the compiled decoder would pass over fields that were renamed since.

    Args:
        line: One line of the recording.
        is_old: Whether the recording has an older schema.

    Raises:
        StoreError: There is none.
        RecursionError: The line is nested too deeply to be looked at.
    """
    try:
        envelope = _envelope_decoder().decode(line)
    except (msgspec.MsgspecError, ValueError):
        decode_event(line, source="it")
        raise StoreError("its number or its time is none") from None
    kind = event_type(envelope.event)
    if kind is None:
        raise _UnknownEventError(envelope.event, envelope.seq)
    event: Event | None = None
    if kind in OF_NUMBERS or not (is_old or kind is RunStarted):  # the start itself tells how old it is
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            event = _event_decoder(envelope.event).decode(line)
    if event is None:
        event = decode_event(line, source="it")
        if not isinstance(event, OpsCompared) and not _is_finite(event):
            raise StoreError("a number in it is not finite")
    return SeenEvent(seq=envelope.seq, t_wall=envelope.t_wall, t_mono=envelope.t_mono, event=event)


def _is_finite(event: Event) -> bool:
    """Whether all numbers of an event are; JSON has no others, but Python's reader knows `Infinity` and 1e999."""
    values = (getattr(event, field.name) for field in dataclasses.fields(event))
    return all(math.isfinite(value) for value in values if isinstance(value, float))


@functools.cache
def _envelope_decoder() -> msgspec.json.Decoder[_Envelope]:
    return msgspec.json.Decoder(_Envelope)


@functools.cache
def _event_decoder(name: str) -> msgspec.json.Decoder[Event]:
    decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(event_type(name))
    return decoder


def _bounded(problems: list[Fact]) -> tuple[Fact, ...]:
    if len(problems) <= MAX_PROBLEMS:
        return tuple(problems)
    return (
        *problems[:MAX_PROBLEMS],
        fact("recording.more_problems", severity=Severity.NOTABLE, problems=len(problems) - MAX_PROBLEMS),
    )


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
