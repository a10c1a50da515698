"""Ops that only move data: concatenation, copy and transpose."""

from __future__ import annotations

import torch

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.ops.phases import phased
from perfguard.benchmarks.shared import leaf


def cat(*, rows: int, dtype: str, phase: str, features: int = 256, tensors: int = 4) -> Timed:
    """Concatenation of (rows, features) tensors along the last axis."""
    parts = [leaf(rows, features, dtype=dtype) for _ in range(tensors)]
    return phased(lambda: torch.cat(parts, dim=-1), parts, phase=phase)


def copy(*, rows: int, dtype: str, phase: str, features: int = 1024) -> Timed:
    """A copy of a (rows, features) tensor: memory bandwidth."""
    values = leaf(rows, features, dtype=dtype)
    return phased(values.clone, [values], phase=phase)


def transpose(*, rows: int, dtype: str, phase: str, features: int = 1024) -> Timed:
    """A (rows, features) tensor rewritten column by column: a strided copy."""
    values = leaf(rows, features, dtype=dtype)
    return phased(lambda: values.t().contiguous(), [values], phase=phase)
