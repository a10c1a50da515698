"""Recurrent layers."""

from __future__ import annotations

from torch import nn

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.ops.phases import phased
from perfguard.benchmarks.shared import leaf
from perfguard.benchmarks.stack import prepare_module


def lstm(*, hidden: int, sequence: int, dtype: str, phase: str, batch: int = 16, layers: int = 1) -> Timed:
    """An LSTM over (sequence, batch, hidden) from a zero state."""
    layer = prepare_module(nn.LSTM(hidden, hidden, num_layers=layers), dtype=dtype)
    tokens = leaf(sequence, batch, hidden, dtype=dtype)
    return phased(lambda: layer(tokens)[0], [tokens, *layer.parameters()], phase=phase)
