"""DeepLab v3+ on MobileNetV2, the segmentation network of MLPerf Mobile's first rounds."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from perfguard.tasks.child.networks.layers import Layer, SameConvolution, depthwise

_BLOCKS = (
    # Expansion, filters, repetitions, stride of the first, dilation of the first and of the others: output stride 16
    (1, 16, 1, 1, 1, 1), (6, 24, 2, 2, 1, 1), (6, 32, 3, 2, 1, 1), (6, 64, 4, 2, 1, 1), (6, 96, 3, 1, 1, 1),
    (6, 160, 3, 1, 1, 2), (6, 320, 1, 1, 2, 2),
)  # fmt: skip
_LOW_LEVEL = 2  # Block whose depthwise convolution gives the decoder its fine features
_CLASSES = 32
_EPS = 1e-5  # Of the batch norms behind the backbone


class _Bottleneck(nn.Module):
    """An inverted bottleneck in two parts, since the decoder takes what lies between them."""

    def __init__(self, inputs: int, filters: int, expansion: int, *, stride: int, dilation: int) -> None:
        super().__init__()
        inner = inputs * expansion
        expand = [Layer(inputs, inner)] if expansion > 1 else []
        self.inner = nn.Sequential(*expand, depthwise(inner, 3, stride=stride, dilation=dilation))
        self.project = Layer(inner, filters, activation=None)
        self.is_residual = stride == 1 and inputs == filters

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What comes out, and what lies between."""
        inner = self.inner(images)
        projected = self.project(inner)
        return (images + projected if self.is_residual else projected), inner


class DeepLab(nn.Module):
    """Features at a sixteenth of the resolution, the whole image's among them, refined at a quarter; 2.27 M parameters.

    Source: MLPerf Mobile's training code and checkpoint `deeplab/float` (ADE20K, 32 classes, output stride 16, decoder
    output stride 4), which is TensorFlow's DeepLab without atrous branches.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = Layer(3, 32, 3, stride=2)
        self.blocks = nn.ModuleList()
        inputs = 32
        for expansion, filters, count, stride, dilation, later in _BLOCKS:
            for number in range(count):
                self.blocks.append(
                    _Bottleneck(
                        inputs,
                        filters,
                        expansion,
                        stride=1 if number else stride,
                        dilation=later if number else dilation,
                    )
                )
                inputs = filters
        self.image = Layer(inputs, 256, activation=nn.ReLU, eps=_EPS)
        self.pixels = Layer(inputs, 256, activation=nn.ReLU, eps=_EPS)
        self.joined = Layer(512, 256, activation=nn.ReLU, eps=_EPS)
        self.low_level = Layer(144, 48, activation=nn.ReLU, eps=_EPS)
        self.decoder = nn.Sequential(
            depthwise(304, 3, activation=nn.ReLU, eps=_EPS),
            Layer(304, 256, activation=nn.ReLU, eps=_EPS),
            depthwise(256, 3, activation=nn.ReLU, eps=_EPS),
            Layer(256, 256, activation=nn.ReLU, eps=_EPS),
        )
        self.classes = SameConvolution(256, _CLASSES, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images `(batch, 3, 512, 512)`, from -1 to 1, to logits `(batch, 32, 128, 128)`."""
        features, fine = self.first(images), images
        for number, each in enumerate(self.blocks):
            features, inner = each(features)
            if number == _LOW_LEVEL:
                fine = inner
        whole = self.image(features.mean(dim=(2, 3), keepdim=True)).expand(-1, -1, *features.shape[2:])
        coarse = self.joined(torch.cat([whole, self.pixels(features)], dim=1))
        size = (int(fine.shape[2]), int(fine.shape[3]))
        larger = functional.interpolate(coarse, size=size, mode="bilinear", align_corners=True)
        refined = self.decoder(torch.cat([larger, self.low_level(fine)], dim=1))
        logits: torch.Tensor = self.classes(refined)
        return logits
