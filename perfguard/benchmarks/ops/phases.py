"""Turn a forward function into the callable to time: forward only, or forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.shared import checked, norm_of
from perfguard.errors import UsageError
from perfguard.records.spec import Phase


def phased(forward: Callable[[], Tensor], leaves: Iterable[Tensor], *, phase: str) -> Timed:
    """The callable for one phase of a kernel.

    Both phases record the autograd graph, as training does. Successive calls do the same work and return the
    same values.

    Args:
        forward: Computes the output from tensors that it holds.
        leaves: Tensors that receive gradients.
        phase: `forward` returns the output; `forward+backward` returns the gradient of the first leaf, which a
            wrong or non-finite backward cannot leave intact, and is checked by the norm of all gradients. The
            gradient of the output is fixed.

    Raises:
        UsageError: A kernel has no such phase.
    """
    if phase == Phase.FORWARD.value:
        return lambda: forward().detach()
    if phase != Phase.FORWARD_BACKWARD.value:
        raise UsageError(f"a kernel has no phase {phase!r}; use 'forward' or 'forward+backward'")
    output = forward().detach()
    output_gradient = torch.ones_like(output) if output.ndim == 0 else torch.randn_like(output)
    del output
    targets = tuple(leaves)

    def forward_backward() -> Tensor | None:
        for target in targets:
            target.grad = None
        forward().backward(output_gradient)
        return targets[0].grad

    return checked(forward_backward, lambda: {"gradient_norm": norm_of(target.grad for target in targets)})
