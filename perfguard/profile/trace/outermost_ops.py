"""Which ops of a step are called by no other op."""

from __future__ import annotations

import numpy as np

from perfguard.profile.trace.context import NO_EVENT, Context
from perfguard.profile.trace.nesting import BoolArray, IntArray
from perfguard.profile.trace.op_groups import group_of
from perfguard.profile.trace.trace import Trace
from perfguard.records.steps.ops import PYTHON_OP

_NOT_DISPATCHED = frozenset({"autograd", PYTHON_OP})
_PROFILERS_OWN = "profiler::"


def outermost_ops(trace: Trace, context: Context) -> IntArray:
    """Positions of the ops within steps that lie in no other op, in the trace's order.

    An op that calls itself is passed through to that inner call, whatever else it calls: one overload leads to another
    then, or autocast has cast the arguments, and only the inner call has the dtypes that are computed in.
    """
    dispatched = np.array([_is_dispatched(name) for name in trace.names], dtype=np.bool_)
    # One element more, for the parent that is none.
    is_op = np.append(context.is_op & dispatched[trace.name], [False])
    real = is_op.copy()
    real[_calling_themselves(trace, context, is_op)] = False
    below = np.zeros(real.size, dtype=np.bool_)
    for level in context.tree.levels:
        parent = context.tree.parent[level]
        below[level] = below[parent] | real[parent]
    return np.flatnonzero(real[:-1] & ~below[:-1] & (context.step >= 0))


def _calling_themselves(trace: Trace, context: Context, is_op: BoolArray) -> IntArray:
    above = np.full(is_op.size, NO_EVENT, dtype=np.intp)
    for level in context.tree.levels:
        parent = context.tree.parent[level]
        above[level] = np.where(is_op[parent], parent, above[parent])
    inner = np.flatnonzero(is_op & (above != NO_EVENT))
    outer: IntArray = above[inner]
    themselves: IntArray = outer[trace.name[outer] == trace.name[inner]]
    return themselves


def _is_dispatched(name: str) -> bool:
    return group_of(name) not in _NOT_DISPATCHED and not name.startswith(_PROFILERS_OWN)
