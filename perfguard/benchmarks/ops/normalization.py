"""Batch norm and layer norm in training mode."""

from __future__ import annotations

from torch import nn

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.ops.phases import phased
from perfguard.benchmarks.shared import leaf
from perfguard.benchmarks.stack import prepare_module


def batch_norm(*, channels: int, size: int, dtype: str, memory_format: str, phase: str, batch: int = 8) -> Timed:
    """Batch statistics over (batch, channels, size, size); the output does not depend on running ones."""
    features = leaf(batch, channels, size, size, dtype=dtype, memory_format=memory_format)
    layer = prepare_module(nn.BatchNorm2d(channels), dtype=dtype)
    return phased(lambda: layer(features), [features, *layer.parameters()], phase=phase)


def layer_norm(*, tokens: int, dtype: str, phase: str, features: int = 768) -> Timed:
    """Layer norm over the last axis of (tokens, features)."""
    hidden = leaf(tokens, features, dtype=dtype)
    layer = prepare_module(nn.LayerNorm(features), dtype=dtype)
    return phased(lambda: layer(hidden), [hidden, *layer.parameters()], phase=phase)
