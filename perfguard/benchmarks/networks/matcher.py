"""Assignment of ground-truth boxes to anchors.

Source: torchvision `_utils.Matcher` and `ops.box_iou`, with RetinaNet's thresholds.
"""

from __future__ import annotations

import torch
from torch import Tensor

FOREGROUND_IOU = 0.5
"""An anchor with at least this overlap is assigned."""
BACKGROUND_IOU = 0.4
"""An anchor below this overlap is background."""
BACKGROUND = -1
"""Match of an anchor without an object."""
IGNORED = -2
"""Match of an anchor between the thresholds: it has no part in the classification loss."""


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
    """The object of each anchor, or `BACKGROUND` or `IGNORED`; shape (anchors,), int64.

    Every object also takes the anchors that overlap it most, ties included, however small the overlap
    (`allow_low_quality_matches`); such an anchor goes to the object that *it* overlaps most.

    Args:
        iou: Shape (objects, anchors), at least one object.
    """
    best_iou, best_object = iou.max(dim=0)
    matches = best_object.clone()
    matches[best_iou < BACKGROUND_IOU] = BACKGROUND
    matches[(best_iou >= BACKGROUND_IOU) & (best_iou < FOREGROUND_IOU)] = IGNORED
    highest_of_object, _ = iou.max(dim=1)
    _, anchors = torch.where(iou == highest_of_object[:, None])
    matches[anchors] = best_object[anchors]
    return matches
