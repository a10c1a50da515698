"""Training steps of image classifiers: ResNet-50 and MobileNetV3."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.networks.mobilenetv3 import MobileNetV3
from perfguard.benchmarks.networks.resnet import ResNet50
from perfguard.benchmarks.shared import images, in_memory_format, integers
from perfguard.benchmarks.steps.training import training_step

CLASSES = 1000
"""Classes of ImageNet."""
LABEL_SMOOTHING = 0.1
"""As in the MLPerf and torchvision recipes; also keeps the loss on a memorised batch away from zero."""


def resnet50(*, image_size: int, batch: int, dtype: str, memory_format: str, mode: str) -> Timed:
    """ResNet-50 v1.5 with SGD, momentum 0.9 and weight decay 1e-4."""
    pixels, labels = _batch(image_size, batch, memory_format)
    model = in_memory_format(ResNet50(classes=CLASSES), memory_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4)
    return training_step(model, optimizer, lambda net: _loss(net, pixels, labels), dtype=dtype, mode=mode)


def mobilenetv3(*, variant: str, image_size: int, batch: int, dtype: str, memory_format: str, mode: str) -> Timed:
    """MobileNetV3 with RMSprop as in the paper: momentum 0.9, weight decay 1e-5."""
    pixels, labels = _batch(image_size, batch, memory_format)
    model = in_memory_format(MobileNetV3(variant=variant, classes=CLASSES), memory_format)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, alpha=0.9, eps=0.0316, momentum=0.9, weight_decay=1e-5)
    return training_step(model, optimizer, lambda net: _loss(net, pixels, labels), dtype=dtype, mode=mode)


def _batch(image_size: int, batch: int, memory_format: str) -> tuple[Tensor, Tensor]:
    pixels = (images(batch, image_size, memory_format=memory_format) - 0.5) / 0.25
    return pixels, integers(CLASSES, batch)


def _loss(model: nn.Module, pixels: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(pixels), labels, label_smoothing=LABEL_SMOOTHING)
