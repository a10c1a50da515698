"""Events of a Chrome trace as torch.profiler writes them: what is read of them, and its columns."""

from __future__ import annotations

import math
from collections.abc import Hashable
from enum import IntEnum
from itertools import compress
from operator import attrgetter
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from perfguard.profile.trace.signatures import NO_TENSORS, Signature, read_signature

Key = TypeVar("Key", bound=Hashable)

NO_SEQUENCE = -1
"""Sequence number of events that autograd gave none."""
NO_DURATION = -1.0
"""Duration of events whose file gives none."""
NO_START = math.nan
"""Start of events whose file gives none; no number that JSON can hold."""


class EventKind(IntEnum):
    """What an event is, by its category in the trace."""

    OP = 0
    """An op, or a node of autograd."""
    ANNOTATION = 1
    """`record_function`: the program's own, modules, optimizers, steps."""
    FRAME = 2
    """A call of a Python function; only in traces with stacks."""
    ALLOCATION = 3
    """Memory that was asked for on the CPU; only in traces with memory. Has no duration."""


_DROPPED = 0
_CODE_OF_CATEGORY = {
    "cpu_op": EventKind.OP + 1,
    "Operator": EventKind.OP + 1,  # torch before 1.12
    "user_annotation": EventKind.ANNOTATION + 1,
    "python_function": EventKind.FRAME + 1,
    "cpu_instant_event": EventKind.ALLOCATION + 1,
}
"""Kinds, one higher so that each is true; plain numbers, because members of an enum take twice as long to convert.
Events of other categories are not the CPU's, or say nothing of ops."""
_ALLOCATION_CODE = EventKind.ALLOCATION + 1

_CPU_DEVICE = 0
_NULL = msgspec.Raw(b"null")
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class TensorArguments(msgspec.Struct, gc=False, frozen=True):
    """The tensors in an event's arguments; they stay encoded, as few of them differ."""

    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NULL)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NULL)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=_NULL)


class _Arguments(TensorArguments, gc=False, frozen=True):
    sequence: _Int64 = msgspec.field(name="Sequence number", default=NO_SEQUENCE)
    size_bytes: _Int64 = msgspec.field(name="Bytes", default=0)
    device: _Int64 = msgspec.field(name="Device Type", default=_CPU_DEVICE)


class TraceEvent(msgspec.Struct, gc=False, frozen=True):
    """The part of an event that is read; `ts` and `dur` are microseconds.

    No two threads of a machine share a number, whatever their processes.
    """

    cat: str = ""
    name: str = ""
    tid: int | float | str | None = None
    ts: float = NO_START
    dur: float = NO_DURATION
    args: _Arguments = _Arguments()

    @property
    def is_allocation(self) -> bool:
        """Whether the CPU's memory was asked for; when it is given back depends on the garbage collector."""
        return self.name == "[memory]" and self.args.size_bytes > 0 and self.args.device == _CPU_DEVICE


class _Positions(dict[Key, int]):
    """Numbers keys in the order of their first appearance."""

    def __missing__(self, key: Key) -> int:
        self[key] = position = len(self)
        return position


class _Signatures(dict[bytes, int]):
    """Numbers signatures by how they are encoded; what reads the same is one, in whatever ways it is encoded."""

    def __init__(self, positions: _Positions[Signature]) -> None:
        super().__init__()
        self._positions = positions

    def __missing__(self, encoded: bytes) -> int:
        self[encoded] = position = self._positions[read_signature(encoded)]
        return position


_COLUMNS = ("kind", "name", "signature", "thread", "start_us", "duration_us", "sequence", "size_bytes")
_tensor_fields = attrgetter("dims", "types", "strides")


class TraceColumns:
    """Columns of events in the file's order, which grow with every list of events.

    Most of the time that a trace takes to read goes here.
    """

    def __init__(self) -> None:
        self.names: _Positions[str] = _Positions()
        """Names of events, by their positions."""
        self.signatures: _Positions[Signature] = _Positions({NO_TENSORS: 0})
        """What ops were called with, by their positions; the first is that of no tensors."""
        self._threads: _Positions[Any] = _Positions()
        self._encoded = _Signatures(self.signatures)
        self._parts: list[tuple[npt.NDArray[Any], ...]] = []

    def add(self, events: list[TraceEvent]) -> None:
        """Append what is kept of some events."""
        codes = _codes(events)
        kept = list(compress(events, codes))
        arguments = [event.args for event in kept]
        tensors = map(b",".join, map(_tensor_fields, arguments))
        kind = np.array(codes, dtype=np.int8)
        count = len(kept)
        self._parts.append(
            (
                kind[kind != _DROPPED] - np.int8(1),
                np.fromiter(map(self.names.__getitem__, [event.name for event in kept]), np.int32, count),
                np.fromiter(map(self._encoded.__getitem__, tensors), np.int32, count),
                np.fromiter(map(self._threads.__getitem__, [event.tid for event in kept]), np.int32, count),
                np.fromiter([event.ts for event in kept], np.float64, count),
                np.fromiter([event.dur for event in kept], np.float64, count),
                np.fromiter([part.sequence for part in arguments], np.int64, count),
                np.fromiter([part.size_bytes for part in arguments], np.int64, count),
            )
        )

    def joined(self) -> dict[str, npt.NDArray[Any]]:
        """All that was added, by the names of a trace's columns, but with times in microseconds: `start_us`.

        Something must have been added, but it may have been empty.
        """
        return dict(zip(_COLUMNS, map(np.concatenate, zip(*self._parts, strict=True)), strict=True))


def _codes(events: list[TraceEvent]) -> list[int]:
    """Codes of the kinds of events, or `_DROPPED`."""
    codes = [_CODE_OF_CATEGORY.get(event.cat, _DROPPED) for event in events]
    if _ALLOCATION_CODE not in codes:
        return codes
    return [
        _DROPPED if code == _ALLOCATION_CODE and not event.is_allocation else code
        for code, event in zip(codes, events, strict=True)
    ]
