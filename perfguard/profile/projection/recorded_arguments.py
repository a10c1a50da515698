"""The arguments of a recorded call as tensors and plain values."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from perfguard.profile.projection.parameter_lists import TENSOR_LIST
from perfguard.profile.projection.problems import Problem

_ELEMENTS = {
    "float": ("fp32", 4),
    "double": ("fp64", 8),
    "c10::BFloat16": ("bf16", 2),
    "c10::Half": ("fp16", 2),
    "long int": ("int64", 8),
    "long": ("int64", 8),
    "long long": ("int64", 8),
    "int": ("int32", 4),
    "short int": ("int16", 2),
    "short": ("int16", 2),
    "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1),
    "bool": ("bool", 1),
    "c10::complex<float>": ("complex64", 8),
    "c10::complex<double>": ("complex128", 16),
}
"""dtypes and bytes of an element by C++'s names, which depend on the compiler."""
_SCALAR_TYPES = ("uint8", "int8", "int16", "int32", "int64", "fp16", "fp32", "fp64")
"""By the number with which a dtype is recorded as an argument. Source: torch/headeronly/core/ScalarType.h."""
_BFLOAT16 = 15

ELEMENT_BYTES = dict(_ELEMENTS.values())
"""By dtype."""
FLOATING = frozenset({"fp64", "fp32", "bf16", "fp16"})
"""dtypes of real numbers."""


class UnknownWorkError(Exception):
    """What a call has to do is not told by what is recorded of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Sizes and memory of a tensor."""

    sizes: tuple[int, ...]
    """Empty for a number."""
    dtype: str
    """`fp32`, `int64`, …"""
    stored: int
    """Elements in memory: all of a dimension that was expanded are one."""

    @property
    def elements(self) -> int:
        """Elements."""
        return prod(self.sizes)

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return self.stored * ELEMENT_BYTES[self.dtype]


class Arguments:
    """Arguments of a call by position. What is asked for and not there raises UnknownWorkError."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def __len__(self) -> int:
        return len(self._problem.types)

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors that are not in lists.

        Raises:
            UnknownWorkError: There are lists, or elements of unknown types.
        """
        if TENSOR_LIST in self._problem.types:
            raise UnknownWorkError("the dtypes in a list of tensors are not recorded")
        return [tensor for index in range(len(self)) if (tensor := self.optional(index)) is not None]

    def tensor(self, index: int) -> Tensor:
        """A tensor."""
        found = self.optional(index)
        if found is None:
            raise UnknownWorkError(f"argument {index} is no tensor")
        return found

    def optional(self, index: int) -> Tensor | None:
        """A tensor; None where something else, or nothing, was recorded."""
        kind = self._problem.types[index] if index < len(self) else ""
        if kind in {"", "Scalar", "ScalarList", TENSOR_LIST}:
            return None
        if kind not in _ELEMENTS:
            raise UnknownWorkError(f"elements of the type {kind!r} are not known")
        sizes = tuple(self._problem.dims[index])
        strides = self._problem.strides[index] if index < len(self._problem.strides) else ()
        if len(strides) != len(sizes):
            strides = [1] * len(sizes)
        stored = prod(size for size, stride in zip(sizes, strides, strict=True) if stride or not size)
        return Tensor(sizes=sizes, dtype=_ELEMENTS[kind][0], stored=stored)

    @property
    def lists(self) -> list[int]:
        """Positions of the lists of tensors that hold any."""
        kinds = enumerate(self._problem.types)
        return [index for index, kind in kinds if kind == TENSOR_LIST and self._problem.dims[index]]

    def list_of_sizes(self, index: int) -> list[tuple[int, ...]]:
        """Sizes of the tensors in a list."""
        if index not in self.lists:
            raise UnknownWorkError(f"argument {index} is no list of tensors whose sizes are recorded")
        return [tuple(sizes) for sizes in self._problem.dims[index]]

    def text(self, index: int) -> str:
        """A plain value as it was recorded; empty where there is none."""
        return self._problem.concrete[index] if index < len(self._problem.concrete) else ""

    def flag(self, index: int) -> bool:
        """A plain value that is true or false."""
        return self.text(index) == "True"

    def number(self, index: int) -> int:
        """A whole number."""
        numbers = self.numbers(index)
        if len(numbers) != 1:
            raise UnknownWorkError(f"argument {index} is not a number")
        return numbers[0]

    def numbers(self, index: int) -> list[int]:
        """Whole numbers; one for what was recorded without a list around it, none where nothing was."""
        text = self.text(index)
        if not text:
            return []
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            raise UnknownWorkError(f"argument {index} was recorded as {text!r}") from None
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(each, int) for each in values):
            raise UnknownWorkError(f"argument {index} was recorded as {text!r}")
        return [int(each) for each in values]

    def dtype(self, index: int) -> str | None:
        """A dtype; None where none was given."""
        numbers = self.numbers(index)
        if not numbers:
            return None
        if numbers[0] == _BFLOAT16:
            return "bf16"
        if len(numbers) > 1 or not 0 <= numbers[0] < len(_SCALAR_TYPES):
            raise UnknownWorkError(f"argument {index} is no dtype that is known")
        return _SCALAR_TYPES[numbers[0]]


def result_dtype(tensors: Sequence[Tensor]) -> str:
    """What torch promotes some tensors to; a tensor that is a number counts only among such.

    Raises:
        UnknownWorkError: There are no tensors.
    """
    counted = [tensor for tensor in tensors if tensor.sizes] or list(tensors)
    if not counted:
        raise UnknownWorkError("there are no tensors")
    return max((tensor.dtype for tensor in counted), key=_rank)


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that shapes are broadcast to.

    Raises:
        UnknownWorkError: They cannot be.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    found = []
    for sizes in zip(*padded, strict=True):
        different = set(sizes) - {1}
        if len(different) > 1:
            raise UnknownWorkError(f"the shapes {shapes} do not fit each other")
        found.append(different.pop() if different else 1)
    return tuple(found)


def _rank(dtype: str) -> tuple[int, int]:
    order = ("bool", "int", "float", "complex")
    kind = "float" if dtype in FLOATING else dtype.strip("u0123456789")
    return order.index(kind), ELEMENT_BYTES[dtype]
