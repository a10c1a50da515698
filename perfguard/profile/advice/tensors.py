"""The tensors in an op's key, read back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from perfguard.records.steps.ops import OpKey

CHANNELS_LAST = frozenset({"channels_last", "channels_last_3d"})
"""Layouts with the channels the fastest."""
LOW_PRECISION = frozenset({"bf16", "f16"})
"""dtypes with less than half of f32's bits of precision."""
FLOATING = LOW_PRECISION | {"f32", "f64"}
"""dtypes of numbers that are computed with."""

_SHAPE = re.compile(r"\[([\d,]*)\]")
_LIST = re.compile(r"\{\d+:(\d+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of a call."""

    shape: tuple[int, ...]
    """Empty for a scalar, and for a list of tensors."""
    dtype: str
    """`f32`; empty where the trace does not tell."""
    layout: str
    """`channels_last`; empty where the trace does not tell."""
    elements: int
    """Of a list those of all its tensors."""

    @property
    def image_layout(self) -> str:
        """Layout of images or volumes; empty for other tensors, and where one channel or one pixel leaves it open."""
        has_choice = len(self.shape) in {4, 5} and self.shape[1] > 1 and prod(self.shape[2:]) > 1
        return self.layout if has_choice else ""


@lru_cache(maxsize=1 << 16)
def tensors_of(key: OpKey) -> tuple[Tensor, ...]:
    """Tensors in the order of the arguments; none where the trace has no shapes."""
    shapes = key.shapes.split()
    known = [
        words if len(words) == len(shapes) else [""] * len(shapes)
        for words in (key.dtypes.split(), key.layouts.split())
    ]
    return tuple(_tensor(*words) for words in zip(shapes, *known, strict=True))


def largest(key: OpKey) -> int:
    """Elements of an op's largest tensor; 0 without any."""
    return max((tensor.elements for tensor in tensors_of(key)), default=0)


def _tensor(shape: str, dtype: str, layout: str) -> Tensor:
    sizes = _SHAPE.fullmatch(shape)
    if sizes is not None:
        dims = tuple(int(size) for size in sizes[1].split(",") if size)
        return Tensor(shape=dims, dtype=dtype, layout=layout, elements=prod(dims))
    listed = _LIST.fullmatch(shape)
    return Tensor(shape=(), dtype=dtype, layout=layout, elements=int(listed[1]) if listed else 0)
