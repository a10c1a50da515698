"""One event of a Chrome trace as torch.profiler writes it: what is read of it, and what of it is kept."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Annotated

import msgspec

NO_SEQUENCE = -1
"""Sequence number of events that autograd gave none."""
NO_DURATION = -1.0
"""Duration of events whose file gives none."""
NO_START = math.nan
"""Start of events whose file gives none; no number that JSON can hold."""


class EventKind(IntEnum):
    """What an event is, by its category in the trace."""

    OP = 0
    """An op, or a node of autograd."""
    ANNOTATION = 1
    """`record_function`: the program's own, modules, optimizers, steps."""
    FRAME = 2
    """A call of a Python function; only in traces with stacks."""
    ALLOCATION = 3
    """Memory that was asked for on the CPU; only in traces with memory. Has no duration."""


KIND_OF_CATEGORY = {
    "cpu_op": EventKind.OP,
    "Operator": EventKind.OP,  # torch before 1.12
    "user_annotation": EventKind.ANNOTATION,
    "python_function": EventKind.FRAME,
    "cpu_instant_event": EventKind.ALLOCATION,
}
"""Categories that are read; all others are not the CPU's, or say nothing of ops."""

_CPU_DEVICE = 0
_NULL = msgspec.Raw(b"null")
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Arguments(msgspec.Struct, gc=False, frozen=True):
    """The part of an event's arguments that is read; what its tensors are stays encoded, as few of them differ."""

    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NULL)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NULL)
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=_NULL)
    sequence: _Int64 = msgspec.field(name="Sequence number", default=NO_SEQUENCE)
    size_bytes: _Int64 = msgspec.field(name="Bytes", default=0)
    device: _Int64 = msgspec.field(name="Device Type", default=_CPU_DEVICE)


_NO_ARGUMENTS = Arguments()


class TraceEvent(msgspec.Struct, gc=False, frozen=True):
    """The part of an event that is read; `ts` and `dur` are microseconds.

    Threads are told apart by their own number: those of other processes on the same machine have others.
    """

    cat: str = ""
    name: str = ""
    tid: int | float | str | None = None
    ts: float = NO_START
    dur: float = NO_DURATION
    args: Arguments = _NO_ARGUMENTS

    @property
    def is_allocation(self) -> bool:
        """Whether the CPU's memory was asked for; when it is given back depends on the garbage collector."""
        return self.name == "[memory]" and self.args.size_bytes > 0 and self.args.device == _CPU_DEVICE
