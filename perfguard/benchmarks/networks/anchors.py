"""RetinaNet's anchor boxes: where they lie, which object each is assigned to, and offsets from them.

Boxes are (x1, y1, x2, y2) in pixels throughout.
Source: arXiv 1708.02002, section 4; rounding and order of torchvision `AnchorGenerator`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_BASE_SIZES = (32, 64, 128, 256, 512)
"""Smallest anchor of each pyramid level P3 to P7, pixels."""
_ASPECT_RATIOS = (0.5, 1.0, 2.0)
"""Height over width."""
ANCHORS_PER_CELL = 9
"""Three scales (1, 2^⅓, 2^⅔) times three aspect ratios."""
FOREGROUND_IOU = 0.5
"""An anchor with at least this overlap is assigned."""
BACKGROUND_IOU = 0.4
"""An anchor below this overlap is background."""
BACKGROUND = -1
"""Match of an anchor without an object."""
IGNORED = -2
"""Match of an anchor between the thresholds: it has no part in the classification loss."""


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
