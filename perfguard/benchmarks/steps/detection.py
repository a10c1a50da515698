"""The training step of RetinaNet-ResNeXt50, as in the MLCommons reference."""

from __future__ import annotations

import torch

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.networks.retinanet import RetinaNet, Target
from perfguard.benchmarks.shared import images, in_memory_format, integers
from perfguard.benchmarks.steps.training import training_step

OBJECTS = 4
"""Ground-truth boxes of each image."""
LEARNING_RATE = 1e-5
"""Within the reference's warm-up from 1e-7 to 1e-4.

At 1e-4 the fixed batch is memorised in 200 steps, and Adam's second moments of the vanishing gradients become
denormal numbers, which are slow.
"""


def retinanet_resnext50(
    *, image_size: int, classes: int, batch: int, dtype: str, memory_format: str, mode: str
) -> Timed:
    """RetinaNet with Adam; the reference takes 800x800 pixels and 264 classes.

    Left out are the data pipeline, the resize (images have their final size) and the rate's schedule.
    """
    pixels = images(batch, image_size, memory_format=memory_format)
    targets = [_objects(image_size, classes) for _ in range(batch)]
    model = in_memory_format(RetinaNet(classes=classes), memory_format)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=LEARNING_RATE)
    return training_step(model, optimizer, lambda net: net(pixels, targets), dtype=dtype, mode=mode)


def _objects(image_size: int, classes: int) -> Target:
    extent = (0.2 + 0.4 * torch.rand(OBJECTS, 2)) * image_size
    corner = torch.rand(OBJECTS, 2) * (image_size - extent)
    return Target(boxes=torch.cat([corner, corner + extent], dim=1), labels=integers(classes, OBJECTS, low=1))
