"""Sigmoid focal loss: a drop-in for `torchvision.ops.sigmoid_focal_loss` that passes once over its inputs.

Where a gradient is wanted, the same pass computes the slope of each element, so that backward is at most a product. No
intermediate grows with the logits, so the loss is finite for every finite logit.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from perfguard.kernels.build import compiled

REDUCTIONS = ("none", "mean", "sum")
_HALF = (torch.bfloat16, torch.float16)


def sigmoid_focal_loss(
    inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "none"
) -> Tensor:
    """Focal loss of logits, as torchvision defines it.

    Args:
        inputs: Logits of any shape, in float32, float64, bfloat16 or float16.
        targets: For each logit the probability of the positive class, in [0, 1]; usually 0 or 1. Taken in the dtype
            of the inputs.
        alpha: Weight of positive targets; negative ones weigh 1 - alpha. A negative alpha weighs all the same.
        gamma: Exponent of the modulating factor, at least 0.
        reduction: `none` for each element's loss, `mean` or `sum`.

    Returns:
        The losses, or a 0-d tensor. In the dtype of the inputs, and float32 under autocast. Half precision is computed
        in float32 and rounded once.

    Raises:
        ValueError: Other targets, alpha or gamma, an unknown reduction, or different shapes.
        TypeError: The logits are no floating-point numbers.

    Source: Lin et al., "Focal Loss for Dense Object Detection", arXiv 1708.02002, equation 5.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"unknown reduction {reduction!r}; choose from {', '.join(REDUCTIONS)}")
    if not gamma >= 0 or math.isinf(gamma):
        raise ValueError(f"gamma must be at least 0, not {gamma}")
    if not alpha <= 1:
        raise ValueError(f"alpha must be in [0, 1], or negative for no weights, not {alpha}")
    if inputs.shape != targets.shape:
        raise ValueError(f"targets must have the shape of inputs, {tuple(inputs.shape)}, not {tuple(targets.shape)}")
    if not inputs.is_floating_point():
        raise TypeError(f"inputs must be floating-point logits, not {inputs.dtype}")
    targets = targets.to(inputs.dtype)
    dtype = inputs.dtype
    if dtype in _HALF and torch.is_autocast_enabled(inputs.device.type):
        dtype = torch.float32
    if reduction == "none":
        return _losses(inputs.to(dtype), targets.to(dtype), alpha, gamma, scale=1.0, is_summed=False)
    if reduction == "mean" and not inputs.numel():
        return inputs.sum() * math.nan
    scale = 1 / inputs.numel() if reduction == "mean" else 1.0
    return _losses(inputs, targets, alpha, gamma, scale=scale, is_summed=True).to(dtype)


def _losses(logits: Tensor, targets: Tensor, alpha: float, gamma: float, *, scale: float, is_summed: bool) -> Tensor:
    if targets.requires_grad:
        losses = scale * losses_of(logits, targets, alpha, gamma)
        return losses.sum() if is_summed else losses
    with_slopes = torch.is_grad_enabled() and logits.requires_grad
    losses, _ = _FocalLoss.apply(logits, targets, float(alpha), float(gamma), scale, is_summed, with_slopes)
    return losses


@torch.library.custom_op(
    "perfguard::sigmoid_focal_loss",
    mutates_args=(),
    schema="(Tensor logits, Tensor targets, float alpha, float gamma, float scale, bool is_summed, bool with_slopes)"
    " -> (Tensor, Tensor)",
)
def _focal_loss(logits: Tensor, targets: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    """Losses, or their sum in at least float32, and slopes where they are wanted; all times `scale`."""
    alpha, gamma, scale, is_summed, with_slopes = settings
    library = compiled("focal_loss") if logits.device.type == "cpu" else None
    if library is not None:
        total, losses, slopes = library.focal_loss_pass(
            logits, targets, alpha, gamma, scale, not is_summed, with_slopes
        )
        return torch.tensor(total, dtype=_wide(logits.dtype)) if is_summed else losses, slopes
    least, largest = torch.aminmax(targets) if targets.numel() else (0, 1)
    if least < 0 or largest > 1:
        raise ValueError(f"targets must be in [0, 1], but one of them is {float(least if least < 0 else largest):g}")
    wide, wide_targets = logits.to(_wide(logits.dtype)), targets.to(_wide(logits.dtype))
    losses = scale * losses_of(wide, wide_targets, alpha, gamma)
    slopes = scale * slopes_of(wide, wide_targets, alpha, gamma) if with_slopes else wide.new_empty(0)
    return losses.sum() if is_summed else losses.to(logits.dtype), slopes.to(logits.dtype)


@_focal_loss.register_fake
def _(logits: Tensor, _targets: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    *_, is_summed, with_slopes = settings
    slopes = torch.empty_like(logits) if with_slopes else logits.new_empty(0)
    return logits.new_empty((), dtype=_wide(logits.dtype)) if is_summed else torch.empty_like(logits), slopes


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in _HALF else dtype


class _FocalLoss(torch.autograd.Function):
    """The operator with its derivatives, for autograd and for the transforms of `torch.func`."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        """Losses and slopes."""
        return _focal_loss(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what backward needs: the slopes, and for a second derivative the inputs."""
        logits, targets, *ctx.settings = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # else zeros as large as the logits are made for the slopes
        ctx.save_for_backward(logits, targets, output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradient of the losses times the slopes."""
        logits, targets, slopes = ctx.saved_tensors
        alpha, gamma, scale, is_summed, with_slopes = ctx.settings
        gradient = gradients[0]
        if gradient is None:
            return (None,) * 7
        if not with_slopes or (torch.is_grad_enabled() and not torch.compiler.is_compiling()):
            slopes = scale * slopes_of(logits, targets, alpha, gamma)  # may be differentiated once more
        elif is_summed and not torch.compiler.is_compiling() and _is_one(gradient):
            return (slopes, *[None] * 6)
        return ((gradient * slopes).to(logits.dtype), *[None] * 6)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], logits: Tensor, targets: Tensor, *settings: Any
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int | None]]:
        """All examples of a batch at once."""
        *weights, is_summed, with_slopes = settings
        first, second = (
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip((logits, targets), in_dims, strict=False)
        )
        of_each = (*weights, False, with_slopes)
        losses, slopes = _FocalLoss.apply(first, second, *of_each)
        if is_summed:
            losses = losses.flatten(1).sum(1, dtype=_wide(logits.dtype))
        return (losses, slopes), (0, 0 if with_slopes else None)


# The bare operator, as an exported graph holds it, has the same derivative.
_focal_loss.register_autograd(_FocalLoss.backward, setup_context=_FocalLoss.setup_context)


def _is_one(gradient: Tensor) -> bool:
    """Whether a 0-d gradient is 1, as at the end of a graph; False where its value is not known, as while tracing."""
    try:
        return type(gradient) is Tensor and gradient.item() == 1
    except RuntimeError:  # of a batch of gradients
        return False


def losses_of(logits: Tensor, targets: Tensor, alpha: float, gamma: float) -> Tensor:
    """The loss of each element in torch's ops, without terms that overflow; differentiable in both tensors."""
    parts = _Parts(logits, targets)
    return parts.factor(targets, alpha, gamma) * parts.cross_entropy


def slopes_of(logits: Tensor, targets: Tensor, alpha: float, gamma: float) -> Tensor:
    """The derivative of each element's loss by its logit, in torch's ops; differentiable in both tensors."""
    parts = _Parts(logits, targets)
    finite = parts.cross_entropy.clamp(max=torch.finfo(logits.dtype).max)
    slope = parts.far - parts.near_p * parts.tail + gamma * (finite * parts.odds) * (2 * parts.far - 1)
    return parts.factor(targets, alpha, gamma) * torch.where(parts.is_negative, -slope, slope)


class _Parts:
    """What loss and slope are made of; the names and the formulas are those of focal_loss.cpp."""

    def __init__(self, logits: Tensor, targets: Tensor) -> None:
        self.is_negative = logits < 0
        self.magnitude = torch.where(self.is_negative, -logits, logits)  # abs() has no derivative at 0
        self.tail = torch.exp(-self.magnitude)
        self.near_p = 1 / (1 + self.tail)
        self.log_tail = torch.log1p(self.tail)
        self.far = torch.where(self.is_negative, targets, 1 - targets)
        self.is_certain = self.far == 0
        # Where the target is certain, mix may underflow; it takes no part there, and 1 keeps its derivatives finite.
        self.mix = torch.where(self.is_certain, 1.0, self.far + self.tail * (1 - self.far))
        self.cross_entropy = torch.where(self.is_certain, 0.0, self.magnitude * self.far) + self.log_tail
        self.odds = torch.where(self.is_certain, self.near_p, self.near_p * self.tail / self.mix)

    def factor(self, targets: Tensor, alpha: float, gamma: float) -> Tensor:
        """Weight times the modulating factor."""
        weight = alpha * targets + (1 - alpha) * (1 - targets) if alpha >= 0 else torch.ones_like(targets)
        log_mix = torch.where(self.is_certain, -self.magnitude, self.mix.log())
        return weight * torch.exp(gamma * (log_mix - self.log_tail)) if gamma else weight
