"""The `detail` of a row of op counts: written and read in one place, as stored op counts are compared with new ones.

```
[2,64,56,56] [64,64,1,1] | f32 f32 | channels_last contiguous                     an op: shapes, dtypes, layouts
src:f32::blocked:acdb::f0 dst:f32:p:blocked:aBcd16b::f0 | 2x64x56x56              a primitive: memory, problem
src:bf16::… wei:bf16:… dst:bf16::… | mb2_ic64… | attr-post-ops:eltwise_relu       the same with attributes
```
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from msgspec import Struct

from perfguard.records.steps.ops import OpCountKind

_SEPARATOR = " | "
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}\b")
_FOLDER = re.compile(r"(?<![\w.])/(?:[^\s/:'\"]+/)+")
_DTYPE = "f64|f32|bf16|f16|f8_e4m3|f8_e5m2|s64|s32|s8|u8|s4|u4|boolean|undef"
_MEMORY = re.compile(rf"(?P<argument>\w+?)[:_](?P<dtype>{_DTYPE})(:[^:]*:blocked:(?P<tag>[^:]*))?(:.*)?")
"""`src:f32:p:blocked:acdb::f0`; logs before version 1 join the dtype to the argument: `src_f32::blocked:acdb:f0`."""
_CHANNELS_LAST_TAGS = frozenset({"acdb", "acdeb"})
"""Of images and volumes; torch has no such format for three dimensions, where `acb` is a transposed matrix."""
_BYTES = {"f64": 8, "s64": 8, "f32": 4, "s32": 4, "bf16": 2, "f16": 2, "s8": 1, "u8": 1, "boolean": 1}


class OpDetail(Struct, frozen=True, kw_only=True):
    """An op's tensors, each part a list with one entry for each of them; empty where the trace has none."""

    shapes: str  # `[2,64,56,56] [64,64,1,1]`
    dtypes: str  # `bf16 bf16`
    layouts: str  # `channels_last contiguous`

    @property
    def channels_last(self) -> int:
        """How many of its tensors are in a channels-last layout."""
        return sum(layout.startswith("channels_last") for layout in self.layouts.split())


class Memory(Struct, frozen=True, kw_only=True):
    """One memory descriptor of a primitive."""

    argument: str  # `src`, `wei`, `diff_dst`, …
    dtype: str  # `f32`, `bf16`, …; `undef` for none
    tag: str  # `acdb`, `aBcd16b`; empty where the format is not blocked


class PrimitiveDetail(Struct, frozen=True, kw_only=True):
    """What a primitive worked on."""

    memory: str  # Memory descriptors as logged
    problem: str  # In benchdnn's syntax; arguments for MKL
    attributes: str  # Post-ops, scales, maths mode; empty for none

    @property
    def descriptors(self) -> tuple[Memory, ...]:
        """The memory descriptors, read; what is none is passed over."""
        words = map(_MEMORY.fullmatch, self.memory.split())
        return tuple(
            Memory(argument=word["argument"], dtype=word["dtype"], tag=word["tag"] or "") for word in words if word
        )

    @property
    def dtypes(self) -> str:
        """Of its arguments, in the log's order."""
        return " ".join(descriptor.dtype for descriptor in self.descriptors)

    @property
    def channels_last(self) -> int:
        """How many of its activations are in a channels-last layout.

        Weights do not count: `acdb` of a weight says nothing about the tensors that flow through the model.
        """
        return sum(
            descriptor.tag in _CHANNELS_LAST_TAGS and descriptor.argument.removeprefix("diff_") in {"src", "dst"}
            for descriptor in self.descriptors
        )

    @property
    def tags(self) -> str:
        """`abcd → aBcd16b`, from the first source to the destination; empty where there are no two."""
        tags = [descriptor.tag for descriptor in self.descriptors if descriptor.tag]
        return f"{tags[0]} → {tags[-1]}" if len(tags) > 1 else ""

    @property
    def written_bytes(self) -> int:
        """Bytes of the destination of a reorder, without its padding; 0 where they are not known."""
        sizes = self.problem.split("x")
        if not self.descriptors or not all(size.isdigit() for size in sizes):
            return 0
        return _BYTES.get(self.descriptors[-1].dtype, 0) * math.prod(map(int, sizes))


def op_detail_text(shapes: str, dtypes: str, layouts: str) -> str:
    """The detail of an op's row; empty for an op without tensors."""
    return _SEPARATOR.join((shapes, dtypes, layouts)) if shapes or dtypes or layouts else ""


def primitive_detail_text(memory: str, problem: str, attributes: str = "") -> str:
    """The detail of a primitive's row."""
    return _SEPARATOR.join((memory, problem, attributes) if attributes else (memory, problem))


@lru_cache(maxsize=1 << 16)
def op_detail(detail: str) -> OpDetail:
    """What `op_detail_text` wrote; text of another form is taken for shapes."""
    shapes, dtypes, layouts, *_ = (*detail.split(_SEPARATOR), "", "")
    return OpDetail(shapes=shapes, dtypes=dtypes, layouts=layouts)


@lru_cache(maxsize=1 << 16)
def primitive_detail(detail: str) -> PrimitiveDetail:
    """What `primitive_detail_text` wrote; text of another form is taken for memory."""
    memory, problem, attributes, *_ = (*detail.split(_SEPARATOR), "", "")
    return PrimitiveDetail(memory=memory, problem=problem, attributes=attributes)


def dtypes_of(kind: OpCountKind, detail: str) -> tuple[str, ...]:
    """Of an op's or a primitive's arguments."""
    text = primitive_detail(detail).dtypes if kind is OpCountKind.PRIMITIVE else op_detail(detail).dtypes
    return tuple(text.split())


def channels_last_of(kind: OpCountKind, detail: str) -> int:
    """How many of an op's or a primitive's tensors are in a channels-last layout."""
    return primitive_detail(detail).channels_last if kind is OpCountKind.PRIMITIVE else op_detail(detail).channels_last


def stable_reason(reason: str) -> str:
    """A compiler's reason without what differs from process to process or place to place: addresses, folders."""
    return " ".join(_FOLDER.sub("", _ADDRESS.sub("0x…", reason)).split())
