"""Boxes as offsets from anchors.

Source: Girshick et al., arXiv 1311.2524, appendix C; torchvision `_utils.BoxCoder` with weights of one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MAX_LOG_SCALE = math.log(1000.0 / 16)
"""Decoded boxes are at most 62.5 times as wide or high as their anchor."""


def encode(boxes: Tensor, anchors: Tensor) -> Tensor:
    """Offsets (dx, dy, dw, dh), shape (N, 4): centre shifts in anchor sizes, and log of the size ratios."""
    widths, heights, x, y = _centred(anchors)
    box_widths, box_heights, box_x, box_y = _centred(boxes)
    return torch.cat(
        (
            (box_x - x) / widths,
            (box_y - y) / heights,
            torch.log(box_widths / widths),
            torch.log(box_heights / heights),
        ),
        dim=1,
    )


def decode(offsets: Tensor, anchors: Tensor) -> Tensor:
    """The boxes of `offsets`, shape (N, 4); the inverse of `encode` up to the size limit."""
    widths, heights, x, y = _centred(anchors)
    dx, dy, dw, dh = offsets.to(anchors.dtype).split(1, dim=1)
    centre_x, centre_y = dx * widths + x, dy * heights + y
    half_width = torch.exp(dw.clamp(max=MAX_LOG_SCALE)) * widths / 2
    half_height = torch.exp(dh.clamp(max=MAX_LOG_SCALE)) * heights / 2
    return torch.cat(
        (centre_x - half_width, centre_y - half_height, centre_x + half_width, centre_y + half_height), dim=1
    )


def _centred(boxes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x1, y1, x2, y2 = boxes.split(1, dim=1)
    widths, heights = x2 - x1, y2 - y1
    return widths, heights, x1 + 0.5 * widths, y1 + 0.5 * heights
