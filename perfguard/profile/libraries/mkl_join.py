"""Which op made which call of MKL: its log has neither times of day nor names of ops, but sizes and an order.

Ops whose products have the size of some calls, and are together as many, made them: they are dealt out in order. What
is left between two placed calls is shared out among the ops there in the way that goes by sizes, numbers and order; of
attention, which works in blocks, the sizes are not known. Where there are several such ways, nothing is placed.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import chain, groupby, pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from perfguard.profile.libraries.verbose import PrimitiveCall
from perfguard.profile.trace.nesting import IntArray
from perfguard.profile.trace.op_groups import Group, base_name, group_of
from perfguard.profile.trace.op_spans import NO_OP, OpSpans
from perfguard.records.steps.ops import OpKey

Sizes = tuple[int, ...]
"""Of a product, sorted, because torch may ask for the transposed one; empty where a log gives addresses instead."""
Shape = tuple[int, ...]

_DTYPES = (("gemm_bf16", "bf16"), ("gemm_f16", "f16"), ("s", "f32"), ("d", "f64"), ("c", "c64"), ("z", "c128"))
"""By how the names of routines begin."""
_SIZES_OF_ROUTINES = (("gemm", 3), ("gemv", 2), ("dot", 1))
_OWN_SIZES = frozenset({Group.ATTENTION, Group.CONVOLUTION, Group.RECURRENT, Group.LINALG, Group.OTHER})
"""Ops that multiply matrices of other sizes than their tensors."""
_IM2COL = "slow_conv2d"  # In the names of convolutions that multiply whole images, whose sizes are known
_BATCHED = frozenset({"bmm", "baddbmm"})
_SMALLEST_BATCHED = 400
"""Multiplications in one product of a batch below which torch does them itself: `bmm_out_or_baddbmm_` in
aten/src/ATen/native/LinearAlgebra.cpp."""
_BLOCK_PRODUCTS = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": 2,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": 5,
}
"""Products that attention makes of each block: aten/src/ATen/native/cpu/FlashAttentionKernel.cpp."""
_STRIDES = (1, 2, 4)
_SHAPE = re.compile(r"\[(\d+(?:,\d+)*)\]", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_MOST_CELLS = 500_000  # Items times takers that are looked at
_LONG_AGO, _LATER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def sizes_of(call: PrimitiveCall) -> Sizes:
    """The sizes of the product that a call computes."""
    count = next((count for name, count in _SIZES_OF_ROUTINES if name in call.primitive), 0)
    words = [word for word in call.problem.split(",") if _NUMBER.fullmatch(word)][:count]
    return tuple(sorted(map(int, words))) if len(words) == count else ()


class Products:
    """What the ops of one step ask for. A convolution's backward gives the size of its forward's result."""

    def __init__(self, keys: Sequence[OpKey]) -> None:
        self._keys = keys
        self._places: dict[tuple[Shape, ...], set[int]] = defaultdict(set)
        for key in keys:
            shapes = _shapes_of(key)
            if _IM2COL in key.op and "backward" in key.op and len(shapes) > 2:
                self._places[shapes[1:3]].add(prod(shapes[0][2:]))
        self._found: dict[tuple[str, Sizes], list[tuple[int, ...]]] = {}

    def counts(self, routine: str, sizes: Sizes) -> list[tuple[int, ...]]:
        """How many calls of a routine with these sizes each op makes, the likeliest number first; empty for none."""
        kind = (routine, sizes)
        if kind not in self._found:
            self._found[kind] = [self._counts(routine, sizes, position) for position in range(len(self._keys))]
        return self._found[kind]

    def has_own_sizes(self, position: int) -> bool:
        """Whether an op's products have other sizes than its tensors."""
        op = self._keys[position].op
        return group_of(op) in _OWN_SIZES and _IM2COL not in op

    def has_one_size(self, position: int) -> bool:
        """Whether the size of an op's products is known for sure."""
        key = self._keys[position]
        if _IM2COL not in key.op or "backward" in key.op:
            return True
        return len(self._places.get(_shapes_of(key)[:2], ())) == 1

    def has_dtype(self, routine: str, position: int) -> bool:
        """Whether a routine computes in the dtype of one of an op's tensors."""
        dtype = next((dtype for name, dtype in _DTYPES if routine.startswith(name)), None)
        return dtype in self._keys[position].dtypes.split()

    def _counts(self, routine: str, sizes: Sizes, position: int) -> tuple[int, ...]:
        key = self._keys[position]
        base, shapes = base_name(key.op), _shapes_of(key)
        if routine == "fft":
            return (1,) if base.startswith("fft_") else ()
        if not self.has_dtype(routine, position):
            return ()
        if _IM2COL in key.op:
            return self._counts_of_convolution(sizes, shapes, is_backward="backward" in key.op)
        found = _sizes_of_product(shapes) if group_of(key.op) is Group.MATMUL else ()
        if base in _BATCHED:
            return (1,) if routine.endswith("gemm_batch") and prod(found) >= _SMALLEST_BATCHED else ()
        return (1,) if found and found == sizes else ()

    def _counts_of_convolution(self, sizes: Sizes, shapes: Sequence[Shape], *, is_backward: bool) -> tuple[int, ...]:
        """One for each image; backward two, or one where the input has no gradient."""
        if len(shapes) < 2 + is_backward:
            return ()
        images, weights = shapes[is_backward], shapes[1 + is_backward]
        places = {prod(shapes[0][2:])} if is_backward else self._places.get((images, weights))
        outer, inner = weights[0], prod(weights[1:])
        known = {tuple(sorted((outer, inner, count))) for count in places or _places(images, weights)}
        if sizes not in known or not images[0]:
            return ()
        return (2 * images[0], images[0]) if is_backward else (images[0],)


def blocks_of(keys: Sequence[OpKey], calls: int) -> list[int] | None:
    """How many of some calls each of several attentions made, if they work in the same blocks; else None."""
    products = [_BLOCK_PRODUCTS.get(key.op, 0) for key in keys]
    if not keys or 0 in products or calls % sum(products) or len({_shapes_of(key)[:1] for key in keys}) > 1:
        return None
    return [calls // sum(products) * count for count in products]


@lru_cache(maxsize=1 << 14)
def _shapes_of(key: OpKey) -> tuple[Shape, ...]:
    return tuple(tuple(map(int, text.split(","))) for text in _SHAPE.findall(key.shapes))


def _sizes_of_product(shapes: Sequence[Shape]) -> Sizes:
    """Of the first neighbours that can be multiplied: what is added stands before them, what an `out` is behind."""
    for left, right in pairwise(shapes):
        if len(right) == 1 and left[-1] == right[0]:
            return tuple(sorted(left))
        if min(len(left), len(right)) > 1 and left[-1] == right[-2]:
            return tuple(sorted((*left[-2:], right[-1])))
    return ()


def _places(images: Shape, weights: Shape) -> set[int]:
    """How many places a convolution's result can have. Strides and padding are not among its tensors."""
    lengths = [
        {
            (length + 2 * padding - kernel) // stride + 1
            for padding in range(kernel // 2 + 1)
            for stride in _STRIDES
            if length + 2 * padding >= kernel
        }
        for length, kernel in zip(images[2:], weights[2:], strict=False)
    ]
    return {prod(place) for place in product(*lengths)}


def place_by_size(spans: OpSpans, leaves: IntArray, calls: Sequence[PrimitiveCall], rows: Sequence[int]) -> list[int]:
    """Rows of the ops of all calls of a step, in the order of the log.

    `leaves` are the innermost ops that may call MKL; `rows` are known for calls of oneDNN, `NO_OP` for the others.
    """
    join = _Join(spans, leaves, calls, rows)
    join.deal_out()
    join.fill_gaps()
    return join.rows


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
        """Place the calls of a size where the ops of that size make as many, in the order of the log."""
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
            placed, starts_ns = self._placed()
            gaps = np.searchsorted(placed, indices).tolist()
            if len(rows) == len(indices) and all(map(partial(self._may_call, starts_ns), gaps, rows)):
                self._place(indices, rows)

    def fill_gaps(self) -> None:
        """Share out what lies between placed calls among the ops there."""
        placed, starts_ns = self._placed()
        known = set(self.rows)
        for gap, group in groupby(self._missing(), lambda index: int(np.searchsorted(placed, index))):
            indices = list(group)
            between = [row for row in self._ops if self._may_call(starts_ns, gap, row)]
            takers = {row: self._taker(row, indices, is_known=row in known) for row in between}
            takers = {row: taker for row, taker in takers.items() if any(taker.fits)}
            shares = share_out(len(indices), list(takers.values()))
            if shares is None:
                shares = blocks_of([self._spans.keys[int(self._spans.key[row])] for row in takers], len(indices))
            if shares is not None:
                self._place(indices, [row for row, share in zip(takers, shares, strict=True) for _ in range(share)])

    def _placed(self) -> tuple[IntArray, list[int]]:
        """The placed calls, and when their ops started, with the ends of time around them.

        What stands between two placed calls in the log was called between them.
        """
        placed = np.flatnonzero(np.array(self.rows, dtype=np.intp) != NO_OP)
        starts_ns = (int(self._spans.start_ns[self.rows[index]]) for index in placed.tolist())
        return placed, [_LONG_AGO, *starts_ns, _LATER]

    def _may_call(self, starts_ns: Sequence[int], gap: int, row: int) -> bool:
        """Whether an op may have made a call before the `gap`-th placed one; an op at an edge may have made several."""
        return bool(starts_ns[gap] <= self._spans.start_ns[row] <= starts_ns[gap + 1])

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


class Taker(Struct, frozen=True, kw_only=True):
    """What takes some items in a row."""

    fits: Sequence[bool]  # Whether it takes each item
    counts: tuple[int, ...] = ()  # How many it takes, the likeliest first; empty for any number
    has_enough: bool = False  # Whether it is not expected to take any


class _Best(NamedTuple):
    """The best way to share out what is left among the takers that are left."""

    cost: float
    """1 for an unlikely number and for an item of a taker that has enough, 2 for a taker that goes without."""
    ways: int  # In how many ways that can be, up to 2
    taken: int  # How many the first taker takes in one of them

    def after(self, taken: int, *, cost: int) -> _Best:
        """The way in which a taker takes some items first."""
        return _Best(self.cost + cost, self.ways, taken)


_NO_WAY = _Best(math.inf, 0, 0)


def share_out(items: int, takers: Sequence[Taker]) -> list[int] | None:
    """How many of some items in a row each taker takes in turn, so that none is left and the cost is the lowest.

    None if there is no way, if several are as good, or if there is too much to try.
    """
    if items * len(takers) > _MOST_CELLS:
        return None
    # For each taker the best way from each item on, from the last taker to the first.
    tables = [[*[_NO_WAY] * items, _Best(0, 1, 0)]]
    for taker in reversed(takers):
        tables.append(_table(taker, tables[-1]))
    if tables[-1][0].ways != 1:
        return None
    shares: list[int] = []
    for table in reversed(tables[1:]):
        shares.append(table[sum(shares)].taken)
    return shares


def _table(taker: Taker, behind: Sequence[_Best]) -> list[_Best]:
    """The best way from each item on, given that of the takers behind."""
    items = len(behind) - 1
    idle, surplus = (0, 1) if taker.has_enough else (2, 0)
    table = [behind[items].after(0, cost=idle)] * (items + 1)
    in_a_row, some = 0, _NO_WAY
    for position in range(items - 1, -1, -1):
        in_a_row = in_a_row + 1 if taker.fits[position] else 0
        ways = [behind[position].after(0, cost=idle)]
        for rank, count in enumerate(taker.counts):
            if count <= in_a_row:
                ways.append(behind[position + count].after(count, cost=min(rank, 1)))
        if not taker.counts:
            # Any number: this item alone, or this one and what it takes from the next one on.
            more = [behind[position + 1].after(1, cost=surplus), some.after(some.taken + 1, cost=surplus)]
            some = _best(more) if in_a_row else _NO_WAY
            ways.append(some)
        table[position] = _best(ways)
    return table


def _best(ways: Sequence[_Best]) -> _Best:
    cost = min(way.cost for way in ways)
    cheapest = [way for way in ways if way.cost == cost]
    return _Best(cost, min(2, sum(way.ways for way in cheapest)), cheapest[0].taken)
