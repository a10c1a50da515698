"""From the bytes of `events.jsonl` to events: a damaged line is a problem, and reading goes on behind it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from dataclasses import dataclass

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
