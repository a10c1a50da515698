"""Which event lies in which, and how much of its time in none of those below it.

Threads do one thing at a time, so their events are nested; but clocks are rounded, and an event may stick out of the
one that contains it, or into the next one, by as much. Real overlaps are cut: what ends after its parent ends with it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

IndexArray = npt.NDArray[np.int32]
IntArray = npt.NDArray[np.intp]
TimeArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NO_PARENT = -1
"""Parent of an event that lies in no other; as a position the last one, where some arrays have an element for it."""
_LATEST_NS = np.iinfo(np.int64).max


class Spans(Struct, frozen=True, kw_only=True, eq=False):
    """Events sorted by thread, then start, then the longest first; arrays of shape `(events,)`."""

    thread: IndexArray  # Numbers of threads, from 0
    start_ns: TimeArray  # Start, on the trace's clock
    duration_ns: TimeArray  # Duration, not negative; 0 for allocations

    @property
    def end_ns(self) -> TimeArray:
        """End, on the trace's clock."""
        return self.start_ns + self.duration_ns

    def thread_slices(self) -> list[slice]:
        """The events of each thread."""
        edges = np.flatnonzero(np.diff(self.thread, prepend=-1, append=-1))
        return [slice(first, stop) for first, stop in pairwise(edges)]


class Tree(Struct, frozen=True, kw_only=True, eq=False):
    """The nesting of events, arrays in their order and of shape `(events,)`."""

    parent: IntArray  # The innermost event around it, or `NO_PARENT`
    levels: tuple[IntArray, ...]  # Events by depth, from those that have no parent on; each in order
    stop: IntArray  # One behind the last event that lies in it: all between are its descendants
    end_ns: TimeArray  # End, not after the parent's nor after the start of what comes next in it
    self_ns: TimeArray
    """Time in it and in no event below; never negative, and the sum over a subtree is the time of its top."""

    def children(self, counted: BoolArray) -> IntArray:
        """How many children of an event are counted."""
        size = self.parent.size
        return np.bincount(self.parent[counted] + 1, minlength=size + 1)[1 : size + 1]


def nest(spans: Spans) -> Tree:
    """The nesting of events."""
    opens, closes = _bounds(spans)
    threads = spans.thread_slices()
    depth = np.empty(opens.size, dtype=np.int32)
    for events in threads:
        depth[events] = _depth_by_counting(opens[events], closes[events])
    levels, parent = _levels(depth)
    # How long an event and all around it are open; one element more, for the parent that is none.
    open_until = np.append(closes, _LATEST_NS)
    for level in levels:
        open_until[level] = np.minimum(open_until[level], open_until[parent[level]])
    misplaced = open_until[parent] <= opens
    if misplaced.any():
        for events in threads:
            if misplaced[events].any():
                depth[events] = _depth_by_stack(opens[events], closes[events])
        levels, parent = _levels(depth)
    end_ns, stop = _fitted(spans, levels, parent)
    span_ns = end_ns - spans.start_ns
    # Sums of whole numbers below 2**53 are exact in floating point.
    below_ns = np.bincount(parent + 1, weights=span_ns, minlength=opens.size + 1)[1:].astype(np.int64)
    return Tree(parent=parent, levels=levels, stop=stop, end_ns=end_ns, self_ns=span_ns - below_ns)


def _bounds(spans: Spans) -> tuple[TimeArray, TimeArray]:
    """When events open and close for the purpose of nesting, in half nanoseconds.

    An event closes one nanosecond before its end, so that neither it nor what follows has to be exact, and never before
    half a nanosecond has passed, so that every event comes to lie after its own start.
    """
    opens = 2 * spans.start_ns
    return opens, np.maximum(opens + 2 * (spans.duration_ns - 1), opens + 1)


def _depth_by_counting(opens: TimeArray, closes: TimeArray) -> IntArray:
    """How many events are open when one opens: all before it that have not closed. Right where none overlap."""
    closed = np.searchsorted(np.sort(closes, kind="stable"), opens, side="right")
    return np.arange(opens.size) - closed


def _depth_by_stack(opens: TimeArray, closes: TimeArray) -> list[int]:
    """The same where events overlap: one that would outlive its parent closes with it. Exact, and ten times slower."""
    depths = []
    open_until: list[int] = []
    for start, end in zip(opens.tolist(), closes.tolist(), strict=True):
        while open_until and open_until[-1] <= start:
            open_until.pop()
        depths.append(len(open_until))
        open_until.append(min(end, open_until[-1]) if open_until else end)
    return depths


def _levels(depth: npt.NDArray[np.int32]) -> tuple[tuple[IntArray, ...], IntArray]:
    """Events by depth, and their parents: of each the last event before it that is one less deep."""
    order = np.argsort(depth, kind="stable")
    levels = np.split(order, np.cumsum(np.bincount(depth))[:-1])
    parent = np.full(depth.size, NO_PARENT, dtype=np.intp)
    for above, level in pairwise(levels):
        parent[level] = above[np.searchsorted(above, level) - 1]
    return tuple(levels), parent


def _fitted(spans: Spans, levels: tuple[IntArray, ...], parent: IntArray) -> tuple[TimeArray, IntArray]:
    """Ends that keep within the parent and before the next sibling, and where each subtree stops."""
    size = parent.size
    # One element more: for the parent that is none, and for the event after the last one.
    end_ns = np.append(spans.end_ns, _LATEST_NS)
    start_ns = np.append(spans.start_ns, _LATEST_NS)
    thread = np.append(spans.thread, -1)
    stop = np.full(size + 1, size, dtype=np.intp)
    for level in levels:
        above, following = parent[level], np.append(level[1:], size)
        siblings = np.append(above[1:] == above[:-1], [False])
        stop[level] = np.where(siblings, following, stop[above])
        # Events without a parent may be of two threads.
        limited = siblings & (thread[following] == thread[level])
        limit_ns = np.where(limited, start_ns[following], _LATEST_NS)
        end_ns[level] = np.minimum(np.minimum(end_ns[level], end_ns[above]), limit_ns)
    return end_ns[:-1], stop[:-1]
