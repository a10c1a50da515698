"""The bytes of a trace file, plain or gzip, as lists of decoded events.

They are read piece by piece, so that no file has to fit into memory. A killed process leaves a file that ends anywhere:
what is whole is kept, and what was left out is counted.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

import msgspec

from perfguard.errors import StoreError

Event = TypeVar("Event")

PIECE_BYTES = 1 << 20
"""Read at a time: what is decoded from it, a few thousand events, stays in the processor's caches."""
_SMALL_BYTES = 1 << 9
"""Unpacked at a time once a file is known to be damaged: so much is lost before the damage."""
LONGEST_BYTES = 1 << 25  # Without one whole event in so many bytes, a file is no trace

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN_EVENTS = re.compile(rb"\s*,\s*(?=\{)")
_SEPARATORS = b", \t\r\n"
_CLOSING = ord("]")
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31
_ATTEMPTS = 4  # Boundaries that are tried before more is read: the last one may lie inside an event
_MOST_OBJECTS = 200
"""In one event that was cut off; each is tried as its end, which means reading all that stands before it."""
_LAST_BYTES = 32
"""A number or a name that is cut off is malformed, not truncated; its place at the end shows what happened."""


class TraceFile(Generic[Event]):
    """One pass over a file that holds `{…, "traceEvents": [event, …], …}` or just the list."""

    def __init__(self, path: Path, event: type[Event], *, most_events: int | None = None) -> None:
        self.path = path
        self._left = math.inf if most_events is None else most_events
        self.head = self.tail = b""
        """What stands before and after the events; known once the first and the last list were read."""
        self.dropped_bytes: int | None = None
        """Bytes of the event that a cut-off file ends in; None for a whole file."""
        self.is_damaged = False
        """Whether it is a gzip file that cannot be unpacked to its end."""
        self._lacks_an_end = False
        self._decoder = msgspec.json.Decoder(list[event])  # type: ignore[valid-type]

    def lists(self) -> Iterator[list[Event]]:
        """The events in the file's order, some thousands in a list.

        Raises:
            StoreError: The file cannot be read, is no trace, or is malformed elsewhere than at its end.
        """
        try:
            pieces = self._pieces()
            text = self._after_head(pieces)
            for piece in pieces:
                text += piece
                events, text = self._split(text)
                if events:
                    yield self._counted(events)
                elif len(text) > LONGEST_BYTES:
                    raise self._malformed(f"no whole event in {LONGEST_BYTES} bytes")
            yield self._counted(self._last(text))
        except RecursionError:
            raise self._malformed("an event is nested too deeply") from None
        except UnicodeError as error:
            raise self._malformed(str(error)) from error
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be read: {error.strerror or error}; name a trace that torch.profiler exported"
            ) from error

    def _counted(self, events: list[Event]) -> list[Event]:
        self._left -= len(events)
        if self._left < 0:
            raise self._malformed("more events than a step has")
        return events

    def _after_head(self, pieces: Iterator[bytes]) -> bytearray:
        """Read up to the first event; returns the bracket before it and what was read beyond."""
        text = b""
        for piece in pieces:
            text += piece
            found = _EVENTS.search(text)
            if found:
                self.head = text[: found.end()]
                return bytearray(text[found.end() - 1 :])
            if text.lstrip().startswith(b"["):
                return bytearray(text.lstrip())
            if len(text) > LONGEST_BYTES:
                break
        if self.is_damaged:
            raise StoreError(f"{self.path} is a damaged gzip file: no event in it can be read; export it again")
        raise StoreError(
            f'{self.path} is not a Chrome trace: it has no list "traceEvents"; '
            "name a file that export_chrome_trace of torch.profiler wrote"
        )

    def _split(self, text: bytearray) -> tuple[list[Event], bytearray]:
        """The events before a boundary near the end, and a bracket with the text after it; none without a boundary.

        The text is a list that is not closed; what is decoded refers to it, so it is closed in place, not copied.
        """
        boundaries = filter(None, (_BETWEEN_EVENTS.match(text, end) for end in _ends_of_objects(text)))
        for boundary in islice(boundaries, _ATTEMPTS):
            try:
                return self._closed_at(boundary.start(), text), bytearray(b"[") + text[boundary.end() :]
            except msgspec.ValidationError as error:
                raise self._malformed(str(error)) from error
            except msgspec.DecodeError:
                # A boundary of objects inside an event; or the events have ended, and this is what follows them.
                continue
        return [], text

    def _last(self, text: bytearray) -> list[Event]:
        """The events at the end of the file, whether or not their list is closed."""
        try:
            return self._decoder.decode(text)
        except msgspec.ValidationError as error:
            raise self._malformed(str(error)) from error
        except msgspec.DecodeError as error:
            problem = str(error)
        found = re.search(r"\(byte (\d+)\)", problem)
        position = int(found.group(1)) if found else len(text)
        if "trailing characters" in problem:
            end = text.rfind(b"]", 0, position) + 1
            self.tail = bytes(text[end:])
            return self._decoder.decode(memoryview(text)[:end])
        if position < len(text) - _LAST_BYTES:
            if not self._lacks_an_end:
                raise self._malformed(problem)
            self.is_damaged = True  # gzip finds damage late, and what it unpacks until then is rubbish
        return self._whole_ones(text)

    def _whole_ones(self, text: bytearray) -> list[Event]:
        """The events of a list that was cut off."""
        text += b" "  # in the place of which the last event's list can be closed
        for attempt, end in enumerate(_ends_of_objects(text)):
            if attempt == _MOST_OBJECTS:
                raise self._malformed(f"its last event holds more than {_MOST_OBJECTS} objects")
            try:
                events = self._closed_at(end, text)
            except msgspec.DecodeError:
                continue
            break
        else:
            events, end = [], 1
        self.dropped_bytes = len(text[end:-1].lstrip(_SEPARATORS))
        return events

    def _closed_at(self, end: int, text: bytearray) -> list[Event]:
        replaced, text[end] = text[end], _CLOSING
        try:
            return self._decoder.decode(memoryview(text)[: end + 1])
        finally:
            text[end] = replaced

    def _malformed(self, problem: str) -> StoreError:
        if self.is_damaged:
            problem = f"it is a damaged gzip file ({problem})"
        return StoreError(f"{self.path} is not a readable trace: {problem}; export it again")

    def _pieces(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            first = file.read(PIECE_BYTES)
            if first.startswith(_GZIP_MAGIC):
                yield from self._inflated(first, file)
                return
            while first:
                yield first
                first = file.read(PIECE_BYTES)

    def _inflated(self, packed: bytes, file: BinaryIO) -> Iterator[bytes]:
        """What gzip holds, as far as it can be unpacked: one member after another, up to the first damage."""
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        while packed:
            before = inflater.copy()
            try:
                yield inflater.decompress(packed, PIECE_BYTES)
            except zlib.error:
                self.is_damaged = self._lacks_an_end = True
                # What comes before the damage, in small pieces: that in which it shows is lost.
                with suppress(zlib.error):
                    while packed:
                        yield before.decompress(packed, _SMALL_BYTES)
                        packed = before.unconsumed_tail
                return
            packed = inflater.unconsumed_tail
            self._lacks_an_end = not inflater.eof
            if inflater.eof:
                packed = inflater.unused_data
                inflater = zlib.decompressobj(_GZIP_WINDOW)
            packed = packed or file.read(PIECE_BYTES)


def _ends_of_objects(text: bytearray) -> Iterator[int]:
    """Where objects may end, from the end of the text to its beginning."""
    end = text.rfind(b"}")
    while end >= 0:
        yield end + 1
        end = text.rfind(b"}", 0, end)
