"""Sigmoid focal loss in the form of the RetinaNet reference."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def sigmoid_focal_loss(logits: Tensor, targets: Tensor, *, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """Sum over all elements of the focal loss.

    The chain of element-wise ops is kept as torchvision and fvcore write it (sigmoid, binary cross-entropy
    with logits, modulating factor): its many passes over memory are what a step of the reference pays for.

    Source: Lin et al., "Focal Loss for Dense Object Detection", arXiv 1708.02002, equation 5.

    Args:
        logits: Any shape.
        targets: Same shape and floating-point type; 0 or 1.
        alpha: Weight of positive elements; negative ones weigh 1 - alpha.
        gamma: Exponent of the modulating factor.

    Returns:
        A 0-d tensor.
    """
    probability = torch.sigmoid(logits)
    cross_entropy = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    probability_of_target = probability * targets + (1 - probability) * (1 - targets)
    loss = cross_entropy * ((1 - probability_of_target) ** gamma)
    weight = alpha * targets + (1 - alpha) * (1 - targets)
    return (weight * loss).sum()
