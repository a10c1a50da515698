"""What ops must ask MKL for, as far as their tensors tell: sizes of products, and how many of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import prod

from perfguard.profile.libraries.verbose import PrimitiveCall
from perfguard.profile.trace.op_groups import Group, base_name, group_of
from perfguard.records.steps.ops import OpKey

Sizes = tuple[int, ...]
"""Of a product, sorted, because torch may ask for the transposed one; empty where a log gives addresses instead."""
Shape = tuple[int, ...]

_DTYPES = (("gemm_bf16", "bf16"), ("gemm_f16", "f16"), ("s", "f32"), ("d", "f64"), ("c", "c64"), ("z", "c128"))
"""By how the names of routines begin."""
_SIZES_OF_ROUTINES = (("gemm", 3), ("gemv", 2), ("dot", 1))
_OWN_SIZES = frozenset({Group.ATTENTION, Group.CONVOLUTION, Group.RECURRENT, Group.LINALG, Group.OTHER})
"""Ops that multiply matrices of other sizes than their tensors."""
_IM2COL = "slow_conv2d"
"""In the names of convolutions that multiply whole images, whose sizes are known."""
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


def sizes_of(call: PrimitiveCall) -> Sizes:
    """The sizes of the product that a call computes."""
    count = next((count for name, count in _SIZES_OF_ROUTINES if name in call.primitive), 0)
    words = [word for word in call.problem.split(",") if _NUMBER.fullmatch(word)][:count]
    return tuple(sorted(map(int, words))) if len(words) == count else ()


class Products:
    """What the ops of one step ask for. A convolution's backward tells what size its forward's result has."""

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
