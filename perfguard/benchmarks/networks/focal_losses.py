"""Six ways to compute RetinaNet's focal loss: the reference, and what has been tried to make it cheaper.

All return the sum over all elements for targets of 0 or 1 in the logits' shape and dtype, with alpha 0.25 and gamma 2.
The two published formulas overflow for large logits; their tests say where.

Source: Lin et al., arXiv 1708.02002, equation 5 (the loss); Fu et al., arXiv 2206.10034, equations 1 to 3 and figure 9
(`implicit`, `explicit`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from perfguard.benchmarks.shared import require_compiler
from perfguard.errors import MeasurementError, UsageError
from perfguard.kernels import sigmoid_focal_loss
from perfguard.kernels.build import BuildError, load

ALPHA, GAMMA = 0.25, 2.0
_OPERATOR = "focal_loss"
FocalLoss = Callable[[Tensor, Tensor], Tensor]


def reference(logits: Tensor, targets: Tensor, *, alpha: float = ALPHA, gamma: float = GAMMA) -> Tensor:
    """The chain of element-wise ops that torchvision and fvcore write.

    Sigmoid, binary cross-entropy with logits, modulating factor: its many passes over memory are what a step of the
    reference pays for.
    """
    probability = torch.sigmoid(logits)
    cross_entropy = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    probability_of_target = probability * targets + (1 - probability) * (1 - targets)
    loss = cross_entropy * ((1 - probability_of_target) ** gamma)
    weight = alpha * targets + (1 - alpha) * (1 - targets)
    return (weight * loss).sum()


def implicit(logits: Tensor, targets: Tensor) -> Tensor:
    """The paper's simplified expression, differentiated by autograd. Not finite from logits of 44 on in float32."""
    grown = logits.exp()
    return _paper_losses(logits, targets, grown).sum()


def _paper_losses(logits: Tensor, targets: Tensor, grown: Tensor) -> Tensor:
    modulation = ((targets + (1 - targets) * grown) / (grown + 1)) ** GAMMA
    weight = ALPHA * (2 * targets - 1) - targets + 1
    return modulation * (weight * torch.log(grown + 1) - ALPHA * logits * targets)


class _Explicit(torch.autograd.Function):
    """The paper's expression with its own backward, in place wherever that is possible."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        """The sum of the losses; keeps the inputs alone."""
        ctx.save_for_backward(logits, targets)
        return _paper_losses(logits, targets, logits.exp()).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Figure 9 of the paper."""
        logits, targets = ctx.saved_tensors
        grown = logits.exp()
        after = (grown + 1).log_().mul_(targets + (ALPHA - 1)).mul_(grown).mul_(GAMMA)
        after.sub_((grown * logits).mul_(targets).mul_(ALPHA * GAMMA)).add_(targets, alpha=ALPHA)
        after.add_(grown.square().mul_(1 - targets), alpha=ALPHA - 1)
        after.mul_((targets + grown * (1 - targets)).pow_(GAMMA - 1)).mul_(grown.add_(1).pow_(-GAMMA - 1))
        return after.mul_(-gradients[0]), None


def explicit(logits: Tensor, targets: Tensor) -> Tensor:
    """The paper's expression with an explicit backward. Its gradient is wrong from logits of 30 on in float32."""
    loss: Tensor = _Explicit.apply(logits, targets)
    return loss


def fused(logits: Tensor, targets: Tensor) -> Tensor:
    """Losses and slopes in one pass: perfguard's own operator."""
    return sigmoid_focal_loss(logits, targets, ALPHA, GAMMA, "sum")


class _TwoPasses(torch.autograd.Function):
    """A vectorized kernel for each direction, as in Intel's patch of the MLPerf reference: losses, then slopes."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        """Each element's loss, as wide as the logits, then their sum."""
        ctx.save_for_backward(logits, targets)
        _, losses, _ = load(_OPERATOR).focal_loss_pass(logits, targets, ALPHA, GAMMA, 1.0, True, False)  # noqa: FBT003
        total: Tensor = losses.sum()
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Computes all that forward computed once more."""
        scale = gradients[0].item()
        _, _, slopes = load(_OPERATOR).focal_loss_pass(*ctx.saved_tensors, ALPHA, GAMMA, scale, False, True)  # noqa: FBT003
        return slopes, None


def ipex_style(logits: Tensor, targets: Tensor) -> Tensor:
    """Two vectorized passes, one for each direction."""
    loss: Tensor = _TwoPasses.apply(logits, targets)
    return loss


@functools.cache
def _compiled_reference() -> FocalLoss:
    return torch.compile(reference, dynamic=False)


def compiled(logits: Tensor, targets: Tensor) -> Tensor:
    """The reference through torch.compile."""
    return _compiled_reference()(logits, targets)


FOCAL_LOSSES: Mapping[str, FocalLoss] = {
    "reference": reference,
    "implicit": implicit,
    "explicit": explicit,
    "fused": fused,
    "compiled": compiled,
    "ipex_style": ipex_style,
}


def focal_loss_named(name: str) -> FocalLoss:
    """One of `FOCAL_LOSSES`, ready to be timed.

    Raises:
        UsageError: No variant has this name.
        MeasurementError: It needs a compiled operator, and none can be built here.
    """
    if name not in FOCAL_LOSSES:
        raise UsageError(f"no focal loss is named {name!r}; choose from {', '.join(FOCAL_LOSSES)}")
    if name == "compiled":
        require_compiler()
    if name in ("fused", "ipex_style"):
        try:
            load(_OPERATOR)
        except BuildError as error:
            raise MeasurementError(f"the {name} focal loss cannot be built: {error}") from error
    return FOCAL_LOSSES[name]
