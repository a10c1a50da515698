"""From decoded events to columns, which is where the time goes that a trace takes to read."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import compress
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from perfguard.profile.trace.events import KIND_OF_CATEGORY, EventKind, TraceEvent
from perfguard.profile.trace.signatures import NO_TENSORS, Signature, read_signature

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Events in the file's order, shape `(events,)`, and the texts that they refer to."""

    kind: npt.NDArray[np.int8]
    """Values of EventKind."""
    name: npt.NDArray[np.int32]
    """Positions in `names`."""
    signature: npt.NDArray[np.int32]
    """Positions in `signatures`."""
    thread: npt.NDArray[np.int32]
    """Numbers of threads, from 0 in the order of appearance."""
    start_us: npt.NDArray[np.float64]
    """As in the file."""
    duration_us: npt.NDArray[np.float64]
    """As in the file."""
    sequence: npt.NDArray[np.int64]
    """Autograd's number, or NO_SEQUENCE."""
    size_bytes: npt.NDArray[np.int64]
    """Size of an allocation."""
    names: tuple[str, ...]
    """Names of events."""
    signatures: tuple[Signature, ...]
    """What ops were called with; the first is that of no tensors."""

    def chosen(self, events: npt.NDArray[np.bool_]) -> Columns:
        """Only some events; shape `(events,)`."""
        columns: dict[str, Any] = {name: getattr(self, name)[events] for name in _COLUMNS}
        return replace(self, **columns)


_COLUMNS = ("kind", "name", "signature", "thread", "start_us", "duration_us", "sequence", "size_bytes")


class _Positions(dict[Key, int]):
    """Numbers keys in the order of their first appearance."""

    def __missing__(self, key: Key) -> int:
        self[key] = position = len(self)
        return position


class _Signatures(dict[bytes, int]):
    """Numbers signatures by how they are encoded; what reads the same is one, in whatever ways it is encoded."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: _Positions[Signature] = _Positions({NO_TENSORS: 0})

    def __missing__(self, encoded: bytes) -> int:
        self[encoded] = position = self.positions[read_signature(encoded)]
        return position


_DROPPED = 0
_CODE_OF_CATEGORY = {category: kind + 1 for category, kind in KIND_OF_CATEGORY.items()}
"""Kinds, one higher so that each is true; plain numbers, because members of an enum take twice as long to convert."""
_ALLOCATION_CODE = EventKind.ALLOCATION + 1

_tensor_fields = attrgetter("dims", "types", "strides")
_join_tensors = b",".join


class TraceColumns:
    """Columns that grow with every list of events."""

    def __init__(self) -> None:
        self._names: _Positions[str] = _Positions()
        self._threads: _Positions[Any] = _Positions()
        self._signatures = _Signatures()
        self._parts: list[tuple[npt.NDArray[Any], ...]] = []

    def add(self, events: list[TraceEvent]) -> None:
        """Append what is kept of some events."""
        codes = _codes(events)
        kept = list(compress(events, codes))
        arguments = [event.args for event in kept]
        tensors = map(_join_tensors, map(_tensor_fields, arguments))
        kind = np.array(codes, dtype=np.int8)
        count = len(kept)
        self._parts.append(
            (
                kind[kind != _DROPPED] - np.int8(1),
                np.fromiter(map(self._names.__getitem__, [event.name for event in kept]), np.int32, count),
                np.fromiter(map(self._signatures.__getitem__, tensors), np.int32, count),
                np.fromiter(map(self._threads.__getitem__, [event.tid for event in kept]), np.int32, count),
                np.fromiter([event.ts for event in kept], np.float64, count),
                np.fromiter([event.dur for event in kept], np.float64, count),
                np.fromiter([part.sequence for part in arguments], np.int64, count),
                np.fromiter([part.size_bytes for part in arguments], np.int64, count),
            )
        )

    def joined(self) -> Columns:
        """All that was added; something must have been, but it may have been empty."""
        kind, name, signature, thread, start_us, duration_us, sequence, size_bytes = map(
            np.concatenate, zip(*self._parts, strict=True)
        )
        return Columns(
            kind=kind,
            name=name,
            signature=signature,
            thread=thread,
            start_us=start_us,
            duration_us=duration_us,
            sequence=sequence,
            size_bytes=size_bytes,
            names=tuple(self._names),
            signatures=tuple(self._signatures.positions),
        )


def _codes(events: list[TraceEvent]) -> list[int]:
    """Codes of the kinds of events, or `_DROPPED`."""
    codes = [_CODE_OF_CATEGORY.get(event.cat, _DROPPED) for event in events]
    if _ALLOCATION_CODE not in codes:
        return codes
    return [
        _DROPPED if code == _ALLOCATION_CODE and not event.is_allocation else code
        for code, event in zip(codes, events, strict=True)
    ]
