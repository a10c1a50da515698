"""Batch norm with fixed statistics and affine parameters, as detection models train."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FrozenBatchNorm2d(nn.Module):
    """y = x·scale + shift per channel, from four buffers; nothing in it is trained.

    Under bf16 autocast the product with the fp32 scale gives fp32 activations, as in the reference.

    Source: torchvision `ops.misc.FrozenBatchNorm2d`.
    """

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.ones(channels))
        self.register_buffer("bias", torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (batch, channels, height, width)."""
        weight = self.weight.reshape(1, -1, 1, 1)
        bias = self.bias.reshape(1, -1, 1, 1)
        variance = self.running_var.reshape(1, -1, 1, 1)
        mean = self.running_mean.reshape(1, -1, 1, 1)
        scale = weight * (variance + self.eps).rsqrt()
        return x * scale + (bias - mean * scale)
