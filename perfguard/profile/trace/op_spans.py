"""The kinds of ops by which two traces are aligned, when the ops of one step ran, and which was running at a moment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfguard.profile.trace.context import PHASES, Context, PhaseArray
from perfguard.profile.trace.nesting import IndexArray, IntArray, Spans, TimeArray, nest
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
        context.phase[events] if phases is None else phases,
        context.module[events],
        np.where(is_op, trace.name[events], len(trace.names)),
        np.where(is_op, trace.signature[events], 0),
    )
    sizes = (len(PHASES), len(context.modules), len(trace.names) + 1, len(trace.signatures))
    codes = np.ravel_multi_index(columns, sizes)
    kinds = np.unique(codes)
    key = np.searchsorted(kinds, codes)  # twice as fast as to have it returned
    parts = (part.tolist() for part in np.unravel_index(kinds, sizes))
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
        for phase, module, name, signature in zip(*parts, strict=True)
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
    thread: IndexArray
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
        self._rows = rows[order]
        self._start_ns, self._end_ns = spans.start_ns[self._rows], spans.end_ns[self._rows]
        ops = Spans(thread=spans.thread[self._rows], start_ns=self._start_ns, duration_ns=self._end_ns - self._start_ns)
        self._threads = ops.thread_slices()
        self._parent = nest(ops).parent

    def innermost(self, start_ns: int, end_ns: int) -> int:
        """Row of the innermost op around a stretch of time; of the shortest, where several threads have one."""
        found = []
        for own in self._threads:
            begun = int(np.searchsorted(self._start_ns[own], start_ns + TOLERANCE_NS, side="right"))
            position = own.start + begun - 1 if begun else NO_OP
            while position != NO_OP and self._end_ns[position] < end_ns - TOLERANCE_NS:
                position = int(self._parent[position])
            if position != NO_OP:
                found.append(position)
        if not found:
            return NO_OP
        return int(self._rows[min(found, key=lambda position: self._end_ns[position] - self._start_ns[position])])

    def leaves(self) -> IntArray:
        """Rows of the ops that contain none of the others, by thread and time."""
        is_leaf = np.ones(self._rows.size, dtype=np.bool_)
        is_leaf[self._parent[self._parent != NO_OP]] = False
        return self._rows[is_leaf]
