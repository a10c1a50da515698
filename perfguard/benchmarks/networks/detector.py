"""RetinaNet as the task `retinanet` trains and evaluates it: labels in, boxes out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from perfguard.benchmarks.networks.classifiers import Bottleneck
from perfguard.benchmarks.networks.retinanet import DetectionLoss, RetinaNet, Target, decode

CLASSES = 3
_BRANCH_SCALE = 0.25
"""Of what a block adds to its input.

The norms are frozen and the weights random: with 1.0, variances would double in each of the 16 blocks.
"""


class Detector(nn.Module):
    """Boxes and logits of each anchor.

    All weights are drawn anew: the pretrained backbone of the reference comes in no package.
    """

    batch = 8

    def __init__(self) -> None:
        super().__init__()
        self.network = RetinaNet(classes=CLASSES, loss=DetectionLoss(in_float=True))
        for module in self.network.modules():
            if isinstance(module, Bottleneck):
                module.bn3.weight.fill_(_BRANCH_SCALE)  # type: ignore[operator]

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes `(batch, anchors, 4)`, top, left, bottom, right as shares of the image, and logits of the classes."""
        found = self.network.detect(images)
        height, width = images.shape[-2:]
        corners = decode(found.offsets.float(), found.anchors) / found.anchors.new_tensor(
            [width, height, width, height]
        )
        return corners.clamp(0, 1)[..., [1, 0, 3, 2]], found.logits

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """RetinaNet's loss for labels `(batch, boxes, 6)`: box as shares, class from 1 on, 1 or 0 for no box."""
        height, width = images.shape[-2:]
        size = labels.new_tensor([width, height, width, height])
        boxes, classes = labels[..., [1, 0, 3, 2]] * size, labels[..., 4].long() - 1
        targets = [
            Target(box[is_box], kind[is_box])
            for box, kind, is_box in zip(boxes, classes, labels[..., 5] > 0, strict=True)
        ]
        loss: Tensor = self.network(images, targets)
        return loss

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Adam, as in the reference, over what is trained."""
        trained = [each for each in self.parameters() if each.requires_grad]
        return torch.optim.Adam(trained, lr=2e-4)
