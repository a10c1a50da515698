"""Scaled dot-product attention."""

from __future__ import annotations

from torch.nn import functional

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.ops.phases import phased
from perfguard.benchmarks.shared import leaf


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
