"""What an op was called with, as it stands in keys: shapes, dtypes and memory layouts of its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import msgspec

_DTYPES = {
    "float": "f32",
    "double": "f64",
    "c10::BFloat16": "bf16",
    "c10::Half": "f16",
    "long int": "i64",
    "long": "i64",
    "long long": "i64",
    "int": "i32",
    "short int": "i16",
    "short": "i16",
    "signed char": "i8",
    "unsigned char": "u8",
    "bool": "bool",
    "c10::complex<float>": "c64",
    "c10::complex<double>": "c128",
}
"""C++'s names, which depend on the compiler, by the short ones."""
_TENSOR_LIST = "TensorList"
_CHANNELS_LAST = {4: ("channels_last", (0, 2, 3, 1)), 5: ("channels_last_3d", (0, 2, 3, 4, 1))}
"""Dimensions from the slowest to the fastest, by their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The tensors of a call; each part has one word for each of them."""

    shapes: str = ""
    """`[2,64,56,56] [64,64,1,1]`; `{62:11689512}` for a list of 62 tensors with that many elements together."""
    dtypes: str = ""
    """`bf16 bf16`; `list` for a list of tensors."""
    layouts: str = ""
    """`channels_last contiguous`, `strided` for all others, `list` for a list; empty where the trace has no strides."""


NO_TENSORS = Signature()
"""Of what was called with none, or of a trace without shapes."""


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
    dtype = _DTYPES.get(kind) or (kind.removeprefix("c10::").replace(" ", "_") if kind.startswith("c10::") else None)
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
