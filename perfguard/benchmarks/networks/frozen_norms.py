"""Batch norm that is not trained, as a layer of its own or folded into the convolution before it."""

from __future__ import annotations

from torch import Tensor, nn, ones, zeros
from torch.nn import functional

from perfguard.benchmarks.networks.classifiers import Bottleneck, ResNetTrunk


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
        self.register_buffer("weight", ones(channels))
        self.register_buffer("bias", zeros(channels))
        self.register_buffer("running_mean", zeros(channels))
        self.register_buffer("running_var", ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (batch, channels, height, width)."""
        buffers = (self.weight, self.bias, self.running_mean, self.running_var)
        weight, bias, mean, variance = (buffer.reshape(1, -1, 1, 1) for buffer in buffers)
        scale = weight * (variance + self.eps).rsqrt()
        return x * scale + (bias - mean * scale)


class FoldedConv2d(nn.Module):
    """A convolution and the frozen batch norm behind it as one convolution, with the convolution's own weight.

    The norm is a factor and a summand for each output channel. The summand is computed once; the weight is multiplied
    in every step where it is trained, and once where it is frozen.
    """

    scale: Tensor
    bias: Tensor

    def __init__(self, convolution: nn.Conv2d, norm: FrozenBatchNorm2d) -> None:
        super().__init__()
        self.weight = convolution.weight
        self.stride, self.padding, self.groups = convolution.stride, convolution.padding, convolution.groups
        scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
        self.register_buffer("scale", scale.view(-1, 1, 1, 1), persistent=False)
        self.register_buffer("bias", norm.bias - norm.running_mean * scale, persistent=False)
        if not self.weight.requires_grad:
            self.weight = nn.Parameter(self.weight * self.scale, requires_grad=False)
            self.scale.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve and normalise (batch, channels, height, width)."""
        weight = self.weight * self.scale if self.weight.requires_grad else self.weight
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding, groups=self.groups)


def fold_frozen_norms(trunk: ResNetTrunk) -> None:
    """Replace every convolution with a frozen batch norm behind it by one convolution; names of weights stay."""
    pairs: list[tuple[nn.Module, str, str]] = [(trunk, "conv1", "bn1")]
    for block in trunk.modules():
        if isinstance(block, Bottleneck):
            pairs += [(block, f"conv{n}", f"bn{n}") for n in (1, 2, 3)]
            if block.downsample is not None:
                pairs.append((block.downsample, "0", "1"))
    for module, convolution, norm in pairs:
        setattr(module, convolution, FoldedConv2d(getattr(module, convolution), getattr(module, norm)))
        setattr(module, norm, nn.Identity())
