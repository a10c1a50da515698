"""What chosen events of a trace were called with, as it stands in the file: a second look at it.

A trace keeps of its events only what every reader needs; few need the plain arguments of an op, and of few events.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from perfguard.profile.trace.file import TraceFile
from perfguard.profile.trace.nesting import IntArray
from perfguard.profile.trace.trace import Trace

_NOTHING = b"null"
_NULL = msgspec.Raw(_NOTHING)
_FRACTION = re.compile(rb"-?\d+\.\d*(?:e[+-]?\d+)?")
_DIGITS = 10
"""Of a fraction that somebody wrote; those with more were computed, as a step size that changes from step to step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCall:
    """A call in JSON, as it was written; what is equal was called with equal arguments."""

    name: str
    """Name of the event."""
    dims: bytes = _NOTHING
    """`Input Dims`; here and below, null where the file has none."""
    types: bytes = _NOTHING
    """`Input type`."""
    strides: bytes = _NOTHING
    """`Input Strides`."""
    concrete: bytes = _NOTHING
    """`Concrete Inputs`."""


class _Arguments(msgspec.Struct, gc=False, frozen=True):
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NULL)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NULL)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=_NULL)
    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NULL)


class _CallEvent(msgspec.Struct, gc=False, frozen=True):
    ph: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: _Arguments = _Arguments()


def recorded_calls(path: Path, trace: Trace, positions: IntArray) -> dict[int, RawCall]:
    """The calls of some events of a trace, by their positions; without those that are not found.

    Events are recognised by name, start and duration; two that share all three are taken to be the same call.

    Args:
        path: The file that the trace was read from.
        trace: The trace.
        positions: Of the events.

    Raises:
        StoreError: The file cannot be read.
    """
    wanted: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for position in positions.tolist():
        name = trace.names[trace.name[position]]
        wanted[name, int(trace.start_ns[position]), int(trace.duration_ns[position])].append(position)
    found = {}
    for events in TraceFile(path, _CallEvent).lists():
        for event in events:
            # The same arithmetic that made whole nanoseconds of the trace's times.
            key = (event.name, round(event.ts * 1e3), round(max(event.dur, 0.0) * 1e3))
            if event.ph == "X" and key in wanted:
                call = _call(event)
                found.update(dict.fromkeys(wanted.pop(key), call))
    return found


def same_work(call: RawCall) -> RawCall:
    """The call without its computed fractions: two that are equal then do the same, with other numbers."""
    return replace(call, concrete=_FRACTION.sub(_written, call.concrete))


def _written(found: re.Match[bytes]) -> bytes:
    text = repr(float(found[0]))
    return found[0] if len(text) <= _DIGITS else b"computed"


def _call(event: _CallEvent) -> RawCall:
    args = event.args
    # Copied, so that the piece of the file around them is not kept.
    return RawCall(
        name=event.name,
        dims=bytes(args.dims),
        types=bytes(args.types),
        strides=bytes(args.strides),
        concrete=bytes(args.concrete),
    )
