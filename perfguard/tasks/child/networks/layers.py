"""Convolutions as TensorFlow pads them, which the published networks are built of."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Rows to add before and after `size` ones, so that `ceil(size / stride)` come out; a dilated kernel's whole reach.

    Source: TensorFlow, padding "SAME".
    """
    missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return missing // 2, missing - missing // 2


class SameConvolution(nn.Conv2d):
    """A convolution with TensorFlow's padding "SAME"."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - the name that nn.Conv2d has
        """Images `(batch, channels, height, width)` to `(batch, filters, ceil(height / stride), …)`."""
        sides: list[int] = []
        for axis in (1, 0):
            reach = self.dilation[axis] * (self.kernel_size[axis] - 1) + 1
            sides += same_padding(int(input.shape[2 + axis]), reach, self.stride[axis])
        left, right, top, bottom = sides
        if (left, top) == (right, bottom):
            padded, padding = input, (top, left)
        else:
            padded, padding = functional.pad(input, sides), (0, 0)
        return functional.conv2d(padded, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Layer(nn.Sequential):
    """A convolution without bias, batch normalization, and an activation if there is one."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        activation: type[nn.Module] | None = nn.ReLU6,
        eps: float = 1e-3,
    ) -> None:
        layers: list[nn.Module] = [
            SameConvolution(inputs, outputs, kernel, stride=stride, dilation=dilation, groups=groups, bias=False),
            nn.BatchNorm2d(outputs, eps=eps),
        ]
        super().__init__(*layers, *([activation()] if activation is not None else []))


def depthwise(
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    dilation: int = 1,
    activation: type[nn.Module] | None = nn.ReLU6,
    eps: float = 1e-3,
) -> Layer:
    """A layer whose filters see one channel each."""
    return Layer(
        channels, channels, kernel, stride=stride, dilation=dilation, groups=channels, activation=activation, eps=eps
    )


class Residual(nn.Module):
    """Layers whose result is added to what they got."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images in, images of the same shape out."""
        result: torch.Tensor = images + self.layers(images)
        return result


def block(*layers: nn.Module, is_residual: bool) -> nn.Module:
    """Layers one after the other, with or without a way around them."""
    return Residual(*layers) if is_residual else nn.Sequential(*layers)
