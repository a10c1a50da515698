"""MobileNetV3 Large and Small with torchvision's structure and parameter names.

Source: Howard et al., arXiv 1905.02244, tables 1 and 2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from perfguard.errors import UsageError

Row = tuple[int, int, int, int, str]
"""A block as the paper's tables have it: kernel, expanded channels, output channels, stride, activation (`RE` for ReLU,
`HS` for hard-swish) and `SE` for squeeze-and-excitation."""

VARIANTS: dict[str, tuple[tuple[Row, ...], int]] = {
    "large": (
        (
            (3, 16, 16, 1, "RE"),
            (3, 64, 24, 2, "RE"),
            (3, 72, 24, 1, "RE"),
            (5, 72, 40, 2, "RE SE"),
            (5, 120, 40, 1, "RE SE"),
            (5, 120, 40, 1, "RE SE"),
            (3, 240, 80, 2, "HS"),
            (3, 200, 80, 1, "HS"),
            (3, 184, 80, 1, "HS"),
            (3, 184, 80, 1, "HS"),
            (3, 480, 112, 1, "HS SE"),
            (3, 672, 112, 1, "HS SE"),
            (5, 672, 160, 2, "HS SE"),
            (5, 960, 160, 1, "HS SE"),
            (5, 960, 160, 1, "HS SE"),
        ),
        1280,
    ),
    "small": (
        (
            (3, 16, 16, 2, "RE SE"),
            (3, 72, 24, 2, "RE"),
            (3, 88, 24, 1, "RE"),
            (5, 96, 40, 2, "HS SE"),
            (5, 240, 40, 1, "HS SE"),
            (5, 240, 40, 1, "HS SE"),
            (5, 120, 48, 1, "HS SE"),
            (5, 144, 48, 1, "HS SE"),
            (5, 288, 96, 2, "HS SE"),
            (5, 576, 96, 1, "HS SE"),
            (5, 576, 96, 1, "HS SE"),
        ),
        1024,
    ),
}
"""Blocks and width of the classifier's hidden layer of the two networks of the paper, width multiplier 1."""


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
        return self.scale_activation(self.fc2(scale)) * x


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, squeeze-and-excitation and linear projection."""

    def __init__(self, inputs: int, row: Row) -> None:
        super().__init__()
        kernel, expanded, outputs, stride, words = row
        activation = nn.Hardswish if "HS" in words else nn.ReLU
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers.append(_convolution(inputs, expanded, 1, activation=activation))
        layers.append(_convolution(expanded, expanded, kernel, activation=activation, stride=stride, groups=expanded))
        if "SE" in words:
            layers.append(SqueezeExcitation(expanded))
        layers.append(_convolution(expanded, outputs, 1, activation=None))
        self.block = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) to (batch, outputs, h/stride, w/stride)."""
        out: Tensor = self.block(x)
        if self.residual:
            out += x
        return out


class MobileNetV3(nn.Module):
    """The classifier with random weights; UsageError where the variant is none of `VARIANTS`."""

    def __init__(self, *, variant: str = "large", classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        if variant not in VARIANTS:
            raise UsageError(f"unknown MobileNetV3 variant {variant!r}; choose from {', '.join(VARIANTS)}")
        rows, hidden = VARIANTS[variant]
        layers: list[nn.Module] = [_convolution(3, 16, 3, activation=nn.Hardswish, stride=2)]
        channels = 16
        for row in rows:
            layers.append(InvertedResidual(channels, row))
            channels = row[2]
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
        return self.classifier(torch.flatten(self.avgpool(self.features(images)), 1))


def _convolution(
    inputs: int, outputs: int, kernel: int, *, activation: type[nn.Module] | None, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    padding = kernel // 2
    layers = nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=0.001, momentum=0.01),
    )
    return layers if activation is None else layers.append(activation())


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
