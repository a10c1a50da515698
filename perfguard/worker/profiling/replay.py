"""One op alone: called again and again with tensors like those of a recorded call, in this process and on its CPUs.

What it takes then is what it could take within a step: code and data are in the caches as far as they fit. A trace
holds sizes, strides, dtypes and plain values of a call, but no data. Tensors get the same sizes, strides and dtypes;
their values are made up: normal for floating point, valid indices for integers that are recognised as such, else zero.
"""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

from perfguard.records.protocol import Message

DEFAULT_BUDGET_S = 0.1  # Seconds that one op is timed for

_WARM_CALLS = 3
_BATCH_S = 0.0005  # A batch of calls is timed as one, so that the clock costs next to nothing
_MAX_BATCH = 1000
_MAX_WRITING_BATCH = 8
"""An op that writes to its arguments gets them back as they were after this many calls: values that grow or fade away
turn into infinities or denormals, which take another time."""
_MIN_BATCHES, _MAX_BATCHES = 5, 201
_REASON_CHARACTERS = 200

_NO_DATA = ("sparse", "coalesce", "_indices", "_values", "set_", "resize_", "record_stream")
"""Parts of names of ops whose work is in what a trace does not say."""


class NotReplayableError(Exception):
    """An op cannot be called from what its trace holds; the message is a sentence whose subject is the op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """An op's time alone."""

    call_s: float  # Median seconds of one call
    batches: int  # Timed batches that it is the median of
    overload: str  # Which of the op's overloads fitted
    assumed: tuple[str, ...]  # What the trace does not say and had to be guessed


def answer(command: Message) -> Message:
    """The fields of the reply to a command with an `op`: its time, or the `reason` why it has none."""
    fields: Message = {"call_s": None, "reason": None}
    try:
        fields |= asdict(replay(RecordedCall.of(command["op"]), budget_s=command.get("budget_s", DEFAULT_BUDGET_S)))
    except NotReplayableError as error:
        fields["reason"] = str(error)
    return {**fields, "affinity": sorted(os.sched_getaffinity(0))}


def replay(call: RecordedCall, *, seed: int = 0, budget_s: float = DEFAULT_BUDGET_S) -> Replayed:
    """Time one op for `budget_s` seconds, beside making its arguments and warming up.

    Raises NotReplayableError: it has no overload that takes these arguments, or it fails with values that are made up.
    """
    import torch

    if any(part in call.op for part in _NO_DATA):
        raise NotReplayableError("its work depends on data that a trace does not hold")
    with torch.no_grad():
        overload, arguments = _fitting(call, seed)
        if torch.Tag.inplace_view in overload.tags:
            raise NotReplayableError("it changes the shape of its argument, so each call is another")
        restore = _restorer(overload, arguments)
        most = _MAX_WRITING_BATCH if restore else _MAX_BATCH
        bound = partial(overload, *arguments.positional, **arguments.named)
        try:
            batches = time_call(bound, budget_s=budget_s, max_batch=most, restore=restore)
        except Exception as error:
            raise NotReplayableError(f"it cannot be called twice: {_first_line(error)}") from error
    return Replayed(
        call_s=median(batches),
        batches=len(batches),
        overload=str(overload).rpartition(".")[2],
        assumed=arguments.assumed,
    )


def time_call(
    call: Callable[[], object],
    *,
    budget_s: float,
    max_batch: int = _MAX_BATCH,
    restore: Callable[[], None] | None = None,
) -> list[float]:
    """Seconds of one call, from several batches of calls.

    The call is made a few times before it is timed. Batches of at most `max_batch` calls are added until they take
    `budget_s` together, but a few in any case. `restore` undoes before each batch what the calls did, untimed.
    """
    clock = time.perf_counter
    once_s = _BATCH_S
    for _ in range(_WARM_CALLS):
        started = clock()
        call()
        once_s = clock() - started
    size = min(max_batch, max(1, round(_BATCH_S / max(once_s, 1e-9))))
    batches: list[float] = []
    spent_s = 0.0
    while len(batches) < _MIN_BATCHES or (spent_s < budget_s and len(batches) < _MAX_BATCHES):
        if restore is not None:
            restore()
        started = clock()
        for _ in range(size):
            call()
        elapsed_s = clock() - started
        spent_s += elapsed_s
        batches.append(elapsed_s / size)
    return batches


def _fitting(call: RecordedCall, seed: int) -> tuple[Any, OpArguments]:
    """The first overload that takes the recorded arguments and computes something from them, with its arguments."""
    reason = "it has no overload of this name"
    for overload in _overloads(call):
        try:
            arguments = arguments_of(call, overload, seed=seed)
        except UnknownArgumentError as error:
            reason = str(error)
            continue
        try:
            overload(*arguments.positional, **arguments.named)
        except Exception as error:
            # An overload that takes the arguments is the right one, whatever comes of it.
            raise NotReplayableError(f"it fails on values that are made up: {_first_line(error)}") from error
        return overload, arguments
    raise NotReplayableError(reason)


def _overloads(call: RecordedCall) -> Sequence[Any]:
    import torch

    namespace, _, name = call.op.partition("::")
    packet: Any = getattr(getattr(torch.ops, namespace, None), name, None) if name else None
    if not hasattr(packet, "overloads"):
        raise NotReplayableError("it is no op of the dispatcher, or its library is not loaded")
    names = packet.overloads() if call.overload is None else [call.overload or "default"]
    return [getattr(packet, each) for each in names if hasattr(packet, each)]


def _restorer(overload: Any, arguments: OpArguments) -> Callable[[], None] | None:
    """What gives the tensors that an op writes to their first values back; None where it writes to none."""
    import torch

    schema = overload._schema  # noqa: SLF001 - torch has no public way to a schema
    if not schema.is_mutable:
        return None
    written: list[tuple[torch.Tensor, torch.Tensor]] = []
    values = (*arguments.positional, *arguments.named.values())
    for argument, value in zip(schema.arguments, values, strict=True):
        if isinstance(value, list) or (argument.alias_info is not None and argument.alias_info.is_write):
            tensors = value if isinstance(value, list) else [value]
            written.extend((each, each.clone()) for each in tensors if isinstance(each, torch.Tensor))

    def restore() -> None:
        for tensor, first in written:
            tensor.copy_(first)

    return restore


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_REASON_CHARACTERS]


_DTYPES = {
    "float": "float32", "double": "float64", "c10::BFloat16": "bfloat16", "c10::Half": "float16", "long": "int64",
    "long int": "int64", "int": "int32", "short": "int16", "short int": "int16", "signed char": "int8",
    "unsigned char": "uint8", "bool": "bool", "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
}  # fmt: skip
"""torch's dtypes by the names of C++ types, which differ between compilers."""

_NOT_NEGATIVE = ("var", "sq", "sqs", "std", "rstd", "invstd", "sum", "sums", "steps")
"""Words in names of arguments under a root or a logarithm."""

_POSITIVE_ONLY = frozenset({"sqrt", "rsqrt", "log", "log2", "log10", "log1p", "pow", "xlogy", "reciprocal", "div"})
"""Ops that take far longer on values outside their domain, where they give nan or inf: `sqrt` 20 times as long."""

_NO_NUMBERS = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"), "true": True, "false": False}


class UnknownArgumentError(Exception):
    """A trace does not say what an argument was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """An op's call as Kineto records it: one entry for each argument in each of the four lists."""

    op: str  # `aten::convolution`
    overload: str | None  # `default`, `Tensor_out`; None where the trace does not say
    dims: Sequence[Any]  # Sizes of a tensor, a list of those for a tensor list, else empty
    strides: Sequence[Any]  # Likewise; empty where the trace has none
    types: Sequence[str]  # C++ type of a tensor's elements, `TensorList`, `Scalar`, `ScalarList`; else empty
    concrete: Sequence[str]  # Text of a plain value, else empty

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

    positional: tuple[Any, ...]  # In the order of the schema
    named: Mapping[str, Any]  # Those that are keyword-only
    assumed: tuple[str, ...]  # What had to be guessed: `approximate='none'`


def arguments_of(call: RecordedCall, overload: Any, *, seed: int) -> OpArguments:
    """Arguments for one overload of an op.

    Raises UnknownArgumentError: the overload takes other arguments than were recorded, or one of them is unknown.
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
        if kind in ("Scalar", "ScalarList"):
            return self._plain(index, argument)
        if kind == "TensorList":  # traces do not hold the dtypes of the tensors in a list
            self.assumed.append(f"{argument.name} of float32")
            padded = _filled(strides, [], len(dims))
            return [self._tensor(argument.name, "float", *each) for each in zip(dims, padded, strict=True)]
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
        limit = max(
            1, index_limit(self._call, name, self._sizes)
        )  # an unrecognised one holds zeros, which fit everywhere
        if name in ("offsets", "offset2bag"):
            return torch.linspace(0, limit - 1, elements).long().to(dtype)
        return torch.randint(0, limit, (elements,), generator=self._generator).to(dtype)


def index_limit(call: RecordedCall, name: str, sizes: Mapping[str, Sequence[int]]) -> int:
    """How many values the integer tensor `name` may hold, by the op and the `sizes` of the tensors before it, by name.

    1 where that is unknown.
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
