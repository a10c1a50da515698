"""Embedding tables of recommendation models."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.ops.phases import phased
from perfguard.benchmarks.shared import checked, integers
from perfguard.benchmarks.stack import prepare_module
from perfguard.records.spec import Phase


def embedding_bag(*, bags: int, rows: int, dtype: str, phase: str, lookups: int = 20, features: int = 64) -> Timed:
    """Sums of `lookups` rows for each bag, with a sparse gradient as DLRM trains (arXiv 1906.00091)."""
    layer = nn.EmbeddingBag(rows, features, mode="sum", sparse=True)
    module = prepare_module(layer, dtype=dtype)
    indices = integers(rows, bags * lookups)
    offsets = torch.arange(0, bags * lookups, lookups)
    timed = phased(lambda: module(indices, offsets), module.parameters(), phase=phase)
    if phase == Phase.FORWARD.value:
        return timed

    def forward_backward() -> Tensor:
        # Sparse and not coalesced; the values are what can be checked, and taking them copies nothing.
        gradient: Tensor = timed()  # type: ignore[assignment]
        return gradient._values()  # noqa: SLF001

    return checked(forward_backward, timed.check)  # type: ignore[attr-defined]
