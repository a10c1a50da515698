"""Denormal values in what a program keeps from step to step: parameters, gradients, state of optimizers.

They are recognised by their bits, which is cheap and works where the processor rounds them to zero. f16 is passed over:
what is denormal there is an ordinary number once it is converted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from perfguard.records.steps.program import DenormalCount

MAX_VALUES = 1 << 20
"""Values of one tensor that are looked at, spread over all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bits:
    """Where a floating-point format has its exponent, which is 0 in denormals, and its fraction, which is not."""

    integers: str
    """torch's integers of the same size."""
    exponent: int
    fraction: int


_BITS = {
    "torch.float32": _Bits(integers="int32", exponent=0x7F80_0000, fraction=0x007F_FFFF),
    "torch.float64": _Bits(integers="int64", exponent=0x7FF0_0000_0000_0000, fraction=0x000F_FFFF_FFFF_FFFF),
    "torch.bfloat16": _Bits(integers="int16", exponent=0x7F80, fraction=0x007F),
}
"""Source: IEEE 754; bfloat16 is the upper half of f32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTensor:
    """A tensor and what to call it."""

    name: str
    """`Net.conv1.weight`."""
    tensor: Any
    """The tensor."""


def count_denormals(groups: dict[str, Sequence[NamedTensor]]) -> tuple[DenormalCount, ...]:
    """Count in each group; groups without a single value are left out. Belongs between steps, never into one."""
    import torch

    with torch.no_grad():
        counts = [_count(group, tensors) for group, tensors in groups.items()]
    return tuple(count for count in counts if count.values)


def flushes_denormals() -> bool:
    """Whether this thread rounds denormals to zero."""
    import torch

    return float(torch.full((1,), 1e-40).mul(1.0)[0]) == 0.0


def state_of(optimizers: Iterable[Any], names: dict[int, str]) -> list[NamedTensor]:
    """Tensors that optimizers keep for their parameters.

    Args:
        optimizers: The optimizers.
        names: Of parameters, by their id.
    """
    import torch

    return [
        NamedTensor(name=f"{key} of {names.get(id(parameter), 'a parameter')}", tensor=value)
        for optimizer in optimizers
        for parameter, state in optimizer.state.items()
        if isinstance(state, dict)
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    ]


def _count(group: str, tensors: Sequence[NamedTensor]) -> DenormalCount:
    values = denormals = 0
    worst, worst_ratio = "", 0.0
    for named in tensors:
        looked_at, found = _count_in(named.tensor)
        values, denormals = values + looked_at, denormals + found
        if found and found / looked_at > worst_ratio:
            worst, worst_ratio = named.name, found / looked_at
    return DenormalCount(group=group, values=values, denormals=denormals, worst=worst)


def _count_in(tensor: Any) -> tuple[int, int]:
    """How many values were looked at, and how many of them are denormal."""
    import torch

    bits = _BITS.get(str(tensor.dtype))
    if bits is None or tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.numel():
        return 0, 0
    try:
        values = _sample(tensor.detach().view(getattr(torch, bits.integers)))
    except (RuntimeError, NotImplementedError):  # a subclass of tensors that has no memory of its own
        return 0, 0
    denormal = ((values & bits.exponent) == 0) & ((values & bits.fraction) != 0)
    return values.numel(), int(denormal.sum())


def _sample(values: Any) -> Any:
    """About `MAX_VALUES` of the values at most: every so many along the longest dimension, as a view."""
    step = -(-values.numel() // MAX_VALUES)
    longest = max(range(values.dim()), key=lambda dimension: values.shape[dimension], default=0)
    return values if step == 1 else values[(slice(None),) * longest + (slice(None, None, step),)]
