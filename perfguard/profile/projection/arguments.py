"""The arguments of a recorded call as tensors and plain values, and how much a call has to do at the least."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import NamedTuple

from msgspec import Struct

from perfguard.profile.projection.problems import TENSOR_LIST, Problem
from perfguard.profile.trace.events import SHORT_DTYPES

ELEMENT_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8,
    "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Bytes of an element by its dtype."""
_LONG_PREFIXES = {"f": "fp", "i": "int", "u": "uint", "c": "complex"}
_NO_TENSOR = frozenset({"", "Scalar", "ScalarList", TENSOR_LIST})
_SCALAR_TYPES = {**dict(enumerate(("uint8", "int8", "int16", "int32", "int64", "fp16", "fp32", "fp64"))), 15: "bf16"}
"""By the number with which a dtype is recorded as an argument. Source: torch/headeronly/core/ScalarType.h."""
FLOATING = frozenset({"fp64", "fp32", "bf16", "fp16"})  # dtypes of real numbers


class TensorSize(NamedTuple):
    """Sizes and memory of a tensor."""

    sizes: Sequence[int]  # Empty for a number
    dtype: str  # `fp32`, `int64`, …
    stored: int  # Elements in memory: all of a dimension that was expanded are one

    @property
    def elements(self) -> int:
        """Elements, stored or not."""
        return prod(self.sizes)

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return self.stored * ELEMENT_BYTES[self.dtype]


def made(sizes: Iterable[int], dtype: str) -> TensorSize:
    """A tensor that a call makes."""
    sizes = tuple(sizes)
    return TensorSize(sizes, dtype, prod(sizes))


def like(tensor: TensorSize, dtype: str | None = None) -> TensorSize:
    """A tensor that a call makes, as large as another one, of its dtype or of another."""
    return made(tensor.sizes, dtype or tensor.dtype)


class Work(Struct, frozen=True, kw_only=True):
    """The least that one call of a problem has to do."""

    flops: float | None
    """Floating-point operations, a multiplication and its addition being two; None where only bytes are counted."""
    size_bytes: float
    """Bytes of what it reads and of what it writes, each once, as if caches held everything between."""
    dtype: str  # What it computes in: `bf16`
    assumed: tuple[str, ...] = ()  # What is not recorded and had to be guessed


def work_of_tensors(read: Iterable[TensorSize], written: Iterable[TensorSize], *, flops: float | None = None) -> Work:
    """The work of a call that reads all of some tensors and writes others; at least one of either."""
    tensors = [*read, *written]
    return Work(
        flops=flops,
        size_bytes=sum(tensor.size_bytes for tensor in tensors),
        dtype=next((tensor.dtype for tensor in tensors if tensor.dtype in FLOATING), tensors[0].dtype),
    )


class Arguments:
    """Arguments of a call by position.

    What is asked for and not there, or of an unknown kind, raises LookupError, SyntaxError, TypeError or ValueError.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def __len__(self) -> int:
        return len(self._problem.types)

    @property
    def tensors(self) -> list[TensorSize]:
        """All tensors; ValueError where some are in lists, as their dtypes are not recorded."""
        if TENSOR_LIST in self._problem.types:
            raise ValueError("it has lists of tensors")
        return self.present(*range(len(self)))

    def present(self, *indices: int) -> list[TensorSize]:
        """Those of some arguments that are tensors."""
        return [tensor for tensor in map(self.optional, indices) if tensor is not None]

    def tensor(self, index: int) -> TensorSize:
        """A tensor."""
        found = self.optional(index)
        if found is None:
            raise ValueError(f"argument {index} is no tensor")
        return found

    def optional(self, index: int) -> TensorSize | None:
        """A tensor; None where something else, or nothing, was recorded."""
        kind = self._problem.types[index] if index < len(self) else ""
        if kind in _NO_TENSOR:
            return None
        sizes = tuple(self._problem.dims[index])
        strides = self._problem.strides[index] if index < len(self._problem.strides) else ()
        if len(strides) != len(sizes):
            strides = [1] * len(sizes)
        stored = prod(size for size, stride in zip(sizes, strides, strict=True) if stride or not size)
        short = SHORT_DTYPES[kind]
        return TensorSize(sizes, short if short in ELEMENT_BYTES else _LONG_PREFIXES[short[0]] + short[1:], stored)

    @property
    def lists(self) -> list[int]:
        """Positions of the lists of tensors that hold any."""
        kinds = enumerate(self._problem.types)
        return [index for index, kind in kinds if kind == TENSOR_LIST and self._problem.dims[index]]

    def list_of_sizes(self, index: int) -> list[tuple[int, ...]]:
        """Sizes of the tensors in a list."""
        if index not in self.lists:
            raise ValueError(f"argument {index} is no list of tensors whose sizes are recorded")
        return [tuple(sizes) for sizes in self._problem.dims[index]]

    def text(self, index: int) -> str:
        """A plain value as it was recorded; empty where there is none."""
        return self._problem.concrete[index] if index < len(self._problem.concrete) else ""

    def flag(self, index: int) -> bool:
        """A plain value that is true or false."""
        return self.text(index) == "True"

    def number(self, index: int) -> int:
        """A whole number."""
        (number,) = self.numbers(index)
        return number

    def numbers(self, index: int) -> list[int]:
        """Whole numbers; one for what was recorded without a list around it, none where nothing was."""
        text = self.text(index)
        value = ast.literal_eval(text) if text else []
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(each, int) for each in values):
            raise ValueError(f"argument {index} was recorded as {text!r}")
        return [int(each) for each in values]

    def dtype(self, index: int) -> str | None:
        """A dtype; None where none was given."""
        return _SCALAR_TYPES[self.number(index)] if self.numbers(index) else None


Formula = Callable[[Arguments], Work]
"""The work of a call by its arguments; raises what `Arguments` raises where these do not give it."""


def result_dtype(tensors: Sequence[TensorSize]) -> str:
    """What torch promotes some tensors to; a tensor that is a number counts only among such. ValueError without any."""
    counted = [tensor for tensor in tensors if tensor.sizes] or tensors
    return max((tensor.dtype for tensor in counted), key=_rank)


def _rank(dtype: str) -> tuple[int, int]:
    kind = "float" if dtype in FLOATING else dtype.strip("u0123456789")
    return ("bool", "int", "float", "complex").index(kind), ELEMENT_BYTES[dtype]


def broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The shape that shapes are broadcast to; ValueError where they cannot be."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    found = []
    for sizes in zip(*padded, strict=True):
        different = set(sizes) - {1}
        if len(different) > 1:
            raise ValueError(f"the shapes {shapes} do not fit each other")
        found.append(different.pop() if different else 1)
    return tuple(found)
