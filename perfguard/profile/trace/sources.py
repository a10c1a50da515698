"""Which line of the user's code led to an event: that of the innermost Python frame outside libraries that it began in.

Marks of lines give the line that ran. Without them, frames give the line at which the function begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfguard.profile.trace.names import source_of
from perfguard.profile.trace.nesting import IndexArray, IntArray, TimeArray, nest
from perfguard.profile.trace.trace import Frames, Trace

UNKNOWN = 0  # Position of no source


class Course(Struct, frozen=True, kw_only=True, eq=False):
    """How the lines of one thread follow each other, shape `(changes,)`."""

    times_ns: TimeArray  # When another line comes to be the innermost one, in order
    line: IndexArray  # Which: its position among the lines


class Sources(Struct, frozen=True, kw_only=True, eq=False):
    """Lines of the user's code."""

    lines: tuple[str, ...]  # `train.py:88`; the first is empty, for unknown
    at_start: IndexArray  # Position in `lines` for each event of a trace
    courses: Mapping[int, Course]  # By the number of the thread; threads of which nothing is known are missing


def sources_of(trace: Trace) -> Sources:
    """The line that led to each event; unknown for all of a trace without marks and stacks."""
    lines, line_of_name = distinct(trace.names, source_of)
    # Marks of a thread are exact, also about when no code of the user's runs.
    courses, marks = _by_frames(trace.frames, line_of_name), trace.line_marks
    for own in marks.thread_slices():
        courses[int(marks.thread[own.start])] = Course(times_ns=marks.start_ns[own], line=line_of_name[marks.name[own]])
    at_start = np.full(len(trace), UNKNOWN, dtype=np.int32)
    for events in trace.thread_slices() if courses else ():
        course = courses.get(int(trace.thread[events.start]))
        if course is not None:
            last = np.searchsorted(course.times_ns, trace.start_ns[events], side="right") - 1
            at_start[events] = np.where(last < 0, UNKNOWN, course.line[last])
    return Sources(lines=lines, at_start=at_start, courses=courses)


def _by_frames(all_frames: Frames, line_of_name: IndexArray) -> dict[int, Course]:
    frames = all_frames.chosen((line_of_name[all_frames.name] != UNKNOWN) & (all_frames.duration_ns > 0))
    if not frames.name.size:
        return {}
    tree = nest(frames)
    line = np.append(line_of_name[frames.name], UNKNOWN)
    depth = np.empty(frames.name.size, dtype=np.intp)
    for number, level in enumerate(tree.levels):
        depth[level] = number
    courses = {}
    for own in frames.thread_slices():
        times_ns, frame = _innermost(frames.start_ns[own], tree.end_ns[own], depth[own], tree.parent[own], own.start)
        courses[int(frames.thread[own.start])] = Course(times_ns=times_ns, line=line[frame])
    return courses


def distinct(names: Sequence[str], read: Callable[[str], str]) -> tuple[tuple[str, ...], IndexArray]:
    """What is read of names: the different texts, the first of them empty, and the position of each name's own."""
    positions = {"": 0}
    of_name = [positions.setdefault(read(name), len(positions)) for name in names]
    return tuple(positions), np.array(of_name, dtype=np.int32)


def _innermost(
    start_ns: TimeArray, end_ns: TimeArray, depth: IntArray, parent: IntArray, first: int
) -> tuple[TimeArray, IntArray]:
    """Times at which another frame becomes the innermost one of a thread, in order, and which.

    The arrays are those of the thread's frames, `first` is the position of the first of them.
    """
    times_ns = np.concatenate([start_ns, end_ns])
    frame = np.concatenate([np.arange(first, first + start_ns.size), parent])
    # At one time frames end from the innermost on, then others begin from the outermost on.
    turn = np.concatenate([depth + 1, -depth - 1])
    order = np.lexsort((turn, times_ns))
    return times_ns[order], frame[order]
