"""Feature pyramid network with RetinaNet's two extra levels, and frozen batch norm, with torchvision's parameter names.

Source: Lin et al., arXiv 1612.03144; the extra levels: arXiv 1708.02002, footnote 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence


class LastLevelP6P7(nn.Module):
    """Two strided 3x3 convolutions on top of P5: P6 on P5, P7 on relu(P6)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.p6 = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.p7 = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        for module in (self.p6, self.p7):
            _initialise(module)

    def forward(self, p5: Tensor) -> list[Tensor]:
        """P6 and P7."""
        p6 = self.p6(p5)
        return [p6, self.p7(torch.relu(p6))]


class FeaturePyramidNetwork(nn.Module):
    """1x1 laterals, nearest upsampling top-down, 3x3 outputs, and P6 and P7."""

    def __init__(self, inputs: Sequence[int], channels: int) -> None:
        super().__init__()
        # Each convolution sits in a Sequential of one, so that the names equal torchvision's.
        self.inner_blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(c, channels, 1)) for c in inputs)
        self.layer_blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1)) for _ in inputs)
        for module in (*self.inner_blocks.modules(), *self.layer_blocks.modules()):
            if isinstance(module, nn.Conv2d):
                _initialise(module)
        self.extra_blocks = LastLevelP6P7(channels)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """From maps of falling size (C3, C4, C5) to as many maps of `channels` channels, and P6 and P7."""
        inner = self.inner_blocks[-1](maps[-1])
        outputs = [self.layer_blocks[-1](inner)]
        for index in range(len(maps) - 2, -1, -1):
            lateral = self.inner_blocks[index](maps[index])
            inner = lateral + functional.interpolate(inner, size=lateral.shape[-2:], mode="nearest")
            outputs.insert(0, self.layer_blocks[index](inner))
        return outputs + list(self.extra_blocks(outputs[-1]))


def _initialise(convolution: nn.Conv2d) -> None:
    nn.init.kaiming_uniform_(convolution.weight, a=1)
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)


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
