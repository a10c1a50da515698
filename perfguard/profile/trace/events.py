"""Events of a Chrome trace as torch.profiler writes them: what is read of them, signatures of ops, and columns."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from enum import IntEnum
from itertools import compress
from math import prod
from operator import attrgetter
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

SHORT_DTYPES = {
    "float": "f32", "double": "f64", "c10::BFloat16": "bf16", "c10::Half": "f16",
    "long int": "i64", "long": "i64", "long long": "i64", "int": "i32", "short int": "i16", "short": "i16",
    "signed char": "i8", "unsigned char": "u8", "bool": "bool",
    "c10::complex<float>": "c64", "c10::complex<double>": "c128",
}  # fmt: skip
"""Short names of dtypes by C++'s, which depend on the compiler."""
_TENSOR_LIST = "TensorList"
_CHANNELS_LAST = {4: ("channels_last", (0, 2, 3, 1)), 5: ("channels_last_3d", (0, 2, 3, 4, 1))}
"""Dimensions from the slowest to the fastest, by their number."""


class Signature(Struct, frozen=True, kw_only=True):
    """The tensors of a call; each part has one word for each of them."""

    shapes: str = ""
    """`[2,64,56,56] [64,64,1,1]`; `{62:11689512}` for a list of 62 tensors with that many elements together."""
    dtypes: str = ""  # `bf16 bf16`; `list` for a list of tensors
    layouts: str = ""
    """`channels_last contiguous`, `strided` for all others, `list` for a list; empty where the trace has no strides."""


NO_TENSORS = Signature()  # Of what was called with none, or of a trace without shapes


def read_signature(encoded: bytes) -> Signature:
    """The signature in JSON of `Input Dims`, `Input type` and `Input Strides` with commas, null for none."""
    try:
        dims, types, strides = msgspec.json.decode(b"[" + encoded + b"]")
    except (msgspec.DecodeError, ValueError):
        return NO_TENSORS
    if not isinstance(dims, list) or not isinstance(types, list):
        return NO_TENSORS
    known_strides = strides if isinstance(strides, list) and len(strides) == len(dims) else None
    words = [word for word in map(_words, dims, types, known_strides or [None] * len(dims)) if word is not None]
    return Signature(
        shapes=" ".join(word.shapes for word in words),
        dtypes=" ".join(word.dtypes for word in words),
        layouts="" if known_strides is None else " ".join(word.layouts for word in words),
    )


def _words(shape: Any, kind: Any, strides: Any) -> Signature | None:
    """The words of one argument; None where it is no tensor."""
    if not isinstance(shape, list) or not isinstance(kind, str):
        return None
    if kind == _TENSOR_LIST:
        tensors = [tensor for tensor in shape if _is_shape(tensor)]
        elements = sum(prod(tensor) for tensor in tensors)
        return Signature(shapes=f"{{{len(tensors)}:{elements}}}", dtypes="list", layouts="list")
    dtype = SHORT_DTYPES.get(kind) or (
        kind.removeprefix("c10::").replace(" ", "_") if kind.startswith("c10::") else None
    )
    if dtype is None or not _is_shape(shape):
        return None
    layout = layout_of(shape, strides) if _is_shape(strides) and len(strides) == len(shape) else "strided"
    return Signature(shapes=f"[{','.join(map(str, shape))}]", dtypes=dtype.lower(), layouts=layout)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int for size in value)


def layout_of(shape: Sequence[int], strides: Sequence[int]) -> str:
    """`contiguous`, `channels_last`, `channels_last_3d` or `strided`.

    A tensor that is both, such as a 1x1 kernel's weights, is called contiguous: what cannot be distinguished must not
    differ.
    """
    if _is_dense(shape, strides, range(len(shape))):
        return "contiguous"
    name, order = _CHANNELS_LAST.get(len(shape), ("", None))
    return name if order is not None and _is_dense(shape, strides, order) else "strided"


def _is_dense(shape: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    """Whether elements lie side by side with the last dimension of `order` the fastest."""
    expected = 1
    for dimension in reversed(order):
        if shape[dimension] != 1 and strides[dimension] != expected:
            return prod(shape) == 0
        expected *= shape[dimension]
    return True


Key = TypeVar("Key", bound=Hashable)

NO_SEQUENCE = -1  # Sequence number of events that autograd gave none


class EventKind(IntEnum):
    """What an event is, by its category in the trace."""

    OP = 0  # An op, or a node of autograd
    ANNOTATION = 1  # `record_function`: the program's own, modules, optimizers, steps
    FRAME = 2  # A call of a Python function; only in traces with stacks
    ALLOCATION = 3  # Memory that was asked for on the CPU; only in traces with memory. Has no duration.


_DROPPED = 0
_CODE_OF_CATEGORY = {
    "cpu_op": EventKind.OP + 1,
    "Operator": EventKind.OP + 1,  # torch before 1.12
    "user_annotation": EventKind.ANNOTATION + 1,
    "python_function": EventKind.FRAME + 1,
    "cpu_instant_event": EventKind.ALLOCATION + 1,
}
"""Kinds, one higher so that each is true; plain numbers, because members of an enum take twice as long to convert.
Events of other categories are not the CPU's, or say nothing of ops."""
_ALLOCATION_CODE = EventKind.ALLOCATION + 1

_CPU_DEVICE = 0
_NULL = msgspec.Raw(b"null")
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class TensorArguments(msgspec.Struct, gc=False, frozen=True):
    """The tensors in an event's arguments; they stay encoded, as few of them differ."""

    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NULL)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NULL)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=_NULL)


class _Arguments(TensorArguments, gc=False, frozen=True):
    sequence: _Int64 = msgspec.field(name="Sequence number", default=NO_SEQUENCE)
    size_bytes: _Int64 = msgspec.field(name="Bytes", default=0)
    device: _Int64 = msgspec.field(name="Device Type", default=_CPU_DEVICE)


class TraceEvent(msgspec.Struct, gc=False, frozen=True):
    """The part of an event that is read; `ts` and `dur` are microseconds, NaN and -1 where the file gives none.

    No two threads of a machine share a number, whatever their processes.
    """

    cat: str = ""
    name: str = ""
    tid: int | float | str | None = None
    ts: float = math.nan
    dur: float = -1.0
    args: _Arguments = _Arguments()


class _Positions(dict[Key, int]):
    """Numbers keys in the order of their first appearance."""

    def __missing__(self, key: Key) -> int:
        self[key] = position = len(self)
        return position


class _Signatures(dict[bytes, int]):
    """Numbers signatures by how they are encoded; what reads the same is one, in whatever ways it is encoded."""

    def __init__(self, positions: _Positions[Signature]) -> None:
        super().__init__()
        self._positions = positions

    def __missing__(self, encoded: bytes) -> int:
        self[encoded] = position = self._positions[read_signature(encoded)]
        return position


_COLUMNS = ("kind", "name", "signature", "thread", "start_us", "duration_us", "sequence", "size_bytes")
_tensor_fields = attrgetter("dims", "types", "strides")


class TraceColumns:
    """Columns of events in the file's order, which grow with every list; most of the time of reading goes here."""

    def __init__(self) -> None:
        self.names: _Positions[str] = _Positions()
        """Names of events, by their positions."""
        self.signatures: _Positions[Signature] = _Positions({NO_TENSORS: 0})
        """What ops were called with, by their positions; the first is that of no tensors."""
        self._threads: _Positions[Any] = _Positions()
        self._encoded = _Signatures(self.signatures)
        self._parts: list[tuple[npt.NDArray[Any], ...]] = []

    def add(self, events: list[TraceEvent]) -> None:
        """Append what is kept of some events."""
        codes = _codes(events)
        kept = list(compress(events, codes))
        arguments = [event.args for event in kept]
        tensors = map(b",".join, map(_tensor_fields, arguments))
        kind = np.array(codes, dtype=np.int8)
        count = len(kept)
        self._parts.append(
            (
                kind[kind != _DROPPED] - np.int8(1),
                np.fromiter(map(self.names.__getitem__, [event.name for event in kept]), np.int32, count),
                np.fromiter(map(self._encoded.__getitem__, tensors), np.int32, count),
                np.fromiter(map(self._threads.__getitem__, [event.tid for event in kept]), np.int32, count),
                np.fromiter([event.ts for event in kept], np.float64, count),
                np.fromiter([event.dur for event in kept], np.float64, count),
                np.fromiter([part.sequence for part in arguments], np.int64, count),
                np.fromiter([part.size_bytes for part in arguments], np.int64, count),
            )
        )

    def joined(self) -> dict[str, npt.NDArray[Any]]:
        """All that was added, at least one list, by the names of a trace's columns, but times in us: `start_us`."""
        return dict(zip(_COLUMNS, map(np.concatenate, zip(*self._parts, strict=True)), strict=True))


def _codes(events: list[TraceEvent]) -> list[int]:
    """Codes of the kinds of events, or `_DROPPED`: memory of others than the CPU, or memory that is given back.

    When it is given back depends on the garbage collector.
    """
    codes = [_CODE_OF_CATEGORY.get(event.cat, _DROPPED) for event in events]
    if _ALLOCATION_CODE not in codes:
        return codes
    for position, (code, event) in enumerate(zip(codes, events, strict=True)):
        is_asked_for = event.name == "[memory]" and event.args.size_bytes > 0 and event.args.device == _CPU_DEVICE
        if code == _ALLOCATION_CODE and not is_asked_for:
            codes[position] = _DROPPED
    return codes
