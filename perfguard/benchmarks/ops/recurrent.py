"""Recurrent layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from perfguard.benchmarks.inputs import leaf
from perfguard.benchmarks.ops.phases import phased
from perfguard.benchmarks.stack import prepare_module

if TYPE_CHECKING:
    from perfguard.benchmarks.api import Timed


def lstm(*, hidden: int, sequence: int, dtype: str, phase: str, batch: int = 16, layers: int = 1) -> Timed:
    """An LSTM over (sequence, batch, hidden) from a zero state."""
    layer = prepare_module(nn.LSTM(hidden, hidden, num_layers=layers), dtype=dtype)
    tokens = leaf(sequence, batch, hidden, dtype=dtype)

    def forward() -> Tensor:
        output: Tensor = layer(tokens)[0]
        return output

    return phased(forward, [tokens, *layer.parameters()], phase=phase)
