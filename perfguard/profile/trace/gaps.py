"""Time of a step in no op, in pieces: such as between the model's call and the loss's.

A step's window, a module, or an annotation of the user's has its own time in pieces between its children. Where nothing
around tells the phase, each piece belongs to the one that its neighbours tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfguard.profile.trace.context import NO_STEP, Context
from perfguard.profile.trace.events import EventKind
from perfguard.profile.trace.nesting import NO_PARENT, IntArray
from perfguard.profile.trace.phases import PHASES, PhaseArray
from perfguard.profile.trace.trace import TimeArray, Trace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """Pieces of the own time of events, shape `(gaps,)`. Of one event they add up to its own time."""

    event: IntArray
    """The event."""
    phase: PhaseArray
    """Position in PHASES."""
    start_ns: TimeArray
    """Start, on the trace's clock."""
    duration_ns: TimeArray
    """Duration; may be 0."""
    ends_at_child: IntArray
    """1 where a child of the event comes next, 0 where the event ends."""
    is_first: IntArray
    """1 for the first gap of its event in its phase."""


def gaps_of(trace: Trace, context: Context, *, everywhere: bool = False) -> Gaps:
    """The gaps of events in steps that are no ops.

    Args:
        trace: The trace.
        context: Its context.
        everywhere: Of all of them; else of those that lie in nothing that tells a phase.
    """
    tree, timed = context.tree, trace.kind != EventKind.ALLOCATION
    is_wrapper = (context.is_outside | everywhere) & ~context.is_op & (context.step != NO_STEP) & timed
    wrapper = np.flatnonzero(is_wrapper)
    child = np.flatnonzero(timed & (tree.parent != NO_PARENT) & is_wrapper[tree.parent])
    # One gap before each child, then one at the end of each wrapper; the end goes on with what was done last.
    event = np.concatenate([tree.parent[child], wrapper])
    stops_ns = np.concatenate([trace.start_ns[child], tree.end_ns[wrapper]])
    resumes_ns = np.concatenate([tree.end_ns[child], tree.end_ns[wrapper]])
    told = np.concatenate([context.marks.phase_at(child, context.step[child]), context.phase[tree.stop[wrapper] - 1]])
    phase = np.where(context.is_outside[event], told, context.phase[event])
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
