"""Which op of a step made which call of oneDNN or MKL, and so what computed each op.

No id links a verbose log with a trace. oneDNN's lines have timestamps, so a call belongs to the innermost op that
contains it and is more than a view: `clock_offset_ns` brings the clocks together. MKL's lines have none: `mkl_join`
places them by size and order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfguard.profile.libraries.mkl_join import Products, place_by_size
from perfguard.profile.libraries.verbose import PrimitiveCall
from perfguard.profile.trace.nesting import BoolArray, IntArray, TimeArray
from perfguard.profile.trace.op_groups import Group, group_of, is_bookkeeping, may_call_a_library
from perfguard.profile.trace.op_spans import NO_OP, TOLERANCE_NS, Nest, OpSpans
from perfguard.records.steps.ops import OpKey, PrimitiveTotal

NO_LIBRARY = "no library"
"""Of an op that called neither oneDNN nor MKL: torch's own loops compute it, or ops that it calls."""
MAX_OFFSET_NS = 1_000_000_000  # Clocks farther apart than this are not brought together
_NS_PER_S = 1_000_000_000
_REORDER = "reorder"
_BOTH_LIBRARIES = frozenset({"onednn", "mkl"})
_ENOUGH = 0.9
"""Share of the calls that must lie in an op of their kind for an offset of zero to be right. A few may be of ops with
unusual names, and a small offset would always be found that suits them, too."""
_MOST_CALLS = 256  # The longest calls are enough: they fit into the fewest ops
_MOST_PAIRS = 4_000_000  # Of a call and an op, for time and memory: fewer calls where there are many ops
_GROUPS = {
    "convolution": frozenset({Group.CONVOLUTION, Group.OTHER}),
    "deconvolution": frozenset({Group.CONVOLUTION, Group.OTHER}),
    "inner_product": frozenset({Group.MATMUL, Group.OTHER}),
    "matmul": frozenset({Group.MATMUL, Group.ATTENTION, Group.RECURRENT, Group.OTHER}),
    "rnn": frozenset({Group.RECURRENT, Group.OTHER}),
}
"""Ops that can have made a call of a primitive."""


class JoinedStep(Struct, frozen=True, kw_only=True):
    """The library calls of one step, each with the op that made it."""

    calls: tuple[PrimitiveCall, ...]  # Executions and creations, in the order of the log
    keys: tuple[OpKey | None, ...]  # The op of each call; None where it could not be placed
    offset_s: float  # What was added to the log's clock
    silent: frozenset[OpKey] = frozenset()  # Ops that certainly called no library whose log was read

    @property
    def unplaced(self) -> int:
        """Executions that belong to no known op."""
        return sum(key is None for _, key in self.executions())

    def executions(self) -> Iterator[tuple[PrimitiveCall, OpKey | None]]:
        """The calls that ran something, with their ops."""
        return ((call, key) for call, key in zip(self.calls, self.keys, strict=True) if call.executed)


def join_step(spans: OpSpans, calls: Sequence[PrimitiveCall]) -> JoinedStep:
    """Place the calls of oneDNN, MKL or both, in any order, that were logged in the step of some ops."""
    calls = sorted(calls, key=lambda call: call.line)
    calling = np.array([may_call_a_library(key.op) for key in spans.keys], dtype=np.bool_)
    computing = np.array([not is_bookkeeping(key.op) for key in spans.keys], dtype=np.bool_)
    leaves = Nest(spans, np.flatnonzero(calling[spans.key])).leaves()
    nest = Nest(spans, np.flatnonzero(computing[spans.key]))
    offset_ns = clock_offset_ns(spans, leaves, calls)
    rows = place_by_size(spans, leaves, calls, [_row_of(call, spans, nest, offset_ns) for call in calls])
    return JoinedStep(
        calls=tuple(calls),
        keys=tuple(None if row == NO_OP else spans.keys[int(spans.key[row])] for row in rows),
        offset_s=offset_ns / _NS_PER_S,
        silent=_silent(spans, calls, rows),
    )


def primitive_totals(steps: Sequence[JoinedStep]) -> tuple[PrimitiveTotal, ...]:
    """Executions by problem and place, averaged over steps of the same work, the longest first; none for no steps."""
    times_s: dict[PrimitiveTotal, list[float]] = defaultdict(list)
    for step in steps:
        for call, key in step.executions():
            times_s[_kind_of(call, key)].append(call.time_s)
    found = [
        replace(kind, calls=len(each) / len(steps), time_s=math.fsum(each) / len(steps))
        for kind, each in times_s.items()
    ]
    return tuple(sorted(found, key=lambda total: total.time_s, reverse=True))


def implementations(steps: Sequence[JoinedStep]) -> dict[OpKey, tuple[str, ...]]:
    """What oneDNN chose to run each op with, sorted; reorders as in `runners`."""
    return _names_by_op(steps, lambda call: call.implementation or None)


def runners(steps: Sequence[JoinedStep], logged: Collection[str]) -> dict[OpKey, tuple[str, ...]]:
    """`brg_matmul:avx512_core`, `sgemm of MKL` or `NO_LIBRARY` for each op, sorted; without ops of which it is unknown.

    Reorders of what goes into a primitive and comes out of it count only for ops that needed nothing else.

    That an op called no library is known only where the logs of both were read and are whole (`logged`): built without
    MKL, torch may use another library that keeps no log.
    """
    known = _names_by_op(steps, _runner)
    if steps and set(logged) >= _BOTH_LIBRARIES:
        silent = frozenset.intersection(*(step.silent for step in steps))
        known.update(dict.fromkeys(silent - set(known), (NO_LIBRARY,)))
    return known


def _runner(call: PrimitiveCall) -> str:
    if call.library == "mkl":
        return f"{call.primitive} of MKL"
    return f"{_REORDER} {call.implementation}" if call.primitive == _REORDER else call.implementation


def _names_by_op(
    steps: Sequence[JoinedStep], name_of: Callable[[PrimitiveCall], str | None]
) -> dict[OpKey, tuple[str, ...]]:
    """The names of each op's calls, but for the calls whose name is None."""
    found: dict[OpKey, set[str]] = defaultdict(set)
    reorders: dict[OpKey, set[str]] = defaultdict(set)
    for step in steps:
        for call, key in step.executions():
            name = name_of(call)
            if key is not None and name is not None:
                (reorders if call.primitive == _REORDER else found)[key].add(name)
    return {key: tuple(sorted(names - {""})) for key, names in {**reorders, **found}.items()}


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
        if row == NO_OP and call.executed and call.primitive != _REORDER
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


def clock_offset_ns(spans: OpSpans, leaves: IntArray, calls: Sequence[PrimitiveCall]) -> int:
    """How far the clock of a verbose log is from that of a trace: what to add to its times; 0 unless that is wrong.

    Both give the time of day, and the profiler converts its own clock to it, so they should agree; where the conversion
    is off, or was done on another clock, the difference is the same for all calls of a step. Convolutions, matrix
    products and recurrent layers show it: each must lie in an op of its kind, which it does for an interval of offsets.
    `leaves` are the innermost ops of the step that may call oneDNN.
    """
    most = min(_MOST_CALLS, max(1, _MOST_PAIRS // max(1, leaves.size)))
    usable = (call for call in calls if call.primitive in _GROUPS and call.timestamp_s is not None)
    chosen = sorted(usable, key=lambda call: call.time_s, reverse=True)[:most]
    if not chosen or not leaves.size:
        return 0
    starts_ns = np.array([spans.time_ns(call.timestamp_s or 0.0) for call in chosen], dtype=np.int64)
    ends_ns = starts_ns + np.array([round(call.time_s * 1e9) for call in chosen], dtype=np.int64)
    first_ns = spans.start_ns[leaves] - starts_ns[:, np.newaxis] - TOLERANCE_NS
    last_ns = spans.end_ns[leaves] - ends_ns[:, np.newaxis] + TOLERANCE_NS
    fits = _fitting([call.primitive for call in chosen], [spans.keys[key] for key in spans.key[leaves]])
    fits &= (first_ns <= last_ns) & (first_ns <= MAX_OFFSET_NS) & (last_ns >= -MAX_OFFSET_NS)
    at_zero = int((fits & (first_ns <= 0) & (last_ns >= 0)).any(axis=1).sum())
    if at_zero >= _ENOUGH * len(chosen) or not fits.any():
        return 0
    offset_ns, in_ops = _where_most_overlap(first_ns[fits], last_ns[fits])
    return offset_ns if in_ops > at_zero else 0


def _fitting(primitives: Sequence[str], keys: Sequence[OpKey]) -> BoolArray:
    """Whether an op can have made a call, shape `(calls, ops)`."""
    groups = [group_of(key.op) for key in keys]
    rows = {name: np.array([group in _GROUPS[name] for group in groups]) for name in set(primitives)}
    return np.stack([rows[name] for name in primitives])


def _where_most_overlap(first_ns: TimeArray, last_ns: TimeArray) -> tuple[int, int]:
    """The middle of the place that is in most intervals, the nearest to zero of several; and in how many it is."""
    changes = np.repeat([1, -1], first_ns.size)
    points, position = np.unique(np.concatenate([first_ns, last_ns + 1]), return_inverse=True)
    overlaps = np.cumsum(np.bincount(position, weights=changes)).astype(np.int64)
    best = np.flatnonzero(overlaps == overlaps.max())
    middles = (points[best] + points[best + 1]) // 2
    return int(middles[np.argmin(np.abs(middles))]), int(overlaps.max())
