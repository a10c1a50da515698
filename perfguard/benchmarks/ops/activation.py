"""Softmax and GELU."""

from __future__ import annotations

import torch
from torch.nn import functional

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.ops.phases import phased
from perfguard.benchmarks.shared import leaf


def softmax(*, sequence: int, dtype: str, phase: str, rows: int = 4096) -> Timed:
    """Softmax over the last axis of (rows, sequence): attention weights."""
    scores = leaf(rows, sequence, dtype=dtype)
    return phased(lambda: torch.softmax(scores, dim=-1), [scores], phase=phase)


def gelu(*, tokens: int, dtype: str, phase: str, features: int = 3072) -> Timed:
    """Exact (erf) GELU on (tokens, features); the default width is BERT-base's feed-forward layer."""
    hidden = leaf(tokens, features, dtype=dtype)
    return phased(lambda: functional.gelu(hidden), [hidden], phase=phase)
