"""Scaled dot-product attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

from perfguard.benchmarks.inputs import leaf
from perfguard.benchmarks.ops.phases import phased

if TYPE_CHECKING:
    from perfguard.benchmarks.api import Timed


def sdpa(
    *, sequence: int, causal: bool, dtype: str, phase: str, batch: int = 2, heads: int = 12, head_dim: int = 64
) -> Timed:
    """Attention over (batch, heads, sequence, head_dim) without dropout; BERT-base's heads by default."""
    query, key, value = (leaf(batch, heads, sequence, head_dim, dtype=dtype) for _ in range(3))
    return phased(
        lambda: functional.scaled_dot_product_attention(query, key, value, is_causal=causal),
        [query, key, value],
        phase=phase,
    )
