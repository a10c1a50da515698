"""Dense matrix products: a linear layer, matmul and batched matmul."""

from __future__ import annotations

import torch
from torch import nn

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.ops.phases import phased
from perfguard.benchmarks.shared import leaf
from perfguard.benchmarks.stack import prepare_module


def linear(*, m: int, dtype: str, phase: str, in_features: int = 768, out_features: int = 3072) -> Timed:
    """A linear layer on (m, in_features); the default widths are BERT-base's feed-forward layer."""
    layer = prepare_module(nn.Linear(in_features, out_features), dtype=dtype)
    tokens = leaf(m, in_features, dtype=dtype)
    return phased(lambda: layer(tokens), [tokens, *layer.parameters()], phase=phase)


def matmul(*, size: int, dtype: str, phase: str) -> Timed:
    """The product of two square matrices of `size` rows."""
    left, right = leaf(size, size, dtype=dtype), leaf(size, size, dtype=dtype)
    return phased(lambda: torch.matmul(left, right), [left, right], phase=phase)


def bmm(*, batch: int, dtype: str, phase: str, size: int = 128, inner: int = 64) -> Timed:
    """Products of (size, inner) and (inner, size) matrices: the attention scores of `batch` heads."""
    left, right = leaf(batch, size, inner, dtype=dtype), leaf(batch, inner, size, dtype=dtype)
    return phased(lambda: torch.bmm(left, right), [left, right], phase=phase)
