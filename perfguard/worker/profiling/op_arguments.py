"""Arguments for an op from what a trace says of a call: sizes, strides, dtypes and plain values, but no data.

Tensors get the same sizes, strides and dtypes. Their values are made up: normal for floating point, valid indices for
integers that are recognised as such, zero for other integers.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_DTYPES = {
    "float": "float32", "double": "float64", "c10::BFloat16": "bfloat16", "c10::Half": "float16", "long": "int64",
    "long int": "int64", "int": "int32", "short": "int16", "short int": "int16", "signed char": "int8",
    "unsigned char": "uint8", "bool": "bool", "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
}  # fmt: skip
"""torch's dtypes by the names of C++ types, which differ between compilers."""

_PLAIN = ("Scalar", "ScalarList")
_TENSOR_LIST = "TensorList"
_LIST_DTYPE = "float"
"""Traces do not tell the dtypes of the tensors in a list."""

_NOT_NEGATIVE = ("var", "sq", "sqs", "std", "rstd", "invstd", "sum", "sums", "steps")
"""Words in names of arguments under a root or a logarithm."""

_POSITIVE_ONLY = frozenset({"sqrt", "rsqrt", "log", "log2", "log10", "log1p", "pow", "xlogy", "reciprocal", "div"})
"""Ops that take far longer on values outside their domain, where they give nan or inf: `sqrt` 20 times as long."""

_NO_NUMBERS = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"), "true": True, "false": False}


class UnknownArgumentError(Exception):
    """A trace does not tell what an argument was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """An op's call as Kineto records it: one entry for each argument in each of the four lists."""

    op: str
    """`aten::convolution`."""
    overload: str | None
    """`default`, `Tensor_out`; None where the trace does not tell."""
    dims: Sequence[Any]
    """Sizes of a tensor, a list of those for a tensor list, else empty."""
    strides: Sequence[Any]
    """Likewise; empty where the trace has none."""
    types: Sequence[str]
    """C++ type of a tensor's elements, `TensorList`, `Scalar`, `ScalarList`, or empty for anything else."""
    concrete: Sequence[str]
    """Text of a plain value, else empty."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> RecordedCall:
        """The call in a command; lists that are cut short are filled with nothing."""
        types = list(fields["types"])
        return cls(
            op=fields["op"],
            overload=fields.get("overload"),
            types=types,
            dims=_filled(fields["dims"], [], len(types)),
            strides=_filled(fields.get("strides") or (), [], len(types)),
            concrete=_filled(fields.get("concrete") or (), "", len(types)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpArguments:
    """What an op can be called with."""

    positional: tuple[Any, ...]
    """In the order of the schema."""
    named: Mapping[str, Any]
    """Those that are keyword-only."""
    assumed: tuple[str, ...]
    """What had to be guessed: `approximate='none'`."""


def arguments_of(call: RecordedCall, overload: Any, *, seed: int) -> OpArguments:
    """Arguments for one overload of an op.

    Raises:
        UnknownArgumentError: The overload takes other arguments than were recorded, or one of them is unknown.
    """
    import torch

    schema = overload._schema  # noqa: SLF001 - torch has no public way to a schema
    if len(schema.arguments) != len(call.types):
        raise UnknownArgumentError(f"it was called with {len(call.types)} arguments, not {len(schema.arguments)}")
    maker = _Maker(call, torch.Generator().manual_seed(seed))
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for index, argument in enumerate(schema.arguments):
        value = maker.value(index, argument)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return OpArguments(positional=tuple(positional), named=named, assumed=tuple(maker.assumed))


class _Maker:
    """Makes the arguments of one call, one after the other."""

    def __init__(self, call: RecordedCall, generator: Any) -> None:
        self.assumed: list[str] = []
        self._call = call
        self._generator = generator
        self._sizes: dict[str, list[int]] = {}
        bare_name = call.op.rpartition("::")[2].removeprefix("_foreach_").strip("_")
        self._is_positive = bare_name in _POSITIVE_ONLY

    def value(self, index: int, argument: Any) -> Any:
        kind, dims, strides = self._call.types[index], self._call.dims[index], self._call.strides[index]
        if kind in _PLAIN:
            return self._plain(index, argument)
        if kind == _TENSOR_LIST:
            self.assumed.append(f"{argument.name} of float32")
            padded = _filled(strides, [], len(dims))
            return [self._tensor(argument.name, _LIST_DTYPE, *each) for each in zip(dims, padded, strict=True)]
        if kind:
            if "Tensor" not in str(argument.type):
                raise UnknownArgumentError(
                    f"its argument {argument.name!r} is no tensor, but one of {kind} was recorded"
                )
            self._sizes.setdefault(argument.name, list(dims))
            return self._tensor(argument.name, kind, dims, strides)
        return self._unrecorded(argument)

    def _plain(self, index: int, argument: Any) -> Any:
        text = self._call.concrete[index]
        if "Tensor" in str(argument.type):
            raise UnknownArgumentError(f"its argument {argument.name!r} is a tensor, but was recorded as {text!r}")
        try:
            return _NO_NUMBERS[text] if text in _NO_NUMBERS else ast.literal_eval(text)
        except (SyntaxError, ValueError):
            raise UnknownArgumentError(f"its argument {argument.name!r} was recorded as {text!r}") from None

    def _unrecorded(self, argument: Any) -> Any:
        """What was not recorded: None where that may be meant, else the default, else nothing can be done."""
        if str(argument.type).startswith("Optional"):
            if "str" in str(argument.type):
                self.assumed.append(f"{argument.name}=None")
            return None
        if argument.has_default_value():
            self.assumed.append(f"{argument.name}={argument.default_value!r}")
            return argument.default_value
        raise UnknownArgumentError(f"its argument {argument.name!r} is not in the trace")

    def _tensor(self, name: str, kind: str, dims: Sequence[int], strides: Sequence[int]) -> Any:
        import torch

        dtype = getattr(torch, _DTYPES.get(kind, kind.rpartition("::")[2]), None)
        if not isinstance(dtype, torch.dtype):
            raise UnknownArgumentError(f"its argument {name!r} holds elements of the unknown type {kind!r}")
        if len(strides) != len(dims):
            strides = torch.empty(tuple(dims), device="meta").stride()
        elements = 1 + sum((size - 1) * stride for size, stride in zip(dims, strides, strict=True))
        storage = self._values(name, dtype, 0 if 0 in dims else elements)
        return storage.as_strided(tuple(dims), tuple(strides))

    def _values(self, name: str, dtype: Any, elements: int) -> Any:
        import torch

        if dtype is torch.bool:
            return torch.rand(elements, generator=self._generator) < 0.5
        if dtype.is_floating_point or dtype.is_complex:
            made = torch.randn(elements, generator=self._generator)
            if self._is_positive or any(word in _NOT_NEGATIVE for word in name.split("_")):
                made = made.abs() + 0.1
            return made.to(dtype)
        if name in ("offsets", "offset2bag"):
            return torch.linspace(0, max(0, self._limit(name) - 1), elements).long().to(dtype)
        return torch.randint(0, self._limit(name), (elements,), generator=self._generator).to(dtype)

    def _limit(self, name: str) -> int:
        """The number of valid values of an integer tensor, 1 where it is not recognised: zero fits everywhere."""
        return max(1, index_limit(self._call, name, self._sizes))


def index_limit(call: RecordedCall, name: str, sizes: Mapping[str, Sequence[int]]) -> int:
    """How many values an integer tensor may hold, by the op and the tensors before it; 1 where that is unknown.

    Args:
        call: The op.
        name: The argument.
        sizes: Sizes of the tensors before it, by name.
    """
    numbers = [text for kind, text in zip(call.types, call.concrete, strict=True) if kind == "Scalar"]
    first_number = int(numbers[0]) if numbers and numbers[0].lstrip("-").isdigit() else 0
    scores, rows = sizes.get("self", ()), sizes.get("weight", ())
    if name == "indices" and "embedding" in call.op:
        return rows[0] if rows else first_number  # without weights, the first number is how many rows they have
    if name == "offsets" and "indices" in sizes:
        return sizes["indices"][0]
    if name == "offset2bag" and "grad" in sizes:
        return sizes["grad"][0]
    if name == "target" and scores:
        return scores[1] if len(scores) > 1 else scores[0]
    if name == "index" and -len(scores) <= first_number < len(scores):
        return scores[first_number]  # gather, scatter, index_select: the first number is the dimension
    return 1


def _filled(values: Sequence[Any], filling: Any, length: int) -> list[Any]:
    return [*values[:length], *[filling] * (length - len(values))]
