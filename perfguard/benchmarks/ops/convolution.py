"""Two-dimensional convolutions as ResNet, ResNeXt and MobileNet use them; stride 1, no bias."""

from __future__ import annotations

from torch import nn

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.ops.phases import phased
from perfguard.benchmarks.shared import in_memory_format, leaf
from perfguard.benchmarks.stack import prepare_module


def conv1x1(*, channels: int, size: int, dtype: str, memory_format: str, phase: str, batch: int = 4) -> Timed:
    """Pointwise convolution: the expansion of a bottleneck, channels to 4·channels."""
    return _timed(nn.Conv2d(channels, 4 * channels, 1, bias=False), (batch, size), dtype, memory_format, phase)


def conv3x3(*, channels: int, size: int, dtype: str, memory_format: str, phase: str, batch: int = 4) -> Timed:
    """Dense 3x3 convolution, channels to channels."""
    layer = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    return _timed(layer, (batch, size), dtype, memory_format, phase)


def conv_grouped(
    *, channels: int, size: int, dtype: str, memory_format: str, phase: str, batch: int = 4, groups: int = 32
) -> Timed:
    """Grouped 3x3 convolution of ResNeXt 32x4d (arXiv 1611.05431): 128 channels are its first stage."""
    layer = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=False)
    return _timed(layer, (batch, size), dtype, memory_format, phase)


def conv_depthwise(
    *, channels: int, size: int, dtype: str, memory_format: str, phase: str, batch: int = 4, kernel: int = 3
) -> Timed:
    """Depthwise convolution of MobileNet: one filter for each channel."""
    layer = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False)
    return _timed(layer, (batch, size), dtype, memory_format, phase)


def _timed(layer: nn.Conv2d, shape: tuple[int, int], dtype: str, memory_format: str, phase: str) -> Timed:
    batch, size = shape
    features = leaf(batch, layer.in_channels, size, size, dtype=dtype, memory_format=memory_format)
    module = prepare_module(in_memory_format(layer, memory_format), dtype=dtype)
    return phased(lambda: module(features), [features, *module.parameters()], phase=phase)
