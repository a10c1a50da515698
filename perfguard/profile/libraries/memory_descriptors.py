"""oneDNN's memory descriptors as its verbose log writes them.

`arg:dtype:properties:format_kind:tag:strides:flags` since oneDNN 3.7; before that `arg_dtype:properties:…`, and still
earlier without strides.

Source: `scripts/verbose_converter/src/parse.py` of oneDNN (Apache-2.0; none of its code is used).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_DTYPE = r"undef|bf16|tf32|f16|f32|f64|s4|u4|s8|u8|s32|s64|boolean|e8m0|f4_e\w+|f8_e\w+"
_WITH_DTYPE = re.compile(rf"(?P<argument>\w+?):(?P<dtype>{_DTYPE}):(?P<rest>.*)", re.ASCII)
_DTYPE_IN_NAME = re.compile(rf"(?P<argument>\w+?)_(?P<dtype>{_DTYPE}):(?P<rest>.*)", re.ASCII)
_FLAGS = re.compile(r"f\d")
_CHOSEN_BY_LIBRARY = "a"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDescriptor:
    """One tensor of a primitive."""

    argument: str
    """`src`, `wei`, `bia`, `dst`, `src_layer`, …"""
    dtype: str
    """`f32`; `undef` where it is not used."""
    tag: str
    """Layout: `acdb`, `Acdb16a`, `any` where oneDNN chose it."""
    strides: str
    """`8x4x1`; empty where the tag tells."""
    flags: str
    """`f0`, `f0_mask2`, …"""

    @property
    def is_used(self) -> bool:
        """Whether there is such a tensor."""
        return self.dtype != "undef"

    @property
    def is_blocked(self) -> bool:
        """Whether its layout has blocks, which strides do not tell."""
        return any(letter.isupper() for letter in self.tag)


def memory_descriptors(text: str) -> tuple[MemoryDescriptor, ...]:
    """The descriptors of a call.

    Raises:
        ValueError: One cannot be read; logs of MKL-DNN write others.
    """
    return tuple(_descriptors(text))


def _descriptors(text: str) -> Iterator[MemoryDescriptor]:
    for word in text.split():
        found = _WITH_DTYPE.fullmatch(word) or _DTYPE_IN_NAME.fullmatch(word)
        fields = found["rest"].split(":") if found else []
        if found is None or len(fields) < 3:
            raise ValueError(f"the memory descriptor {word!r} cannot be read")
        properties, _, tag, *others = fields
        strides = others.pop(0) if others and not _FLAGS.match(others[0]) else ""
        yield MemoryDescriptor(
            argument=found["argument"],
            dtype=found["dtype"],
            tag="any" if _CHOSEN_BY_LIBRARY in properties else tag,
            strides=strides,
            flags=others[0] if others else "",
        )
