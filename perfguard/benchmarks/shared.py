"""What factories share: names of dtypes and memory formats, seeded inputs, phases of kernels, and checks of results.

The worker seeds torch's global generator before it calls a factory, so everything drawn here is the same in
both arms and in every process.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from perfguard.benchmarks.api import Timed
from perfguard.errors import MeasurementError, UsageError
from perfguard.records.spec import Phase

Check = Callable[[], Mapping[str, float]]
Module = TypeVar("Module", bound=nn.Module)
Named = TypeVar("Named")

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype that a case calls `name`; UsageError for an unknown name."""
    return _named("dtype", name, _DTYPES)


def memory_format_of(name: str) -> torch.memory_format:
    """The torch memory format that a case calls `name`; UsageError for an unknown name."""
    return _named("memory format", name, _MEMORY_FORMATS)


def _named(what: str, name: str, known: Mapping[str, Named]) -> Named:
    if name not in known:
        raise UsageError(f"unknown {what} {name!r}; choose from {', '.join(known)}")
    return known[name]


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


def require_compiler() -> None:
    """MeasurementError where torch.compile finds no C++ compiler."""
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler) is None:
        raise MeasurementError(
            f"torch.compile on CPU needs a C++ compiler, and {compiler!r} is not on PATH; "
            "install g++, set CXX, or choose cases that are not compiled"
        )


def checked(timed: Timed, check: Check) -> Timed:
    """The timed function with its `check`, which the worker calls once, after the first call of the function."""
    timed.check = check  # type: ignore[attr-defined]
    return timed


def varied(timed: Timed, vary: Callable[[], Check | None]) -> Timed:
    """The timed function with `vary`, which draws its inputs anew, in place, from torch's global generator.

    What it returns is asked after the next calls, in place of their result.
    """
    timed.vary = vary  # type: ignore[attr-defined]
    return timed


def redraw_images(pixels: Tensor) -> None:
    """Other values of `images`, in the range of those that are there.

    Drawn apart and copied: filled in place, images of another memory format would be other images.
    """
    low, high = pixels.aminmax()
    pixels.copy_(torch.rand(pixels.shape).mul_(high - low).add_(low))


def redraw_integers(values: Tensor, high: int, *, low: int = 0) -> None:
    """Other values of `integers`."""
    values.random_(low, high)


@torch.no_grad()
def move_values(tensors: Iterable[Tensor]) -> None:
    """Change a quarter of each tensor's rows, the cheapest way in which every kernel's result becomes another.

    Each column gets a factor of its own, since norms do not see a common one.
    """
    for tensor in tensors:
        rows = max(1, len(tensor) // 4)
        part = tensor.narrow(0, int(torch.randint(len(tensor) - rows + 1, ())), rows)
        part.mul_(torch.empty(part.shape[-1]).uniform_(0.25, 1.75).to(tensor.dtype))


def norm_of(tensors: Iterable[Tensor | None]) -> float:
    """Euclidean norm over all values together, summed in float64; duplicate entries of sparse tensors are added first.

    None, the gradient of a parameter that takes no part, is left out.
    """
    total = 0.0
    for tensor in tensors:
        if tensor is not None:
            values = tensor.detach()
            if values.is_sparse:
                values = values.coalesce().values()
            total += float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2
    return total**0.5


def phased(forward: Callable[[], Tensor], leaves: Iterable[Tensor], *, phase: str) -> Timed:
    """The callable for one phase of a kernel.

    Both phases record the autograd graph, as training does; successive calls do the same work and return the same
    values, until `vary` moves those of the leaves that are no parameters. `forward` returns the output;
    `forward+backward` returns the gradient of the first leaf, which a wrong or non-finite backward cannot leave
    intact, and is checked by the norm of the gradients of all leaves. The gradient of the output is fixed.

    Raises:
        UsageError: A kernel has no such phase.
    """
    targets = tuple(leaves)
    inputs = [target for target in targets if not isinstance(target, nn.Parameter)]
    if phase == Phase.FORWARD.value:
        return varied(lambda: forward().detach(), lambda: move_values(inputs))
    if phase != Phase.FORWARD_BACKWARD.value:
        raise UsageError(f"a kernel has no phase {phase!r}; use 'forward' or 'forward+backward'")
    output = forward().detach()
    output_gradient = torch.ones_like(output) if output.ndim == 0 else torch.randn_like(output)
    del output

    def forward_backward() -> Tensor | None:
        for target in targets:
            target.grad = None
        forward().backward(output_gradient)
        return targets[0].grad

    if output_gradient.ndim:  # gradients of linear operations hang on it alone
        inputs.append(output_gradient)
    timed = checked(forward_backward, lambda: {"gradient_norm": norm_of(target.grad for target in targets)})
    return varied(timed, lambda: move_values(inputs))
