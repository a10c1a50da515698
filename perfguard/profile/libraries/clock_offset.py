"""How far the clock of a verbose log is from that of a trace.

Both tell the time of day, and the profiler converts its own clock to it, so they should agree; where the conversion is
off, or was done on another clock, the difference is the same for all calls of a step. Convolutions, matrix products and
recurrent layers tell it: each must lie in an op of its kind, which it does for an interval of offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfguard.profile.libraries.onednn_verbose import PrimitiveCall
from perfguard.profile.trace.op_groups import Group, group_of
from perfguard.profile.trace.op_spans import TOLERANCE_NS, IntArray, OpSpans, TimeArray
from perfguard.records.steps.ops import OpKey

BoolArray = npt.NDArray[np.bool_]

MAX_OFFSET_NS = 1_000_000_000
"""Clocks farther apart than this are not brought together."""
_ENOUGH = 0.9
"""Share of the calls that must lie in an op of their kind for an offset of zero to be right. A few may be of ops with
unusual names, and a small offset would always be found that suits them, too."""
_MOST_CALLS = 256
"""The longest calls are enough: they fit into the fewest ops."""
_MOST_PAIRS = 4_000_000
"""Of a call and an op, for time and memory: fewer calls where there are many ops."""
_GROUPS: Mapping[str, frozenset[Group]] = {
    "convolution": frozenset({Group.CONVOLUTION, Group.OTHER}),
    "deconvolution": frozenset({Group.CONVOLUTION, Group.OTHER}),
    "inner_product": frozenset({Group.MATMUL, Group.OTHER}),
    "matmul": frozenset({Group.MATMUL, Group.ATTENTION, Group.RECURRENT, Group.OTHER}),
    "rnn": frozenset({Group.RECURRENT, Group.OTHER}),
}


def clock_offset_ns(spans: OpSpans, leaves: IntArray, calls: Sequence[PrimitiveCall]) -> int:
    """What to add to the log's times; 0 where nothing speaks against it.

    Args:
        spans: The ops of the step.
        leaves: Rows of the innermost ops that may call oneDNN.
        calls: Of that step.
    """
    telling = [call for call in calls if call.primitive in _GROUPS and call.timestamp_s is not None]
    most = min(_MOST_CALLS, max(1, _MOST_PAIRS // max(1, leaves.size)))
    telling = sorted(telling, key=lambda call: call.time_s, reverse=True)[:most]
    if not telling or not leaves.size:
        return 0
    starts_ns = np.array([spans.time_ns(call.timestamp_s or 0.0) for call in telling], dtype=np.int64)
    ends_ns = starts_ns + np.array([round(call.time_s * 1e9) for call in telling], dtype=np.int64)
    first_ns = spans.start_ns[leaves] - starts_ns[:, np.newaxis] - TOLERANCE_NS
    last_ns = spans.end_ns[leaves] - ends_ns[:, np.newaxis] + TOLERANCE_NS
    fits = _fitting([call.primitive for call in telling], [spans.keys[key] for key in spans.key[leaves]])
    fits &= (first_ns <= last_ns) & (first_ns <= MAX_OFFSET_NS) & (last_ns >= -MAX_OFFSET_NS)
    at_zero = int((fits & (first_ns <= 0) & (last_ns >= 0)).any(axis=1).sum())
    if at_zero >= _ENOUGH * len(telling) or not fits.any():
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
