"""MobileNetEdgeTPU, the image classifier of MLPerf Mobile."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from perfguard.tasks.child.networks.layers import Layer, block, depthwise

_FUSED, _DEPTHWISE = True, False
_BLOCKS = (
    # Fused or depthwise, kernel, stride, expansion, filters, whether a way around is allowed
    (_FUSED, 3, 2, 8, 32, True), (_FUSED, 3, 1, 4, 32, True), (_FUSED, 3, 1, 4, 32, True), (_FUSED, 3, 1, 4, 32, True),
    (_FUSED, 3, 2, 8, 48, True), (_FUSED, 3, 1, 4, 48, True), (_FUSED, 3, 1, 4, 48, True), (_FUSED, 3, 1, 4, 48, True),
    (_DEPTHWISE, 3, 2, 8, 96, True), *[(_DEPTHWISE, 3, 1, 4, 96, True)] * 3,
    (_DEPTHWISE, 3, 1, 8, 96, False), *[(_DEPTHWISE, 3, 1, 4, 96, True)] * 3,
    (_DEPTHWISE, 5, 2, 8, 160, True), *[(_DEPTHWISE, 5, 1, 4, 160, True)] * 3,
    (_DEPTHWISE, 3, 1, 8, 192, True),
)  # fmt: skip
_CLASSES = 1001  # ImageNet's and one for the background, the first


class MobileNetEdgeTpu(nn.Module):
    """Inverted bottlenecks, the early ones with plain instead of depthwise convolutions; 4.09 M parameters.

    Source: TensorFlow's slim models, `mobilenet_v3.V3_EDGETPU` with depth multiplier 1, and the checkpoint
    `mobilenet_edgetpu_224_1.0` of MLPerf Mobile. Its first block has no expansion, so it is a 1 × 1 convolution.
    """

    def __init__(self) -> None:
        super().__init__()
        layer = partial(Layer, activation=nn.ReLU)
        found: list[nn.Module] = [layer(3, 32, 3, stride=2), layer(32, 16, activation=None)]
        inputs = 16
        for is_fused, kernel, stride, expansion, filters, may_skip in _BLOCKS:
            inner = inputs * expansion
            if is_fused:
                expanded = [layer(inputs, inner, kernel, stride=stride)]
            else:
                expanded = [layer(inputs, inner), depthwise(inner, kernel, stride=stride, activation=nn.ReLU)]
            skips = may_skip and stride == 1 and inputs == filters
            found.append(block(*expanded, layer(inner, filters, activation=None), is_residual=skips))
            inputs = filters
        self.features = nn.Sequential(*found, layer(inputs, 1280))
        self.classes = nn.Linear(1280, _CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images `(batch, 3, 224, 224)`, from -1 to 1, to logits `(batch, 1001)`."""
        logits: torch.Tensor = self.classes(self.features(images).mean(dim=(2, 3)))
        return logits
