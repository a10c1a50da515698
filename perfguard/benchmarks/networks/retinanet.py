"""RetinaNet with a ResNeXt-50 32x4d backbone: structure and loss of the MLCommons training reference.

Source: mlcommons/training, `single_stage_detector` (OpenImages, 264 classes; COCO: 91); Lin et al.,
arXiv 1708.02002. Parameter names equal torchvision's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfguard.benchmarks.networks.anchors import ANCHORS_PER_CELL, IGNORED, AnchorGenerator, box_iou, encode, match
from perfguard.benchmarks.networks.focal_loss import sigmoid_focal_loss
from perfguard.benchmarks.networks.fpn import FeaturePyramidNetwork, FrozenBatchNorm2d
from perfguard.benchmarks.networks.resnet import resnext50_32x4d

if TYPE_CHECKING:
    from collections.abc import Sequence

PYRAMID_CHANNELS = 256
"""Channels of all pyramid levels and head convolutions."""
PRIOR_PROBABILITY = 0.01
"""Initial foreground probability of every anchor; sets the classifier's bias."""
IMAGE_MEAN = (0.485, 0.456, 0.406)
"""Channel means that images are normalised with."""
IMAGE_STD = (0.229, 0.224, 0.225)
"""Channel standard deviations that images are normalised with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The objects of one image."""

    boxes: Tensor
    """Shape (objects, 4): x1, y1, x2, y2 in pixels; at least one object."""
    labels: Tensor
    """Shape (objects,), int64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """What the network says about every anchor."""

    logits: Tensor
    """Shape (batch, anchors, classes)."""
    offsets: Tensor
    """Shape (batch, anchors, 4), as in `encode`."""
    anchors: Tensor
    """Shape (anchors, 4), the same for all images."""


class Backbone(nn.Module):
    """ResNeXt-50 with frozen batch norm and the feature pyramid on C3, C4 and C5.

    Three of five layers are trained: the stem and `layer1` have no gradients.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = resnext50_32x4d(norm=FrozenBatchNorm2d)
        for name, parameter in self.body.named_parameters():
            parameter.requires_grad_(name.startswith(("layer2", "layer3", "layer4")))
        self.fpn = FeaturePyramidNetwork((512, 1024, 2048), PYRAMID_CHANNELS)

    def forward(self, images: Tensor) -> list[Tensor]:
        """P3 to P7: 1/8 to 1/128 of the image's size."""
        pyramid: list[Tensor] = self.fpn(self.body(images)[1:])
        return pyramid


class ConvolutionTower(nn.Module):
    """Four 3x3 convolutions with ReLU, shared by all levels, and the flattening of the levels' outputs."""

    def __init__(self) -> None:
        super().__init__()
        channels = PYRAMID_CHANNELS
        self.conv = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(inplace=True)) for _ in range(4))
        )
        for module in self.conv.modules():
            if isinstance(module, nn.Conv2d):
                _initialise(module, bias=0.0)

    def flattened(self, pyramid: Sequence[Tensor], last: nn.Module, values: int) -> Tensor:
        """Outputs of `last` on the tower, shape (batch, anchors, values)."""
        levels = []
        for level in pyramid:
            output = last(self.conv(level))
            batch, _, height, width = output.shape
            output = output.view(batch, -1, values, height, width).permute(0, 3, 4, 1, 2)
            levels.append(output.reshape(batch, -1, values))
        return torch.cat(levels, dim=1)


class ClassificationHead(ConvolutionTower):
    """One logit for each anchor and class."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.cls_logits = nn.Conv2d(PYRAMID_CHANNELS, ANCHORS_PER_CELL * classes, 3, padding=1)
        _initialise(self.cls_logits, bias=-math.log((1 - PRIOR_PROBABILITY) / PRIOR_PROBABILITY))

    def forward(self, pyramid: Sequence[Tensor]) -> Tensor:
        """Logits (batch, anchors, classes)."""
        return self.flattened(pyramid, self.cls_logits, self.classes)


class RegressionHead(ConvolutionTower):
    """Four offsets for each anchor."""

    def __init__(self) -> None:
        super().__init__()
        self.bbox_reg = nn.Conv2d(PYRAMID_CHANNELS, ANCHORS_PER_CELL * 4, 3, padding=1)
        _initialise(self.bbox_reg, bias=0.0)

    def forward(self, pyramid: Sequence[Tensor]) -> Tensor:
        """Offsets (batch, anchors, 4)."""
        return self.flattened(pyramid, self.bbox_reg, 4)


class Heads(nn.Module):
    """Classification and box regression."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classification_head = ClassificationHead(classes)
        self.regression_head = RegressionHead()


class RetinaNet(nn.Module):
    """The detector up to its training loss."""

    mean: Tensor
    std: Tensor

    def __init__(self, *, classes: int = 264) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.head = Heads(classes)
        self.anchor_generator = AnchorGenerator()
        self.register_buffer("mean", torch.tensor(IMAGE_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGE_STD).view(1, 3, 1, 1), persistent=False)

    def detect(self, images: Tensor) -> Detections:
        """Logits, offsets and anchors for images (batch, 3, height, width) in [0, 1]."""
        pyramid = self.backbone((images - self.mean) / self.std)
        return Detections(
            logits=self.head.classification_head(pyramid),
            offsets=self.head.regression_head(pyramid),
            anchors=self.anchor_generator(images.shape[-2:], [level.shape[-2:] for level in pyramid]),
        )

    def forward(self, images: Tensor, targets: Sequence[Target]) -> Tensor:
        """The training loss: classification plus box regression, a 0-d tensor."""
        detections = self.detect(images)
        matches = [match(box_iou(target.boxes, detections.anchors)) for target in targets]
        return classification_loss(detections, targets, matches) + regression_loss(detections, targets, matches)


def classification_loss(detections: Detections, targets: Sequence[Target], matches: Sequence[Tensor]) -> Tensor:
    """Focal loss over all but the ignored anchors / max(1, foreground anchors), mean over images."""
    losses = []
    for logits, target, matched in zip(detections.logits, targets, matches, strict=True):
        foreground = matched >= 0
        wanted = torch.zeros_like(logits)
        wanted[foreground, target.labels[matched[foreground]]] = 1.0
        counted = matched != IGNORED
        loss = sigmoid_focal_loss(logits[counted], wanted[counted])
        losses.append(loss / torch.clamp(foreground.sum(), min=1))
    return torch.stack(losses).mean()


def regression_loss(detections: Detections, targets: Sequence[Target], matches: Sequence[Tensor]) -> Tensor:
    """L1 distance of the foreground anchors' offsets / max(1, foreground anchors), mean over images."""
    losses = []
    for offsets, target, matched in zip(detections.offsets, targets, matches, strict=True):
        foreground = torch.where(matched >= 0)[0]
        boxes = target.boxes[matched[foreground]]
        wanted = encode(boxes, detections.anchors[foreground])
        loss = functional.l1_loss(offsets[foreground], wanted, reduction="sum")
        losses.append(loss / max(1, foreground.numel()))
    return torch.stack(losses).mean()


def _initialise(convolution: nn.Conv2d, *, bias: float) -> None:
    nn.init.normal_(convolution.weight, std=0.01)
    if convolution.bias is not None:
        nn.init.constant_(convolution.bias, bias)
