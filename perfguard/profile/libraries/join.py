"""Which op of a step made which call of oneDNN or MKL.

No id links a verbose log with a trace. oneDNN's lines have timestamps, so a call belongs to the innermost op that
contains it and is more than a view: `clock_offset` brings the clocks together. MKL's lines have none: `mkl_join` places
them by size and order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfguard.profile.libraries.clock_offset import clock_offset_ns
from perfguard.profile.libraries.mkl_join import place_by_size
from perfguard.profile.libraries.mkl_products import Products
from perfguard.profile.libraries.onednn_verbose import PrimitiveCall
from perfguard.profile.trace.op_groups import is_bookkeeping, may_call_a_library
from perfguard.profile.trace.op_spans import NO_OP, Nest, OpSpans
from perfguard.records.steps.ops import OpKey, PrimitiveTotal

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedStep:
    """The library calls of one step, each with the op that made it."""

    calls: tuple[PrimitiveCall, ...]
    """Executions and creations, in the order of the log."""
    keys: tuple[OpKey | None, ...]
    """The op of each call; None where it could not be placed."""
    offset_s: float
    """What was added to the log's clock."""
    silent: frozenset[OpKey] = frozenset()
    """Ops that certainly called no library whose log was read."""

    @property
    def unplaced(self) -> int:
        """Executions that belong to no known op."""
        return sum(key is None and call.executed for call, key in zip(self.calls, self.keys, strict=True))


def join_step(spans: OpSpans, calls: Sequence[PrimitiveCall]) -> JoinedStep:
    """Place the calls that were logged in one step.

    Args:
        spans: The ops of that step.
        calls: Of oneDNN, MKL or both, in any order.
    """
    calls = sorted(calls, key=lambda call: call.line)
    calling = np.array([may_call_a_library(key.op) for key in spans.keys], dtype=np.bool_)
    computing = np.array([not is_bookkeeping(key.op) for key in spans.keys], dtype=np.bool_)
    leaves = Nest(spans, np.flatnonzero(calling[spans.key])).leaves()
    nest = Nest(spans, np.flatnonzero(computing[spans.key]))
    offset_ns = clock_offset_ns(spans, leaves, calls)
    rows = place_by_size(spans, leaves, calls, [_row_of(call, spans, nest, offset_ns) for call in calls])
    return JoinedStep(
        calls=tuple(calls),
        keys=tuple(spans.key_of(row) for row in rows),
        offset_s=offset_ns / _NS_PER_S,
        silent=_silent(spans, calls, rows),
    )


def primitive_totals(steps: Sequence[JoinedStep]) -> tuple[PrimitiveTotal, ...]:
    """Executions by problem and place, averaged over the steps, the longest first.

    Args:
        steps: Of the same work, from any process; none give nothing.
    """
    times_s: dict[PrimitiveTotal, list[float]] = defaultdict(list)
    for step in steps:
        for call, key in zip(step.calls, step.keys, strict=True):
            if call.executed:
                times_s[_kind_of(call, key)].append(call.time_s)
    found = [
        replace(kind, calls=len(each) / len(steps), time_s=math.fsum(each) / len(steps))
        for kind, each in times_s.items()
    ]
    return tuple(sorted(found, key=lambda total: total.time_s, reverse=True))


def implementations(steps: Sequence[JoinedStep]) -> dict[OpKey, tuple[str, ...]]:
    """What oneDNN chose to run each op with, sorted.

    Reorders of what goes into a primitive and comes out of it count only for ops that needed nothing else.
    """
    chosen: dict[OpKey, set[str]] = defaultdict(set)
    reorders: dict[OpKey, set[str]] = defaultdict(set)
    for step in steps:
        for call, key in zip(step.calls, step.keys, strict=True):
            if key is not None and call.executed and call.implementation:
                (reorders if call.primitive == "reorder" else chosen)[key].add(call.implementation)
    return {key: tuple(sorted(names)) for key, names in {**reorders, **chosen}.items()}


def _row_of(call: PrimitiveCall, spans: OpSpans, nest: Nest, offset_ns: int) -> int:
    if call.timestamp_s is None:
        return NO_OP
    start_ns = spans.time_ns(call.timestamp_s) + offset_ns
    return nest.innermost(start_ns, start_ns + round(call.time_s * _NS_PER_S))


def _silent(spans: OpSpans, calls: Sequence[PrimitiveCall], rows: Sequence[int]) -> frozenset[OpKey]:
    """Ops without a call. One that could not be placed may be any op's; a product of MKL's, any with its dtype."""
    lost = {
        (call.library, call.primitive)
        for call, row in zip(calls, rows, strict=True)
        if row == NO_OP and call.executed and call.primitive != "reorder"
    }
    if any(library != "mkl" or routine == "fft" for library, routine in lost):
        return frozenset()
    products = Products(spans.keys)
    calling = {int(spans.key[row]) for row in rows if row != NO_OP}
    return frozenset(
        key
        for position, key in enumerate(spans.keys)
        if position not in calling and not any(products.has_dtype(routine, position) for _, routine in lost)
    )


def _kind_of(call: PrimitiveCall, key: OpKey | None) -> PrimitiveTotal:
    """What calls are added up by: a total of none."""
    return PrimitiveTotal(
        library=call.library,
        primitive=call.primitive,
        direction=call.direction,
        implementation=call.implementation,
        memory=call.memory,
        problem=call.problem,
        calls=0,
        time_s=0.0,
        phase=key.phase if key is not None else None,
        module=key.module if key is not None else "",
        op=key.op if key is not None else "",
    )
