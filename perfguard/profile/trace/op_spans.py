"""The kinds of ops by which two traces are aligned, when the ops of one step ran, and which was running at a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfguard.profile.trace.context import PHASES, Context, PhaseArray
from perfguard.profile.trace.nesting import IntArray, TimeArray
from perfguard.profile.trace.trace import Trace
from perfguard.records.steps.ops import PYTHON_OP, OpKey

NO_OP = -1
"""Row of no op."""
TOLERANCE_NS = 1_000
"""By how much a call may stick out of its op: its start, its time and seconds since the epoch are rounded to about
244 ns each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyedEvents:
    """Events and which kind of op each is; what is no op is time in no op at its place."""

    keys: tuple[OpKey, ...]
    """The kinds that occur, each once."""
    key: IntArray
    """Position in `keys` of each event."""
    sources: dict[OpKey, str]
    """Line of the user's code that led to most events of a kind; only of ops, and only where one is known."""


def keyed(trace: Trace, context: Context, events: IntArray, phases: PhaseArray | None = None) -> KeyedEvents:
    """The kinds of events at positions in a trace, in steps; a position may return.

    `phases` are those of the events, where they are not the context's.
    """
    is_op = context.is_op[events]
    columns = (
        (context.phase[events] if phases is None else phases, len(PHASES)),
        (context.module[events], len(context.modules)),
        (np.where(is_op, trace.name[events], len(trace.names)), len(trace.names) + 1),
        (np.where(is_op, trace.signature[events], 0), len(trace.signatures)),
    )
    codes = np.zeros(events.size, dtype=np.int64)
    for column, size in columns:
        codes = codes * size + column
    kinds = np.unique(codes)
    key = np.searchsorted(kinds, codes)  # twice as fast as to have it returned
    parts = []
    for _, size in reversed(columns):
        kinds, part = np.divmod(kinds, size)
        parts.append(part.tolist())
    names = (*trace.names, PYTHON_OP)
    keys = tuple(
        OpKey(
            phase=PHASES[phase],
            module=context.modules[module],
            op=names[name],
            shapes=trace.signatures[signature].shapes,
            dtypes=trace.signatures[signature].dtypes,
            layouts=trace.signatures[signature].layouts,
        )
        for signature, name, module, phase in zip(*parts, strict=True)
    )
    return KeyedEvents(keys=keys, key=key, sources=_sources(context, events[is_op], key[is_op], keys))


def _sources(context: Context, events: IntArray, key: IntArray, keys: tuple[OpKey, ...]) -> dict[OpKey, str]:
    known = context.source[events] > 0
    pairs, counts = np.unique(key[known] * len(context.sources) + context.source[events][known], return_counts=True)
    # The last one that is written stays: the most frequent, among equals the first.
    order = np.lexsort((-pairs, counts))
    found, source = np.divmod(pairs[order], len(context.sources))
    return {keys[key]: context.sources[line] for key, line in zip(found.tolist(), source.tolist(), strict=True)}


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


def spans_of(trace: Trace, context: Context, step: int) -> OpSpans:
    """The ops of one step of a trace, given by its position in the context's windows."""
    events = np.flatnonzero(context.is_op & (context.step == step))
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
