"""Which op made which call of MKL: its log has neither times of day nor names of ops, but sizes and an order.

Ops whose products have the size of some calls, and are together as many, made them: they are dealt out in order. What
is left between two placed calls is shared out among the ops there in the way that goes by sizes, numbers and order; of
attention, which works in blocks, the sizes are not known. Where there are several such ways, nothing is placed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, groupby

import numpy as np

from perfguard.profile.libraries.mkl_products import Products, blocks_of, sizes_of
from perfguard.profile.libraries.onednn_verbose import PrimitiveCall
from perfguard.profile.libraries.tiling import Taker, share_out
from perfguard.profile.trace.op_spans import NO_OP, IntArray, OpSpans

_LONG_AGO, _LATER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def place_by_size(spans: OpSpans, leaves: IntArray, calls: Sequence[PrimitiveCall], rows: Sequence[int]) -> list[int]:
    """Rows of the ops of all calls, where those of oneDNN's are known.

    Args:
        spans: The ops of the step.
        leaves: Rows of the innermost ops that may call MKL.
        calls: In the order of the log.
        rows: Row of the op of each call, `NO_OP` where it is not known.
    """
    join = _Join(spans, leaves, calls, rows)
    join.deal_out()
    join.fill_gaps()
    return join.rows


class _Edges:
    """The placed calls of a step: what stands between two of them in the log was called between them."""

    def __init__(self, spans: OpSpans, rows: Sequence[int]) -> None:
        self._index = np.flatnonzero(np.array(rows, dtype=np.intp) != NO_OP)
        starts_ns = (int(spans.start_ns[rows[index]]) for index in self._index.tolist())
        self._starts_ns = [_LONG_AGO, *starts_ns, _LATER]
        self._spans = spans

    def gap(self, index: int) -> int:
        """How many placed calls stand before another."""
        return int(np.searchsorted(self._index, index))

    def include(self, gap: int, row: int) -> bool:
        """Whether an op may have made a call in a gap; those at its edges may have made more than one."""
        return bool(self._starts_ns[gap] <= self._spans.start_ns[row] <= self._starts_ns[gap + 1])


class _Join:
    """Calls and ops of a step."""

    def __init__(self, spans: OpSpans, leaves: IntArray, calls: Sequence[PrimitiveCall], rows: Sequence[int]) -> None:
        self.rows = list(rows)
        self._spans = spans
        self._calls = calls
        self._kinds = [(call.primitive, sizes_of(call)) for call in calls]
        self._products = Products(spans.keys)
        self._ops: list[int] = leaves[np.argsort(spans.start_ns[leaves], kind="stable")].tolist()

    def deal_out(self) -> None:
        """Place the calls of a size where the ops of that size make as many, in no other order than that of the log."""
        taken = set(self.rows)
        members: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
        for index in self._missing():
            members[self._kinds[index]].append(index)
        for kind, indices in members.items():
            counts = self._products.counts(*kind)
            ops = [(row, int(self._spans.key[row])) for row in self._ops if row not in taken]
            ops = [(row, position) for row, position in ops if counts[position]]
            if not all(self._products.has_one_size(position) for _, position in ops):
                continue
            rows = [row for row, position in ops for _ in range(counts[position][0])]
            edges = _Edges(self._spans, self.rows)
            if len(rows) == len(indices) and all(map(edges.include, map(edges.gap, indices), rows)):
                self._place(indices, rows)

    def fill_gaps(self) -> None:
        """Share out what lies between placed calls among the ops there."""
        edges = _Edges(self._spans, self.rows)
        known = set(self.rows)
        for gap, group in groupby(self._missing(), edges.gap):
            indices = list(group)
            between = [row for row in self._ops if edges.include(gap, row)]
            takers = {row: self._taker(row, indices, is_known=row in known) for row in between}
            takers = {row: taker for row, taker in takers.items() if any(taker.fits)}
            shares = share_out(len(indices), list(takers.values()))
            if shares is None:
                shares = blocks_of([self._spans.keys[int(self._spans.key[row])] for row in takers], len(indices))
            if shares is not None:
                self._place(indices, [row for row, share in zip(takers, shares, strict=True) for _ in range(share)])

    def _missing(self) -> list[int]:
        calls = zip(self._calls, self.rows, strict=True)
        return [index for index, (call, row) in enumerate(calls) if call.library == "mkl" and row == NO_OP]

    def _taker(self, row: int, indices: Sequence[int], *, is_known: bool) -> Taker:
        """How an op takes calls. One that made some made no more, but for such as have sizes of their own."""
        position = int(self._spans.key[row])
        if self._products.has_own_sizes(position):
            fits = [self._products.has_dtype(self._kinds[index][0], position) for index in indices]
            return Taker(fits=fits, has_enough=is_known)
        counts = [self._products.counts(*self._kinds[index])[position] for index in indices]
        fits = [bool(count) and not is_known for count in counts]
        return Taker(fits=fits, counts=tuple(dict.fromkeys(chain(*counts))))

    def _place(self, indices: Sequence[int], rows: Sequence[int]) -> None:
        """Place calls, unless an op would have made calls that take longer than itself."""
        spent_s: dict[int, float] = defaultdict(float)
        for index, row in zip(indices, rows, strict=True):
            spent_s[row] += self._calls[index].time_s
        lengths_ns = self._spans.end_ns - self._spans.start_ns
        if all(time_s * 1e9 <= lengths_ns[row] for row, time_s in spent_s.items()):
            for index, row in zip(indices, rows, strict=True):
                self.rows[index] = row
