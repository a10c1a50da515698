"""SSD-MobileDet, the object detector of MLPerf Mobile since its second round."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from perfguard.tasks.child.networks.layers import Layer, SameConvolution, block, depthwise

_IBN, _FUSED = "inverted bottleneck", "fused convolution"
_BLOCKS = (
    # Kind, filters, expansion, kernel, stride, whether there is a way around
    (_FUSED, 16, 8, 3, 2, False), (_FUSED, 16, 4, 3, 1, True), (_FUSED, 16, 8, 3, 1, True), (_FUSED, 16, 4, 3, 1, True),
    (_FUSED, 40, 8, 5, 2, False), (_FUSED, 40, 4, 3, 1, True), (_FUSED, 40, 4, 3, 1, True), (_FUSED, 40, 4, 3, 1, True),
    (_IBN, 72, 8, 3, 2, False), (_IBN, 72, 8, 3, 1, True), (_FUSED, 72, 4, 3, 1, True), (_FUSED, 72, 4, 3, 1, True),
    (_IBN, 96, 8, 5, 1, False), (_IBN, 96, 8, 5, 1, True), (_IBN, 96, 8, 3, 1, True), (_IBN, 96, 8, 3, 1, True),
    (_IBN, 120, 8, 5, 2, False), (_IBN, 120, 8, 3, 1, True), (_IBN, 120, 4, 5, 1, True), (_IBN, 120, 8, 3, 1, True),
    (_IBN, 384, 8, 5, 1, False),
)  # fmt: skip
_C4 = 16  # Blocks up to the finest map that boxes are predicted on
_SMALLER = ((256, 512), (128, 256), (128, 256), (64, 128))  # Filters of further maps: before and after the stride
_MAPS = ((96, 3), (384, 6), (512, 6), (256, 6), (256, 6), (128, 6))  # Channels, and boxes a cell
_CLASSES = 91  # COCO's 90 and the background, the first
_EPS = 0.01  # Of the backbone's batch norms


class SsdMobileDet(nn.Module):
    """MobileDet-EdgeTPU with SSD's heads; 4.15 M parameters.

    Source: TensorFlow's object detection API, `mobiledet_edgetpu_backbone`, and the checkpoint and `pipeline.config` of
    MLPerf Mobile (`ssdlite_mobiledet_edgetpu_320x320_coco`).
    """

    def __init__(self) -> None:
        super().__init__()
        layer = partial(Layer, eps=_EPS)
        tucker = nn.Sequential(layer(32, 8), layer(8, 16, 3), layer(16, 16, activation=None))
        found: list[nn.Module] = [layer(3, 32, 3, stride=2), tucker]
        inputs = 16
        for kind, filters, expansion, kernel, stride, is_residual in _BLOCKS:
            inner = inputs * expansion
            if kind == _FUSED:
                expanded = [layer(inputs, inner, kernel, stride=stride)]
            else:
                expanded = [layer(inputs, inner), depthwise(inner, kernel, stride=stride, eps=_EPS)]
            found.append(block(*expanded, layer(inner, filters, activation=None), is_residual=is_residual))
            inputs = filters
        self.fine, self.coarse = nn.Sequential(*found[: 2 + _C4]), nn.Sequential(*found[2 + _C4 :])
        self.smaller = nn.ModuleList()
        for before, after in _SMALLER:
            self.smaller.append(
                nn.Sequential(Layer(inputs, before), depthwise(before, 3, stride=2), Layer(before, after))
            )
            inputs = after
        self.boxes = nn.ModuleList(_head(channels, 4 * count) for channels, count in _MAPS)
        self.kinds = nn.ModuleList(_head(channels, _CLASSES * count) for channels, count in _MAPS)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Images `(batch, 3, 320, 320)`, -1 to 1, to encodings `(batch, 2034, 4)` and logits `(batch, 2034, 91)`."""
        maps = [self.fine(images)]
        maps.append(self.coarse(maps[-1]))
        for shrink in self.smaller:
            maps.append(shrink(maps[-1]))
        boxes = [_rows(head(each), 4) for head, each in zip(self.boxes, maps, strict=True)]
        kinds = [_rows(head(each), _CLASSES) for head, each in zip(self.kinds, maps, strict=True)]
        return torch.cat(boxes, dim=1), torch.cat(kinds, dim=1)


def _head(channels: int, outputs: int) -> nn.Module:
    return nn.Sequential(depthwise(channels, 3), SameConvolution(channels, outputs, 1))


def _rows(found: torch.Tensor, numbers: int) -> torch.Tensor:
    """What a head says of each box: `(batch, boxes · numbers, height, width)` to `(batch, boxes, numbers)`."""
    return found.permute(0, 2, 3, 1).reshape(-1, found.shape[1] // numbers * found.shape[2] * found.shape[3], numbers)
