"""Ops by kind, when those of one step ran, and the time in no op, by place and by line of the user's code.

A step's window, a module, or an annotation of the user's has its own time in pieces between its children, such as
between the model's call and the loss's. Where nothing around has a phase, each piece belongs to that of its neighbours.
A line takes such time by sleeping, waiting for data, or running plain Python.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from perfguard.profile.trace.context import NO_STEP, PHASES, Context, PhaseArray
from perfguard.profile.trace.events import EventKind
from perfguard.profile.trace.nesting import NO_PARENT, IndexArray, IntArray, Spans, TimeArray, nest
from perfguard.profile.trace.sources import UNKNOWN, Course
from perfguard.profile.trace.trace import Trace
from perfguard.records.steps.ops import PYTHON_OP, OpKey

LineTimes = Mapping[OpKey, Mapping[str, float]]
"""Mean seconds of each line in a step, by the place that is in no op; only lines that are known."""
_NS_PER_S = 1e9
NO_OP = -1  # Row of no op
TOLERANCE_NS = 1_000
"""By how much a call may stick out of its op: its start, its time and seconds since the epoch are rounded to about
244 ns each."""


class KeyedEvents(Struct, frozen=True, kw_only=True, eq=False):
    """Events and which kind of op each is; what is no op is time in no op at its place."""

    keys: tuple[OpKey, ...]  # The kinds that occur, each once
    key: IntArray  # Position in `keys` of each event
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


class OpSpans(Struct, frozen=True, kw_only=True, eq=False):
    """The ops of one step, in any order; those of one thread are nested. Wrappers belong to them as what they wrap.

    Arrays have the shape `(ops,)`; times are on the trace's clock.
    """

    start_ns: TimeArray
    end_ns: TimeArray
    thread: IndexArray
    key: IntArray  # Positions in `keys`
    keys: tuple[OpKey, ...]
    base_ns: int = 0  # Where the trace's clock has its zero, since the epoch

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


class Gaps(Struct, frozen=True, kw_only=True, eq=False):
    """Pieces of the own time of events, shape `(gaps,)`, some of 0 ns. Of one event they add up to its own time."""

    event: IntArray
    phase: PhaseArray  # Position in PHASES
    start_ns: TimeArray
    duration_ns: TimeArray
    ends_at_child: IntArray  # 1 where a child of the event comes next, 0 where the event ends
    is_first: IntArray  # 1 for the first gap of its event in its phase


def gaps_of(trace: Trace, context: Context, *, everywhere: bool = False) -> Gaps:
    """The gaps of events in steps that are no ops: of those that lie in nothing that has a phase, or `everywhere`."""
    tree, timed = context.tree, trace.kind != EventKind.ALLOCATION
    is_wrapper = (context.is_outside | everywhere) & ~context.is_op & (context.step != NO_STEP) & timed
    wrapper = np.flatnonzero(is_wrapper)
    child = np.flatnonzero(timed & (tree.parent != NO_PARENT) & is_wrapper[tree.parent])
    # One gap before each child, then one at the end of each wrapper; the end goes on with what was done last.
    event = np.concatenate([tree.parent[child], wrapper])
    stops_ns = np.concatenate([trace.start_ns[child], tree.end_ns[wrapper]])
    resumes_ns = np.concatenate([tree.end_ns[child], tree.end_ns[wrapper]])
    found = np.concatenate([context.marks.phase_at(child, context.step[child]), context.phase[tree.stop[wrapper] - 1]])
    phase = np.where(context.is_outside[event], found, context.phase[event])
    ends_at_child = np.repeat([1, 0], [child.size, wrapper.size])
    order = np.argsort(event, kind="stable")
    event, phase = event[order], phase[order]
    begins = np.append(True, event[1:] != event[:-1])
    starts_ns = np.where(begins, trace.start_ns[event], np.append(0, resumes_ns[order][:-1]))
    is_first = np.zeros_like(event)
    is_first[np.unique(event * len(PHASES) + phase, return_index=True)[1]] = 1
    return Gaps(
        event=event,
        phase=phase,
        start_ns=starts_ns,
        duration_ns=stops_ns[order] - starts_ns,
        ends_at_child=ends_at_child[order],
        is_first=is_first,
    )


def python_lines(trace: Trace, context: Context) -> LineTimes:
    """The time in no op by line, where marks or frames tell which line ran; a mean over the trace's steps."""
    if not context.courses or not context.windows.size:
        return {}
    gaps = gaps_of(trace, context, everywhere=True)
    kinds = keyed(trace, context, gaps.event, gaps.phase)
    thread = trace.thread[gaps.event]
    found: dict[OpKey, dict[str, float]] = {}
    for number, course in context.courses.items():
        own = np.flatnonzero((thread == number) & (gaps.duration_ns > 0))
        gap, line, duration_ns = _stretches(gaps, own, course)
        code = kinds.key[gap] * len(context.sources) + line
        sums_ns = np.bincount(code, weights=duration_ns)
        for pair in np.flatnonzero(sums_ns).tolist():
            key, source = divmod(pair, len(context.sources))
            if source != UNKNOWN:
                lines = found.setdefault(kinds.keys[key], {})
                seconds = float(sums_ns[pair]) / _NS_PER_S / context.windows.size
                lines[context.sources[source]] = lines.get(context.sources[source], 0.0) + seconds
    return found


def main_lines(lines: LineTimes) -> dict[OpKey, str]:
    """The line that took most of each place's time in no op."""
    return {key: max(sorted(times), key=times.__getitem__) for key, times in lines.items()}


def changed_line(before: Mapping[str, float], after: Mapping[str, float]) -> str | None:
    """The line whose time changed most, in the direction in which the place's time went; None without any.

    Where an edit moved the lines, every one is another: then it is the one that takes most.
    """
    changes_s = {line: after.get(line, 0.0) - before.get(line, 0.0) for line in sorted({*before, *after})}
    if not changes_s:
        return None
    sign = 1 if sum(changes_s.values()) >= 0 else -1
    return max(changes_s, key=lambda line: sign * changes_s[line])


def _stretches(gaps: Gaps, own: IntArray, course: Course) -> tuple[IntArray, IntArray, TimeArray]:
    """Gaps of one thread, cut wherever another line comes to run: the gap, the line, nanoseconds."""
    starts_ns, stops_ns = gaps.start_ns[own], gaps.start_ns[own] + gaps.duration_ns[own]
    first = np.searchsorted(course.times_ns, starts_ns, side="right")
    count = np.searchsorted(course.times_ns, stops_ns, side="left") - first + 1
    piece = np.repeat(np.arange(own.size), count)
    nth = np.arange(piece.size) - np.repeat(np.cumsum(count) - count, count)
    change = first[piece] + nth  # the change of line at which a stretch ends
    begins_ns = np.where(nth == 0, starts_ns[piece], course.times_ns[change - 1])
    is_last = nth == count[piece] - 1
    ends_ns = np.where(is_last, stops_ns[piece], course.times_ns[np.minimum(change, course.times_ns.size - 1)])
    line = np.where(change == 0, UNKNOWN, course.line[change - 1])
    return own[piece], line, ends_ns - begins_ns
