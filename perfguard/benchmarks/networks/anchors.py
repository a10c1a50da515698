"""RetinaNet's anchor boxes.

Boxes are (x1, y1, x2, y2) in pixels throughout.
Source: arXiv 1708.02002, section 4; rounding and order of torchvision `AnchorGenerator`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence

BASE_SIZES = (32, 64, 128, 256, 512)
"""Smallest anchor of each pyramid level P3 to P7, pixels."""
ASPECT_RATIOS = (0.5, 1.0, 2.0)
"""Height over width."""
ANCHORS_PER_CELL = 9
"""Three scales (1, 2^⅓, 2^⅔) times three aspect ratios."""


class AnchorGenerator(nn.Module):
    """All anchors of an image: cells of P3 row by row with nine anchors each, then P4 to P7."""

    def __init__(self, base_sizes: Sequence[int] = BASE_SIZES) -> None:
        super().__init__()
        self.cell_anchors = [_cell_anchors(size) for size in base_sizes]

    def forward(self, image_size: Sequence[int], grids: Sequence[Sequence[int]]) -> Tensor:
        """Anchors of shape (9·cells, 4), fp32.

        Args:
            image_size: Height and width of the batched images.
            grids: Height and width of each pyramid level's map.
        """
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
    height_ratios = torch.sqrt(torch.tensor(ASPECT_RATIOS))
    width_ratios = 1 / height_ratios
    widths = (width_ratios[:, None] * scales[None, :]).view(-1)
    heights = (height_ratios[:, None] * scales[None, :]).view(-1)
    return (torch.stack([-widths, -heights, widths, heights], dim=1) / 2).round()
