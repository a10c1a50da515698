"""Seeded input tensors, and the names that cases use for dtypes and memory formats.

The worker seeds torch's global generator before it calls a factory, so everything drawn here is the same in
both arms and in every process.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from perfguard.errors import UsageError

Module = TypeVar("Module", bound=nn.Module)

DTYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Case names of the floating-point types."""

MEMORY_FORMATS: dict[str, torch.memory_format] = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
}
"""Case names of the layouts of four-dimensional tensors."""


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype that a case calls `name`.

    Raises:
        UsageError: No dtype has this name.
    """
    try:
        return DTYPES[name]
    except KeyError:
        raise UsageError(f"unknown dtype {name!r}; choose from {', '.join(DTYPES)}") from None


def memory_format_of(name: str) -> torch.memory_format:
    """The torch memory format that a case calls `name`.

    Raises:
        UsageError: No memory format has this name.
    """
    try:
        return MEMORY_FORMATS[name]
    except KeyError:
        raise UsageError(f"unknown memory format {name!r}; choose from {', '.join(MEMORY_FORMATS)}") from None


def in_memory_format(module: Module, name: str) -> Module:
    """The module itself, with its four-dimensional weights in the memory format that a case calls `name`."""
    return module.to(memory_format=memory_format_of(name))  # type: ignore[call-overload]


def normal(*shape: int, dtype: str = "fp32", memory_format: str = "contiguous") -> Tensor:
    """Standard normal values; drawn in fp32 and then rounded, so that bf16 cases see the same numbers."""
    values = torch.randn(shape)
    if len(shape) == 4:
        values = values.contiguous(memory_format=memory_format_of(memory_format))
    return values.to(dtype_of(dtype))


def leaf(*shape: int, dtype: str = "fp32", memory_format: str = "contiguous") -> Tensor:
    """Like `normal`, with a gradient: the activation that a layer receives in training."""
    return normal(*shape, dtype=dtype, memory_format=memory_format).requires_grad_()


def images(batch: int, size: int, *, memory_format: str = "contiguous") -> Tensor:
    """Synthetic images, fp32, shape (batch, 3, size, size), values in [0, 1) as after `ToTensor`."""
    return torch.rand(batch, 3, size, size).contiguous(memory_format=memory_format_of(memory_format))


def integers(high: int, *shape: int, low: int = 0) -> Tensor:
    """Class labels, token ids or table rows: int64, uniform in [low, high)."""
    return torch.randint(low, high, shape)
