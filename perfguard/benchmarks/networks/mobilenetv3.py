"""MobileNetV3 Large and Small with torchvision's structure and parameter names.

Source: Howard et al., arXiv 1905.02244, tables 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from perfguard.errors import UsageError


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the paper's tables."""

    kernel: int
    """Side of the depthwise convolution."""
    expanded: int
    """Channels of the depthwise convolution."""
    outputs: int
    """Channels of the block's output."""
    squeeze: bool
    """Whether the block has squeeze-and-excitation."""
    hardswish: bool
    """Hard-swish instead of ReLU."""
    stride: int
    """Stride of the depthwise convolution."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A network of the family."""

    rows: tuple[Row, ...]
    """Inverted residual blocks, first to last."""
    hidden: int
    """Width of the classifier's hidden layer."""


VARIANTS: dict[str, Variant] = {
    "large": Variant(
        rows=(
            Row(3, 16, 16, squeeze=False, hardswish=False, stride=1),
            Row(3, 64, 24, squeeze=False, hardswish=False, stride=2),
            Row(3, 72, 24, squeeze=False, hardswish=False, stride=1),
            Row(5, 72, 40, squeeze=True, hardswish=False, stride=2),
            Row(5, 120, 40, squeeze=True, hardswish=False, stride=1),
            Row(5, 120, 40, squeeze=True, hardswish=False, stride=1),
            Row(3, 240, 80, squeeze=False, hardswish=True, stride=2),
            Row(3, 200, 80, squeeze=False, hardswish=True, stride=1),
            Row(3, 184, 80, squeeze=False, hardswish=True, stride=1),
            Row(3, 184, 80, squeeze=False, hardswish=True, stride=1),
            Row(3, 480, 112, squeeze=True, hardswish=True, stride=1),
            Row(3, 672, 112, squeeze=True, hardswish=True, stride=1),
            Row(5, 672, 160, squeeze=True, hardswish=True, stride=2),
            Row(5, 960, 160, squeeze=True, hardswish=True, stride=1),
            Row(5, 960, 160, squeeze=True, hardswish=True, stride=1),
        ),
        hidden=1280,
    ),
    "small": Variant(
        rows=(
            Row(3, 16, 16, squeeze=True, hardswish=False, stride=2),
            Row(3, 72, 24, squeeze=False, hardswish=False, stride=2),
            Row(3, 88, 24, squeeze=False, hardswish=False, stride=1),
            Row(5, 96, 40, squeeze=True, hardswish=True, stride=2),
            Row(5, 240, 40, squeeze=True, hardswish=True, stride=1),
            Row(5, 240, 40, squeeze=True, hardswish=True, stride=1),
            Row(5, 120, 48, squeeze=True, hardswish=True, stride=1),
            Row(5, 144, 48, squeeze=True, hardswish=True, stride=1),
            Row(5, 288, 96, squeeze=True, hardswish=True, stride=2),
            Row(5, 576, 96, squeeze=True, hardswish=True, stride=1),
            Row(5, 576, 96, squeeze=True, hardswish=True, stride=1),
        ),
        hidden=1024,
    ),
}
"""The two networks of the paper, width multiplier 1."""

Activation = Callable[[], nn.Module] | None
_NORM = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)


class SqueezeExcitation(nn.Module):
    """Channel weights from global averages through a quarter of the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = _multiple_of_eight(channels // 4)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = nn.ReLU()
        self.scale_activation = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """Same shape."""
        scale = self.activation(self.fc1(self.avgpool(x)))
        scaled: Tensor = self.scale_activation(self.fc2(scale)) * x
        return scaled


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, squeeze-and-excitation and linear projection."""

    def __init__(self, inputs: int, row: Row) -> None:
        super().__init__()
        activation = nn.Hardswish if row.hardswish else nn.ReLU
        layers: list[nn.Module] = []
        if row.expanded != inputs:
            layers.append(_convolution(inputs, row.expanded, 1, activation=activation))
        layers.append(
            _convolution(
                row.expanded, row.expanded, row.kernel, activation=activation, stride=row.stride, depthwise=True
            )
        )
        if row.squeeze:
            layers.append(SqueezeExcitation(row.expanded))
        layers.append(_convolution(row.expanded, row.outputs, 1, activation=None))
        self.block = nn.Sequential(*layers)
        self.residual = row.stride == 1 and inputs == row.outputs

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) to (batch, outputs, h/stride, w/stride)."""
        out: Tensor = self.block(x)
        if self.residual:
            out += x
        return out


class MobileNetV3(nn.Module):
    """The classifier."""

    def __init__(self, *, variant: str = "large", classes: int = 1000, dropout: float = 0.2) -> None:
        """Build one of `VARIANTS` with random weights.

        Raises:
            UsageError: No such variant.
        """
        super().__init__()
        if variant not in VARIANTS:
            raise UsageError(f"unknown MobileNetV3 variant {variant!r}; choose from {', '.join(VARIANTS)}")
        rows, hidden = VARIANTS[variant].rows, VARIANTS[variant].hidden
        layers: list[nn.Module] = [_convolution(3, 16, 3, activation=nn.Hardswish, stride=2)]
        channels = 16
        for row in rows:
            layers.append(InvertedResidual(channels, row))
            channels = row.outputs
        layers.append(_convolution(channels, 6 * channels, 1, activation=nn.Hardswish))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * channels, hidden),
            nn.Hardswish(inplace=True),
            nn.Dropout(p=dropout, inplace=True),
            nn.Linear(hidden, classes),
        )
        self.apply(_initialise)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (batch, classes) of images (batch, 3, s, s)."""
        logits: Tensor = self.classifier(torch.flatten(self.avgpool(self.features(images)), 1))
        return logits


def _convolution(
    inputs: int, outputs: int, kernel: int, *, activation: Activation, stride: int = 1, depthwise: bool = False
) -> nn.Sequential:
    groups = inputs if depthwise else 1
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
    layers = [convolution, _NORM(outputs)]
    return nn.Sequential(*layers) if activation is None else nn.Sequential(*layers, activation())


def _multiple_of_eight(channels: float) -> int:
    rounded = max(8, int(channels + 4) // 8 * 8)
    # The paper's code never rounds down by more than a tenth.
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out")
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.01)
    if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
