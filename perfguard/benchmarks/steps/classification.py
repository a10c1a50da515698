"""Training steps of image classifiers: ResNet-50 and MobileNetV3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfguard.benchmarks.inputs import images, in_memory_format, integers
from perfguard.benchmarks.networks.mobilenetv3 import MobileNetV3
from perfguard.benchmarks.networks.resnet import resnet50 as build_resnet50
from perfguard.benchmarks.stack import prepare
from perfguard.benchmarks.steps.training import training_step

if TYPE_CHECKING:
    from perfguard.benchmarks.api import Timed

CLASSES = 1000
"""Classes of ImageNet."""
LABEL_SMOOTHING = 0.1
"""As in the MLPerf and torchvision recipes; also keeps the loss on a memorised batch away from zero."""


def resnet50(*, image_size: int, batch: int, dtype: str, memory_format: str, mode: str) -> Timed:
    """ResNet-50 v1.5 with SGD, momentum 0.9 and weight decay 1e-4."""
    pixels, labels = _batch(image_size, batch, memory_format)
    model = in_memory_format(build_resnet50(classes=CLASSES), memory_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4)
    prepared = prepare(model, optimizer, dtype=dtype)
    return training_step(prepared, lambda net: _loss(net, pixels, labels), dtype=dtype, mode=mode)


def mobilenetv3(*, variant: str, image_size: int, batch: int, dtype: str, memory_format: str, mode: str) -> Timed:
    """MobileNetV3 with RMSprop as in the paper: momentum 0.9, weight decay 1e-5."""
    pixels, labels = _batch(image_size, batch, memory_format)
    model = in_memory_format(MobileNetV3(variant=variant, classes=CLASSES), memory_format)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, alpha=0.9, eps=0.0316, momentum=0.9, weight_decay=1e-5)
    prepared = prepare(model, optimizer, dtype=dtype)
    return training_step(prepared, lambda net: _loss(net, pixels, labels), dtype=dtype, mode=mode)


def _batch(image_size: int, batch: int, memory_format: str) -> tuple[Tensor, Tensor]:
    pixels = (images(batch, image_size, memory_format=memory_format) - 0.5) / 0.25
    return pixels, integers(CLASSES, batch)


def _loss(model: nn.Module, pixels: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(pixels), labels, label_smoothing=LABEL_SMOOTHING)
