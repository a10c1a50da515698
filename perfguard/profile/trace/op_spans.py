"""When the ops of one step ran, and which of them was running at a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfguard.profile.trace.context import Context
from perfguard.profile.trace.op_keys import keyed, op_events
from perfguard.profile.trace.trace import Trace
from perfguard.records.steps.ops import OpKey

IntArray = npt.NDArray[np.intp]
TimeArray = npt.NDArray[np.int64]

NO_OP = -1
"""Row of no op."""
TOLERANCE_NS = 1_000
"""By how much a call may stick out of its op: its start, its time and seconds since the epoch are rounded to about
244 ns each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpSpans:
    """The ops of one step, in any order; those of one thread are nested. Wrappers belong to them as what they wrap."""

    start_ns: TimeArray
    """On the trace's clock, shape `(ops,)`."""
    end_ns: TimeArray
    """The same of their ends."""
    thread: npt.NDArray[np.integer]
    """Numbers of threads, shape `(ops,)`."""
    key: IntArray
    """Positions in `keys`, shape `(ops,)`."""
    keys: tuple[OpKey, ...]
    """Kinds of ops."""
    base_ns: int = 0
    """Where the trace's clock has its zero, since the epoch."""

    def time_ns(self, epoch_s: float) -> int:
        """A time of day on the trace's clock."""
        return round(epoch_s * 1e9) - self.base_ns

    def key_of(self, row: int) -> OpKey | None:
        """The kind of an op; None for `NO_OP`."""
        return None if row == NO_OP else self.keys[int(self.key[row])]


def spans_of(trace: Trace, context: Context, step: int) -> OpSpans:
    """The ops of one step of a trace.

    Args:
        trace: The trace.
        context: Its context.
        step: Position in the context's windows.
    """
    events = op_events(context, step)
    kinds = keyed(trace, context, events)
    return OpSpans(
        start_ns=trace.start_ns[events],
        end_ns=context.tree.end_ns[events],
        thread=trace.thread[events],
        key=kinds.key,
        keys=kinds.keys,
        base_ns=trace.base_ns,
    )


class Nest:
    """Some of a step's ops, nested."""

    def __init__(self, spans: OpSpans, rows: IntArray) -> None:
        order = np.lexsort((-spans.end_ns[rows], spans.start_ns[rows], spans.thread[rows]))
        rows = rows[order]
        borders = np.flatnonzero(np.diff(spans.thread[rows])) + 1
        self._threads = [_thread_of(spans, part) for part in np.split(rows, borders) if part.size]

    def innermost(self, start_ns: int, end_ns: int) -> int:
        """Row of the innermost op around a stretch of time; of the shortest, where several threads have one."""
        found, shortest_ns = NO_OP, 0
        for thread in self._threads:
            position = thread.innermost(start_ns, end_ns)
            if position == NO_OP:
                continue
            length_ns = int(thread.end_ns[position] - thread.start_ns[position])
            if found == NO_OP or length_ns < shortest_ns:
                found, shortest_ns = int(thread.rows[position]), length_ns
        return found

    def leaves(self) -> IntArray:
        """Rows of the ops that contain none of the others, by thread and time."""
        parts = [thread.rows[thread.is_leaf()] for thread in self._threads]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class _Thread:
    """Ops of one thread by start, the longest first, so that an op comes before what it contains."""

    rows: IntArray
    start_ns: TimeArray
    end_ns: TimeArray
    parent: Sequence[int]
    """Position of the op around each, or `NO_OP`."""

    def innermost(self, start_ns: int, end_ns: int) -> int:
        position = int(np.searchsorted(self.start_ns, start_ns + TOLERANCE_NS, side="right")) - 1
        while position != NO_OP and self.end_ns[position] < end_ns - TOLERANCE_NS:
            position = self.parent[position]
        return position

    def is_leaf(self) -> npt.NDArray[np.bool_]:
        leaf = np.ones(self.rows.size, dtype=np.bool_)
        leaf[[parent for parent in self.parent if parent != NO_OP]] = False
        return leaf


def _thread_of(spans: OpSpans, rows: IntArray) -> _Thread:
    starts_ns, ends_ns = spans.start_ns[rows], spans.end_ns[rows]
    parents: list[int] = []
    around: list[tuple[int, int]] = []
    for position, (start_ns, end_ns) in enumerate(zip(starts_ns.tolist(), ends_ns.tolist(), strict=True)):
        # What is over, or would be outlived by what it should contain, is not around.
        while around and (around[-1][1] <= start_ns or around[-1][1] < end_ns):
            around.pop()
        parents.append(around[-1][0] if around else NO_OP)
        around.append((position, end_ns))
    return _Thread(rows, starts_ns, ends_ns, parents)
