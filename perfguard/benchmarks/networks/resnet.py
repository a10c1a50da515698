"""ResNet-50 and ResNeXt-50 32x4d, with torchvision's structure and parameter names.

Source: He et al., arXiv 1512.03385 (v1.5: the stride is on the 3x3 convolution); Xie et al.,
arXiv 1611.05431.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

NormLayer = Callable[[int], nn.Module]
"""Makes the normalisation for a number of channels."""

EXPANSION = 4
"""Output channels of a bottleneck for each of its planes."""
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Planes and number of the bottlenecks in each stage of a 50-layer network."""


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
    """Stem and four stages: from (batch, 3, s, s) to the feature map of each stage."""

    def __init__(self, *, groups: int = 1, base_width: int = 64, norm: NormLayer = nn.BatchNorm2d) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = norm(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        stages: list[nn.Sequential] = []
        inputs = 64
        for planes, blocks in STAGES:
            stage = nn.Sequential()
            for block in range(blocks):
                stride = 2 if planes > 64 and block == 0 else 1
                stage.append(Bottleneck(inputs, planes, stride=stride, groups=groups, base_width=base_width, norm=norm))
                inputs = planes * EXPANSION
            stages.append(stage)
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> list[Tensor]:
        """Maps with 256, 512, 1024 and 2048 channels at 1/4, 1/8, 1/16 and 1/32 of the image's size."""
        maps = [self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(images)))))]
        for stage in (self.layer2, self.layer3, self.layer4):
            maps.append(stage(maps[-1]))
        return maps


class ResNet50(ResNetTrunk):
    """ResNet-50 v1.5: a trunk with global average pooling and a linear classifier."""

    def __init__(self, *, classes: int = 1000) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * EXPANSION, classes)

    def forward(self, images: Tensor) -> Tensor:  # type: ignore[override]
        """Logits (batch, classes)."""
        return self.fc(torch.flatten(self.avgpool(super().forward(images)[-1]), 1))
