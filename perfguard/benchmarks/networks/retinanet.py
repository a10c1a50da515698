"""RetinaNet with a ResNeXt-50 32x4d backbone: structure and loss of the MLCommons training reference.

Boxes are (x1, y1, x2, y2) in pixels. Parameter names equal torchvision's, as do rounding and order of the anchors.
Source: mlcommons/training, `single_stage_detector` (OpenImages, 264 classes; COCO: 91); Lin et al., arXiv 1708.02002,
section 4 for the anchors; the feature pyramid: Lin et al., arXiv 1612.03144.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfguard.benchmarks.networks.classifiers import ResNetTrunk
from perfguard.benchmarks.networks.focal_losses import FocalLoss, reference
from perfguard.benchmarks.networks.frozen_norms import FrozenBatchNorm2d

_BASE_SIZES = (32, 64, 128, 256, 512)  # Smallest anchor of each pyramid level P3 to P7, pixels
_ASPECT_RATIOS = (0.5, 1.0, 2.0)  # Height over width
ANCHORS_PER_CELL = 9  # Three scales (1, 2^⅓, 2^⅔) times three aspect ratios
FOREGROUND_IOU = 0.5  # An anchor with at least this overlap is assigned
BACKGROUND_IOU = 0.4  # An anchor below this overlap is background
BACKGROUND = -1  # Match of an anchor without an object
IGNORED = -2  # Match of an anchor between the thresholds: it has no part in the classification loss
PYRAMID_CHANNELS = 256  # Channels of all pyramid levels and head convolutions
PRIOR_PROBABILITY = 0.01  # Initial foreground probability of every anchor; sets the classifier's bias
IMAGE_MEAN = (0.485, 0.456, 0.406)
IMAGE_STD = (0.229, 0.224, 0.225)  # What images are normalised with, by channel


class AnchorGenerator(nn.Module):
    """All anchors of an image: cells of P3 row by row with nine anchors each, then P4 to P7."""

    def __init__(self) -> None:
        super().__init__()
        self.cell_anchors = [_cell_anchors(size) for size in _BASE_SIZES]

    def forward(self, image_size: Sequence[int], grids: Sequence[Sequence[int]]) -> Tensor:
        """Anchors of shape (9·cells, 4), fp32, for images of (height, width) and a map's (height, width) per level."""
        levels = []
        for (height, width), cell in zip(grids, self.cell_anchors, strict=True):
            # Strides are whole pixels, cut off: 800 // 13 = 61 at P7.
            y = torch.arange(height, dtype=torch.int32) * (image_size[0] // height)
            x = torch.arange(width, dtype=torch.int32) * (image_size[1] // width)
            shift_y, shift_x = (shift.reshape(-1) for shift in torch.meshgrid(y, x, indexing="ij"))
            shifts = torch.stack((shift_x, shift_y, shift_x, shift_y), dim=1)
            levels.append((shifts.view(-1, 1, 4) + cell.view(1, -1, 4)).reshape(-1, 4))
        return torch.cat(levels)


def _cell_anchors(size: int) -> Tensor:
    scales = torch.tensor([size, int(size * 2 ** (1 / 3)), int(size * 2 ** (2 / 3))], dtype=torch.float32)
    ratios = torch.sqrt(torch.tensor(_ASPECT_RATIOS))
    widths, heights = ((1 / ratios)[:, None] * scales).view(-1), (ratios[:, None] * scales).view(-1)
    return (torch.stack([-widths, -heights, widths, heights], dim=1) / 2).round()


def encode(boxes: Tensor, anchors: Tensor) -> Tensor:
    """Offsets (dx, dy, dw, dh), shape (N, 4): centre shifts in anchor sizes, and log of the size ratios."""
    widths, heights, x, y = _centred(anchors)
    box_widths, box_heights, box_x, box_y = _centred(boxes)
    shifts = (box_x - x) / widths, (box_y - y) / heights
    return torch.cat((*shifts, torch.log(box_widths / widths), torch.log(box_heights / heights)), dim=1)


def decode(offsets: Tensor, anchors: Tensor) -> Tensor:
    """Boxes (…, anchors, 4) of offsets as in `encode`; sizes grow at most 62.5-fold, as in torchvision."""
    widths, heights, x, y = _centred(anchors)
    shifts, growth = offsets[..., :2], offsets[..., 2:].clamp(max=math.log(1000 / 16))
    sizes = torch.cat((widths, heights), dim=1)
    centres = torch.cat((x, y), dim=1) + shifts * sizes
    half = growth.exp() * sizes / 2
    return torch.cat((centres - half, centres + half), dim=-1)


def _centred(boxes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x1, y1, x2, y2 = boxes.split(1, dim=1)
    widths, heights = x2 - x1, y2 - y1
    return widths, heights, x1 + 0.5 * widths, y1 + 0.5 * heights


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Intersection over union of every pair: (N, 4) and (M, 4) to (N, M)."""
    area1 = (boxes1[:, 2] - boxes1[:, 0]) * (boxes1[:, 3] - boxes1[:, 1])
    area2 = (boxes2[:, 2] - boxes2[:, 0]) * (boxes2[:, 3] - boxes2[:, 1])
    top_left = torch.max(boxes1[:, None, :2], boxes2[:, :2])
    bottom_right = torch.min(boxes1[:, None, 2:], boxes2[:, 2:])
    extent = (bottom_right - top_left).clamp(min=0)
    intersection = extent[:, :, 0] * extent[:, :, 1]
    return intersection / (area1[:, None] + area2 - intersection)


def match(iou: Tensor) -> Tensor:
    """The object of each anchor, or `BACKGROUND` or `IGNORED`: (objects, anchors), at least one object, to (anchors,).

    Every object also takes the anchors that overlap it most, ties included, however small the overlap
    (`allow_low_quality_matches`); such an anchor goes to the object that *it* overlaps most. Result: int64.
    """
    best_iou, best_object = iou.max(dim=0)
    matches = best_object.clone()
    matches[best_iou < BACKGROUND_IOU] = BACKGROUND
    matches[(best_iou >= BACKGROUND_IOU) & (best_iou < FOREGROUND_IOU)] = IGNORED
    highest_of_object, _ = iou.max(dim=1)
    _, anchors = torch.where(iou == highest_of_object[:, None])
    matches[anchors] = best_object[anchors]
    return matches


class Target(NamedTuple):
    """The objects of one image, at least one."""

    boxes: Tensor  # Shape (objects, 4): x1, y1, x2, y2 in pixels
    labels: Tensor  # Shape (objects,), int64


class Detections(NamedTuple):
    """What the network says about every anchor."""

    logits: Tensor  # Shape (batch, anchors, classes)
    offsets: Tensor  # Shape (batch, anchors, 4), as in `encode`
    anchors: Tensor  # Shape (anchors, 4), the same for all images


class LastLevelP6P7(nn.Module):
    """Two strided 3x3 convolutions on top of P5: P6 on P5, P7 on relu(P6). Source: arXiv 1708.02002, footnote 2."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.p6 = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.p7 = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

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
        _initialise_pyramid(self)
        self.extra_blocks = LastLevelP6P7(channels)
        _initialise_pyramid(self.extra_blocks)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """From maps of falling size (C3, C4, C5) to as many maps of `channels` channels, and P6 and P7."""
        inner = self.inner_blocks[-1](maps[-1])
        outputs = [self.layer_blocks[-1](inner)]
        for index in range(len(maps) - 2, -1, -1):
            lateral = self.inner_blocks[index](maps[index])
            inner = lateral + functional.interpolate(inner, size=lateral.shape[-2:], mode="nearest")
            outputs.insert(0, self.layer_blocks[index](inner))
        return outputs + list(self.extra_blocks(outputs[-1]))


def _initialise_pyramid(module: nn.Module) -> None:
    for convolution in module.modules():
        if isinstance(convolution, nn.Conv2d):
            nn.init.kaiming_uniform_(convolution.weight, a=1)
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]


class Backbone(nn.Module):
    """ResNeXt-50 32x4d (32 groups of width 4) with frozen batch norm and the feature pyramid on C3, C4 and C5.

    Three of five layers are trained: the stem and `layer1` have no gradients.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = ResNetTrunk(groups=32, base_width=4, norm=FrozenBatchNorm2d)
        for name, parameter in self.body.named_parameters():
            parameter.requires_grad_(name.startswith(("layer2", "layer3", "layer4")))
        self.fpn = FeaturePyramidNetwork((512, 1024, 2048), PYRAMID_CHANNELS)

    def forward(self, images: Tensor) -> list[Tensor]:
        """P3 to P7: 1/8 to 1/128 of the image's size."""
        return self.fpn(self.body(images)[1:])


Region = tuple[slice, slice]  # Rows and columns of a level on a canvas


def regions_on_canvas(pyramid: Sequence[Tensor]) -> list[Region]:
    """Places for the five levels on one canvas, a row or column of zeros between any two.

    P3 is at the left, P4 at the right of it, P5 below P4, P6 at the right of P5, and P7 below P6.
    """
    (_, w3), (h4, _), (_, w5), (h6, _), _ = (level.shape[-2:] for level in pyramid)
    right, below, further = w3 + 1, h4 + 1, w3 + w5 + 2
    corners = ((0, 0), (0, right), (below, right), (below, further), (below + h6 + 1, further))
    return [
        (slice(y, y + level.shape[-2]), slice(x, x + level.shape[-1]))
        for (y, x), level in zip(corners, pyramid, strict=True)
    ]


class ConvolutionTower(nn.Module):
    """Four 3x3 convolutions with ReLU, shared by all levels, and the flattening of the levels' outputs.

    With `is_packed` the levels lie on one canvas, and each layer is one convolution instead of five: a layer's weight
    gradient costs much the same for a level of four cells as for one of a thousand.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_packed = False
        channels = PYRAMID_CHANNELS
        self.conv = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(inplace=True)) for _ in range(4))
        )
        for module in self.conv.modules():
            if isinstance(module, nn.Conv2d):
                _initialise_head(module, bias=0.0)

    def flattened(self, pyramid: Sequence[Tensor], last: nn.Module, values: int) -> Tensor:
        """Outputs of `last` on the tower, shape (batch, anchors, values)."""
        if self.is_packed:
            return self._on_canvas(pyramid, last, values)
        levels = []
        for level in pyramid:
            output = last(self.conv(level))
            batch, _, height, width = output.shape
            output = output.view(batch, -1, values, height, width).permute(0, 3, 4, 1, 2)
            levels.append(output.reshape(batch, -1, values))
        return torch.cat(levels, dim=1)

    def _on_canvas(self, pyramid: Sequence[Tensor], last: nn.Module, values: int) -> Tensor:
        regions, first = regions_on_canvas(pyramid), pyramid[0]
        rows, columns = (max(region[axis].stop for region in regions) for axis in (0, 1))
        canvas = functional.pad(first, (0, columns - first.shape[-1], 0, rows - first.shape[-2]))
        inside, numbers = first.new_zeros(rows, columns), torch.arange(rows * columns).view(rows, columns)
        for region, level in zip(regions, pyramid, strict=True):
            vertical, horizontal = region
            canvas[..., vertical, horizontal] = level
            inside[region] = 1.0
        for layer in self.conv:
            canvas = layer(canvas) * inside  # what lies between levels stays zero, as the padding of each level is
        cells = torch.cat([numbers[region].flatten() for region in regions])
        output = last(canvas).permute(0, 2, 3, 1).flatten(1, 2).index_select(1, cells)
        return output.reshape(len(output), -1, values)


def _initialise_head(convolution: nn.Conv2d, *, bias: float) -> None:
    nn.init.normal_(convolution.weight, std=0.01)
    nn.init.constant_(convolution.bias, bias)  # type: ignore[arg-type]


class ClassificationHead(ConvolutionTower):
    """One logit for each anchor and class."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.cls_logits = nn.Conv2d(PYRAMID_CHANNELS, ANCHORS_PER_CELL * classes, 3, padding=1)
        _initialise_head(self.cls_logits, bias=-math.log((1 - PRIOR_PROBABILITY) / PRIOR_PROBABILITY))

    def forward(self, pyramid: Sequence[Tensor]) -> Tensor:
        """Logits (batch, anchors, classes)."""
        return self.flattened(pyramid, self.cls_logits, self.classes)


class RegressionHead(ConvolutionTower):
    """Four offsets for each anchor."""

    def __init__(self) -> None:
        super().__init__()
        self.bbox_reg = nn.Conv2d(PYRAMID_CHANNELS, ANCHORS_PER_CELL * 4, 3, padding=1)
        _initialise_head(self.bbox_reg, bias=0.0)

    def forward(self, pyramid: Sequence[Tensor]) -> Tensor:
        """Offsets (batch, anchors, 4)."""
        return self.flattened(pyramid, self.bbox_reg, 4)


class Heads(nn.Module):
    """Classification and box regression."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classification_head = ClassificationHead(classes)
        self.regression_head = RegressionHead()


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionLoss:
    """How the classification loss is computed; every way gives the same number, up to rounding."""

    focal: FocalLoss = reference
    over_all_anchors: bool = False  # Take the ignored anchors' loss off again, instead of gathering all others first
    in_float: bool = False  # Whether the loss is computed in float32 under autocast


REFERENCE_LOSS = DetectionLoss()


class RetinaNet(nn.Module):
    """The detector up to its training loss."""

    mean: Tensor
    std: Tensor

    def __init__(self, *, classes: int = 264, loss: DetectionLoss = REFERENCE_LOSS) -> None:
        super().__init__()
        self.loss = loss
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
        if self.loss.in_float:
            detections = Detections(*(values.float() for values in detections))
        with torch.autocast("cpu", enabled=False) if self.loss.in_float else contextlib.nullcontext():
            matches = [match(box_iou(target.boxes, detections.anchors)) for target in targets]
            classification = classification_loss(detections, targets, matches, self.loss)
            return classification + regression_loss(detections, targets, matches)


def classification_loss(
    detections: Detections, targets: Sequence[Target], matches: Sequence[Tensor], loss_of: DetectionLoss
) -> Tensor:
    """Focal loss over all but the ignored anchors / max(1, foreground anchors), mean over images."""
    losses = []
    for logits, target, matched in zip(detections.logits, targets, matches, strict=True):
        foreground = matched >= 0
        wanted = torch.zeros_like(logits)
        wanted[foreground, target.labels[matched[foreground]]] = 1.0
        if loss_of.over_all_anchors:
            ignored = matched == IGNORED
            loss = loss_of.focal(logits, wanted) - loss_of.focal(logits[ignored], wanted[ignored])
        else:
            counted = matched != IGNORED
            loss = loss_of.focal(logits[counted], wanted[counted])
        losses.append(loss / torch.clamp(foreground.sum(), min=1))
    return torch.stack(losses).mean()


def regression_loss(detections: Detections, targets: Sequence[Target], matches: Sequence[Tensor]) -> Tensor:
    """L1 distance of the foreground anchors' offsets / max(1, foreground anchors), mean over images."""
    losses = []
    for offsets, target, matched in zip(detections.offsets, targets, matches, strict=True):
        foreground = torch.where(matched >= 0)[0]
        wanted = encode(target.boxes[matched[foreground]], detections.anchors[foreground])
        loss = functional.l1_loss(offsets[foreground], wanted, reduction="sum")
        losses.append(loss / max(1, foreground.numel()))
    return torch.stack(losses).mean()
