"""The outermost ops of a trace, and what chosen events were called with, as it stands in the file: a second look at it.

A trace keeps of its events only what every reader needs; few need the plain arguments of an op, and of few events.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from perfguard.profile.trace.context import NO_EVENT, Context
from perfguard.profile.trace.events import TensorArguments
from perfguard.profile.trace.file import TraceFile
from perfguard.profile.trace.nesting import IntArray
from perfguard.profile.trace.op_groups import group_of
from perfguard.profile.trace.trace import Trace
from perfguard.records.steps.ops import PYTHON_OP

_NOT_DISPATCHED = frozenset({"autograd", PYTHON_OP})
_PROFILERS_OWN = "profiler::"
_NOTHING = b"null"
_FRACTION = re.compile(rb"-?\d+\.\d*(?:e[+-]?\d+)?")
_DIGITS = 10
"""Of a fraction that somebody wrote; those with more were computed, as a step size that changes from step to step."""


def outermost_ops(trace: Trace, context: Context) -> IntArray:
    """Positions of the ops within steps that lie in no other op, in the trace's order.

    An op that calls itself is passed through to that inner call, whatever else it calls: one overload leads to another
    then, or autocast has cast the arguments, and only the inner call has the dtypes that are computed in.
    """
    dispatched = np.array([group_of(name) not in _NOT_DISPATCHED for name in trace.names], dtype=np.bool_)
    # One element more, for the parent that is none.
    dispatched = dispatched[trace.name] & ~trace.begins_with(_PROFILERS_OWN)
    is_op = np.append(context.is_op & dispatched, [False])
    real = is_op.copy()
    above = np.full(is_op.size, NO_EVENT, dtype=np.intp)
    for level in context.tree.levels:
        parent = context.tree.parent[level]
        above[level] = np.where(is_op[parent], parent, above[parent])
    inner = np.flatnonzero(is_op & (above != NO_EVENT))
    outer = above[inner]
    real[outer[trace.name[outer] == trace.name[inner]]] = False
    below = np.zeros(real.size, dtype=np.bool_)
    for level in context.tree.levels:
        parent = context.tree.parent[level]
        below[level] = below[parent] | real[parent]
    return np.flatnonzero(real[:-1] & ~below[:-1] & (context.step >= 0))


class RawCall(NamedTuple):
    """An op, its `Input Dims`, `Input type`, `Input Strides` and `Concrete Inputs`, as written in JSON; null for none.

    What is equal was called with equal arguments.
    """

    name: str
    dims: bytes = _NOTHING
    types: bytes = _NOTHING
    strides: bytes = _NOTHING
    concrete: bytes = _NOTHING


class _Arguments(TensorArguments, gc=False, frozen=True):
    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw(_NOTHING))


class _CallEvent(msgspec.Struct, gc=False, frozen=True):
    ph: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: _Arguments = _Arguments()


def recorded_calls(path: Path, trace: Trace, positions: IntArray) -> dict[int, RawCall]:
    """The calls of some events of a trace, by their positions; without those that are not found.

    `path` is the file that the trace was read from. Events are recognised by name, start and duration; two that share
    all three are taken to be the same call.

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
                args = event.args
                # Copied, so that the piece of the file around them is not kept.
                texts = map(bytes, (args.dims, args.types, args.strides, args.concrete))
                found.update(dict.fromkeys(wanted.pop(key), RawCall(event.name, *texts)))
    return found


def same_work(call: RawCall) -> RawCall:
    """The call without its computed fractions: two that are equal then do the same, with other numbers."""

    def written(found: re.Match[bytes]) -> bytes:
        return found[0] if len(repr(float(found[0]))) <= _DIGITS else b"computed"

    return call._replace(concrete=_FRACTION.sub(written, call.concrete))
