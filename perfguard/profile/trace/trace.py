"""A Chrome trace of torch.profiler as columns: a few numbers for each event, texts once.

Only what happens on CPUs is kept: ops, annotations, Python functions, allocations. Arrows, metadata and what a GPU did
are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from perfguard.errors import StoreError
from perfguard.profile.trace.events import NO_SEQUENCE, EventKind, Signature, TraceColumns, TraceEvent
from perfguard.profile.trace.file import TraceFile
from perfguard.profile.trace.names import FRAME_OF_MODULE, GENERATED_FUNCTION, PROFILER_STEP
from perfguard.profile.trace.nesting import BoolArray, IndexArray, Spans, TimeArray
from perfguard.records.facts import Fact, fact
from perfguard.records.protocol import LINE_PREFIX, MODULE_PREFIX, STEP_WINDOW
from perfguard.units import format_count

MOST_EVENTS = 2_000_000  # Of one step; what a worker wrote is not read further
_GPU_LISTED = re.compile(rb'"deviceProperties"\s*:\s*\[\s*\{')
_BASE_TIME = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')
_LATEST_US = 9e15
"""In nanoseconds, later times do not fit 64 bits. A trace holds microseconds since its start, or since 1970."""
_FRAME_COLUMNS = ("name", "thread", "start_ns", "duration_ns")
_COLUMNS = (*_FRAME_COLUMNS, "kind", "signature", "sequence", "size_bytes")


class Frames(Spans, frozen=True, kw_only=True, eq=False):
    """Calls of Python functions, or marks of lines, in the order of a trace's events.

    Calls are nested among themselves, but an annotation begins within the frames that begin it and outlives them.
    """

    name: IndexArray  # Positions in the trace's `names`

    def chosen(self, events: BoolArray) -> Frames:
        """Some of them; of a trace, some of its events as frames."""
        return Frames(**{column: getattr(self, column)[events] for column in _FRAME_COLUMNS})


class Trace(Frames, frozen=True, kw_only=True, eq=False):
    """Events sorted so that an event comes before what it contains; arrays of shape `(events,)`.

    Of frames only those of modules are among them, and those only where modules are not annotated.
    """

    path: Path
    base_ns: int  # Where its clock has its zero, nanoseconds since the epoch; 0 where it does not say
    notes: tuple[Fact, ...]  # What a reader of its results should know, one sentence each
    names: tuple[str, ...]
    signatures: tuple[Signature, ...]  # What ops were called with; the first is that of no tensors
    kind: npt.NDArray[np.int8]  # Values of EventKind
    signature: IndexArray  # Positions in `signatures`
    sequence: TimeArray
    """Autograd's number: equal for a forward op and what computes its gradient. `NO_SEQUENCE` where there is none."""
    size_bytes: TimeArray  # Size of an allocation; of no meaning for other events
    frames: Frames  # All frames; none in a trace without stacks
    line_marks: Frames
    """Where the user's code came to another line; none but in traces of perfguard's own `where` steps."""

    def __len__(self) -> int:
        return self.kind.size

    def only(self, events: npt.NDArray[Any]) -> Trace:
        """The same with some events, in the order of these positions."""
        columns: dict[str, Any] = {column: getattr(self, column)[events] for column in _COLUMNS}
        return replace(self, **columns)

    def begins_with(self, prefix: str) -> BoolArray:
        """Whether the name of an event begins so."""
        return np.array([name.startswith(prefix) for name in self.names], dtype=np.bool_)[self.name]


def read_trace(path: Path, *, most_events: int | None = None) -> Trace:
    """Read a trace, plain JSON or gzip, whatever it is called.

    A file that was cut off is read up to its last whole event, and a note says so. A trace without a step's window
    (`perfguard::step`, `ProfilerStep#`) gets one around all that its busiest thread did, and a note says that.

    Raises:
        StoreError: It cannot be read, is malformed, has more than `most_events`, or holds no op that a CPU ran.
    """
    file = TraceFile(path, TraceEvent, most_events=most_events)
    columns = TraceColumns()
    for events in file.lists():
        columns.add(events)
    trace = _built(columns, file)
    if not any(name == STEP_WINDOW or name.startswith(PROFILER_STEP) for name in trace.names):
        trace = _with_window(trace)
    ordered = trace.only(np.lexsort((-trace.duration_ns, trace.start_ns, trace.thread)))
    return _without_generated_functions(_without_marks(_without_frames(ordered)))


def _built(read: TraceColumns, file: TraceFile[TraceEvent]) -> Trace:
    """All events in the file's order, frames among them; those without a start are left out."""
    columns = read.joined()
    has_start = ~np.isnan(columns["start_us"])
    unplaced = int((~has_start).sum())
    if unplaced:
        columns = {name: column[has_start] for name, column in columns.items()}
    start_us, duration_us = columns.pop("start_us"), columns.pop("duration_us")
    if not (columns["kind"] == EventKind.OP).any():
        lost = f" with a start (ts; {format_count(unplaced, 'event')} without)" if unplaced else ""
        raise StoreError(
            f"{file.path} holds no op that ran on a CPU{lost}; record it with activities=[ProfilerActivity.CPU]"
        )
    if not (np.abs(start_us).max() < _LATEST_US and np.abs(duration_us).max() < _LATEST_US):
        raise StoreError(f"{file.path} holds times that are no microseconds of a clock; export it again")
    untimed = int(((duration_us < 0) & (columns["kind"] != EventKind.ALLOCATION)).sum())
    base = _BASE_TIME.search(file.head) or _BASE_TIME.search(file.tail)
    times, positions = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
    nothing = Frames(name=positions, thread=positions, start_ns=times, duration_ns=times)
    return Trace(
        path=file.path,
        base_ns=int(base.group(1)) if base else 0,
        notes=tuple(_notes(file, untimed, unplaced)),
        names=tuple(read.names),
        signatures=tuple(read.signatures),
        start_ns=_nanoseconds(start_us),
        duration_ns=_nanoseconds(np.maximum(duration_us, 0.0)),
        frames=nothing,
        line_marks=nothing,
        **columns,
    )


def _nanoseconds(values_us: npt.NDArray[np.float64]) -> TimeArray:
    return np.rint(values_us * 1e3).astype(np.int64)


def _notes(file: TraceFile[TraceEvent], untimed: int, unplaced: int) -> Iterator[Fact]:
    name = file.path.name
    if unplaced:
        yield fact("trace.events_without_start", trace=name, events=unplaced)
    if untimed:
        yield fact("trace.events_without_duration", trace=name, events=untimed)
    if file.is_damaged:
        yield fact("trace.damaged", trace=name)
    elif file.dropped_bytes is not None:
        yield fact("trace.cut_off", trace=name, dropped=file.dropped_bytes)
    if _GPU_LISTED.search(file.head):
        yield fact("trace.gpu_run", trace=name)


def _with_window(trace: Trace) -> Trace:
    """The same with a window around all that the busiest thread did, as its first event."""
    busiest = np.bincount(trace.thread[trace.kind == EventKind.OP]).argmax()
    # A module's frame begins before its first op; the window holds it, so that the frame does not hold the window.
    on_it = (trace.thread == busiest) & ((trace.kind != EventKind.FRAME) | trace.begins_with(FRAME_OF_MODULE))
    start_ns = trace.start_ns[on_it].min()
    window = {
        "kind": EventKind.ANNOTATION,
        "name": len(trace.names),
        "signature": 0,
        "thread": busiest,
        "start_ns": start_ns,
        "duration_ns": trace.end_ns[on_it].max() - start_ns,
        "sequence": NO_SEQUENCE,
        "size_bytes": 0,
    }
    columns: dict[str, Any] = {name: np.insert(getattr(trace, name), 0, value) for name, value in window.items()}
    return replace(
        trace,
        names=(*trace.names, STEP_WINDOW),
        notes=(*trace.notes, fact("trace.no_step_marker", trace=trace.path.name)),
        **columns,
    )


def _without_frames(trace: Trace) -> Trace:
    """The same with frames apart, but for those of modules where nothing else names these."""
    is_frame = trace.kind == EventKind.FRAME
    if not is_frame.any():
        return trace
    frames = trace.chosen(is_frame)
    if not any(name.startswith(MODULE_PREFIX) for name in trace.names):
        is_frame &= ~trace.begins_with(FRAME_OF_MODULE)
    return replace(trace.only(~is_frame), frames=frames)


def _without_marks(trace: Trace) -> Trace:
    """The same with marks of lines apart: they are no part of what the step did."""
    is_mark = trace.begins_with(LINE_PREFIX)
    return replace(trace.only(~is_mark), line_marks=trace.chosen(is_mark)) if is_mark.any() else trace


def _without_generated_functions(trace: Trace) -> Trace:
    """The same without the functions that torch makes of custom ops with a gradient: what they do is the op's own.

    `victim::gate` calls `GeneratedBackwardFor_victim_gate_default`, which calls what the user wrote; a regression of
    that belongs to the op's name.
    """
    generated = [name for name in trace.names if name.startswith(GENERATED_FUNCTION)]
    if not generated:
        return trace
    ops = tuple(f"{GENERATED_FUNCTION}{name.replace('::', '_')}_" for name in trace.names if name.count("::") == 1)
    wraps = {name for name in generated if name.startswith(ops) and not name.endswith("Backward")}
    is_generated = np.array([name in wraps for name in trace.names])[trace.name] & (trace.kind == EventKind.OP)
    return trace.only(~is_generated)
