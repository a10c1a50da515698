"""How often each op ran in each step and how long by itself: what two profiles are compared by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from perfguard.errors import MeasurementError
from perfguard.profile.op_times.typical_steps import FloatArray, middle_steps
from perfguard.profile.trace.context import NO_STEP, Context, context_of
from perfguard.profile.trace.events import EventKind
from perfguard.profile.trace.nesting import IntArray
from perfguard.profile.trace.op_spans import LineTimes, gaps_of, keyed, main_lines, python_lines
from perfguard.profile.trace.trace import Trace
from perfguard.records.protocol import MODULE_PREFIX
from perfguard.records.steps.ops import OpKey, OpTotal

_Numbers = npt.NDArray[np.integer]

_NS_PER_S = 1e9


class OpProfile(Struct, frozen=True, kw_only=True, eq=False):
    """Profiled steps of one arm. Time in no op is `PYTHON_OP` at its place, so that the keys make up the step."""

    keys: tuple[OpKey, ...]  # Kinds of ops, each once
    calls: IntArray  # Calls, shape `(steps, keys)`; of `PYTHON_OP` the annotations at its place
    module_calls: IntArray  # Those of the calls that are events of modules, shape `(steps, keys)`
    child_events: IntArray
    """Events directly in it, shape `(steps, keys)`; over the keys they add up to the step's. A part of what the
    profiler costs for an event is spent around it."""
    self_s: FloatArray
    """Seconds in it and in nothing below it, shape `(steps, keys)`; over the keys they add up to `wall_s`."""
    wall_s: FloatArray  # Seconds of the step's window, profiled, shape `(steps,)`
    process: IntArray  # Which process the step ran in, shape `(steps,)`
    sources: Mapping[OpKey, str]
    """Line of the user's code that led to an op, where known; of time in no op the line that took most of it."""
    python_lines: LineTimes = field(default_factory=dict)  # Seconds of lines in no op, where known

    @property
    def events(self) -> IntArray:
        """Events inside the step's window, shape `(steps,)`; each costs the profiler time."""
        events: IntArray = self.child_events.sum(axis=1)
        return events


def profile_of(trace: Trace, process: int = 0, *, context: Context | None = None) -> OpProfile:
    """The steps of one process's trace: of an op its own time; of what is none, the same in its phase, or in several.

    `context` is the trace's, where it is known already.
    """
    context = context or context_of(trace)
    tree, windows = context.tree, context.windows
    counted = trace.kind != EventKind.ALLOCATION
    whole = np.flatnonzero((context.is_op | ~context.is_outside) & counted & (context.step != NO_STEP))
    gaps = gaps_of(trace, context)
    event = np.concatenate([whole, gaps.event])
    kinds = keyed(trace, context, event, np.concatenate([context.phase[whole], gaps.phase]))
    shape = (windows.size, len(kinds.keys))
    cell = context.step[event] * shape[1] + kinds.key

    def table(of_whole: _Numbers, of_gaps: _Numbers) -> npt.NDArray[np.int64]:
        # Sums of whole numbers below 2**53 are exact in floating point.
        sums = np.bincount(cell, weights=np.concatenate([of_whole, of_gaps]), minlength=shape[0] * shape[1])
        return sums.astype(np.int64).reshape(shape)

    is_module = np.array([name.startswith(MODULE_PREFIX) for name in trace.names], dtype=np.int64)[trace.name]
    lines = python_lines(trace, context)
    return OpProfile(
        keys=kinds.keys,
        calls=table(np.ones_like(whole), gaps.is_first),
        self_s=table(tree.self_ns[whole], gaps.duration_ns) / _NS_PER_S,
        module_calls=table(is_module[whole], gaps.is_first * is_module[gaps.event]),
        child_events=table(tree.children(counted)[whole], gaps.ends_at_child),
        wall_s=(tree.end_ns[windows] - trace.start_ns[windows]) / _NS_PER_S,
        process=np.full(windows.size, process, dtype=np.intp),
        sources={**kinds.sources, **main_lines(lines)},
        python_lines=lines,
    )


def merge(profiles: Sequence[OpProfile]) -> OpProfile:
    """All steps of several profiles of one arm, in order; sources and lines of the first profile that knows them.

    Raises:
        MeasurementError: There is no profile.
    """
    if not profiles:
        raise MeasurementError("no step was profiled; look into the logs of the workers, then profile again")
    keys = tuple(dict.fromkeys(key for profile in profiles for key in profile.keys))
    column_of = {key: column for column, key in enumerate(keys)}
    columns = [np.array([column_of[key] for key in profile.keys], dtype=np.intp) for profile in profiles]

    def stacked(tables: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        wide = [np.zeros((table.shape[0], len(keys)), dtype=table.dtype) for table in tables]
        for rows, own, table in zip(wide, columns, tables, strict=True):
            rows[:, own] = table
        return np.concatenate(wide)

    return OpProfile(
        keys=keys,
        calls=stacked([profile.calls for profile in profiles]),
        module_calls=stacked([profile.module_calls for profile in profiles]),
        child_events=stacked([profile.child_events for profile in profiles]),
        self_s=stacked([profile.self_s for profile in profiles]),
        wall_s=np.concatenate([profile.wall_s for profile in profiles]),
        process=np.concatenate([profile.process for profile in profiles]),
        sources={key: source for profile in reversed(profiles) for key, source in profile.sources.items()},
        python_lines={key: lines for profile in reversed(profiles) for key, lines in profile.python_lines.items()},
    )


def totals(profile: OpProfile) -> tuple[OpTotal, ...]:
    """Each op's part of a typical step, the largest first: means over the middle third of each process's steps.

    The same steps for all ops, so they add up; what is in none of them is left out.
    """
    chosen = middle_steps(profile.wall_s, profile.process)
    calls, self_s = profile.calls[chosen].mean(axis=0).tolist(), profile.self_s[chosen].mean(axis=0).tolist()
    found = [
        OpTotal(key=key, calls=count, self_s=seconds, source=profile.sources.get(key))
        for key, count, seconds in zip(profile.keys, calls, self_s, strict=True)
        if count or seconds
    ]
    return tuple(sorted(found, key=lambda total: total.self_s, reverse=True))
