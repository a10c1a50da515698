"""ResNet-18 and -50, the trunk of ResNeXt-50, MobileNetV3 Large and Small, with torchvision's structure and names.

Source: He et al., arXiv 1512.03385 (v1.5: the stride is on the 3x3 convolution); Xie et al., arXiv 1611.05431; Howard
et al., arXiv 1905.02244, tables 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from perfguard.errors import UsageError

NormLayer = Callable[[int], nn.Module]  # Makes the normalisation for a number of channels


class Block(Protocol):
    """Makes a block of a stage."""

    def __call__(self, inputs: int, planes: int, *, stride: int) -> nn.Module:
        """From `inputs` channels, with this stride."""


EXPANSION = 4  # Output channels of a bottleneck for each of its planes
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Planes and number of the bottlenecks in each stage of a 50-layer network."""
STAGES_18 = ((64, 2), (128, 2), (256, 2), (512, 2))
"""Planes and number of the basic blocks in each stage of an 18-layer network."""


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a residual connection."""

    def __init__(self, inputs: int, planes: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != planes:
            convolution = nn.Conv2d(inputs, planes, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(convolution, nn.BatchNorm2d(planes))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) to (batch, planes, h/stride, w/stride)."""
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out)


class Bottleneck(nn.Module):
    """1x1, 3x3 (grouped in ResNeXt) and 1x1 convolutions around a residual connection."""

    def __init__(self, inputs: int, planes: int, *, stride: int, groups: int, base_width: int, norm: NormLayer) -> None:
        super().__init__()
        width = planes * base_width // 64 * groups
        outputs = planes * EXPANSION
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, groups=groups, bias=False)
        self.bn2 = norm(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = norm(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) to (batch, 4·planes, h/stride, w/stride)."""
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


class ResNetTrunk(nn.Module):
    """Stem and four stages: from (batch, 3, s, s) to the feature map of each stage.

    `block(inputs, planes, stride)` makes a block of `stages`, which gives planes times `expansion` channels; by default
    a bottleneck.
    """

    def __init__(
        self,
        *,
        groups: int = 1,
        base_width: int = 64,
        norm: NormLayer = nn.BatchNorm2d,
        stages: tuple[tuple[int, int], ...] = STAGES,
        block: Block | None = None,
        expansion: int = EXPANSION,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = norm(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        made = block or partial(Bottleneck, groups=groups, base_width=base_width, norm=norm)
        layers: list[nn.Sequential] = []
        inputs = 64
        for planes, blocks in stages:
            layer = nn.Sequential()
            for index in range(blocks):
                layer.append(made(inputs, planes, stride=2 if planes > 64 and index == 0 else 1))
                inputs = planes * expansion
            layers.append(layer)
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> list[Tensor]:
        """Maps at 1/4, 1/8, 1/16 and 1/32 of the image's size; of bottlenecks with 256, 512, 1024 and 2048 channels."""
        maps = [self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(images)))))]
        for stage in (self.layer2, self.layer3, self.layer4):
            maps.append(stage(maps[-1]))
        return maps


class _ResNet(ResNetTrunk):
    """A trunk with global average pooling and a linear classifier."""

    avgpool: nn.Module
    fc: nn.Module

    def forward(self, images: Tensor) -> Tensor:  # type: ignore[override]
        """Logits (batch, classes)."""
        return self.fc(torch.flatten(self.avgpool(super().forward(images)[-1]), 1))


class ResNet18(_ResNet):
    """ResNet-18: the classifier on basic blocks."""

    def __init__(self, *, classes: int = 1000) -> None:
        super().__init__(stages=STAGES_18, block=BasicBlock, expansion=1)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)


class ResNet50(_ResNet):
    """ResNet-50 v1.5: the classifier on bottlenecks."""

    def __init__(self, *, classes: int = 1000) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * EXPANSION, classes)


Row = tuple[int, int, int, int, str]
"""A block as the paper's tables have it: kernel, expanded channels, output channels, stride, activation (`RE` for ReLU,
`HS` for hard-swish) and `SE` for squeeze-and-excitation."""

VARIANTS: dict[str, tuple[tuple[Row, ...], int]] = {
    "large": (
        (
            (3, 16, 16, 1, "RE"), (3, 64, 24, 2, "RE"), (3, 72, 24, 1, "RE"), (5, 72, 40, 2, "RE SE"),
            (5, 120, 40, 1, "RE SE"), (5, 120, 40, 1, "RE SE"), (3, 240, 80, 2, "HS"), (3, 200, 80, 1, "HS"),
            (3, 184, 80, 1, "HS"), (3, 184, 80, 1, "HS"), (3, 480, 112, 1, "HS SE"), (3, 672, 112, 1, "HS SE"),
            (5, 672, 160, 2, "HS SE"), (5, 960, 160, 1, "HS SE"), (5, 960, 160, 1, "HS SE"),
        ),
        1280,
    ),
    "small": (
        (
            (3, 16, 16, 2, "RE SE"), (3, 72, 24, 2, "RE"), (3, 88, 24, 1, "RE"), (5, 96, 40, 2, "HS SE"),
            (5, 240, 40, 1, "HS SE"), (5, 240, 40, 1, "HS SE"), (5, 120, 48, 1, "HS SE"), (5, 144, 48, 1, "HS SE"),
            (5, 288, 96, 2, "HS SE"), (5, 576, 96, 1, "HS SE"), (5, 576, 96, 1, "HS SE"),
        ),
        1024,
    ),
}  # fmt: skip
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
