"""The training step of a DLRM-style recommender."""

from __future__ import annotations

import torch
from torch.nn import functional

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.networks.dlrm import DENSE_FEATURES, DLRM, TABLES
from perfguard.benchmarks.shared import integers, normal
from perfguard.benchmarks.steps.training import training_step


def dlrm(*, batch: int, rows: int, dtype: str, mode: str, features: int = 64, lookups: int = 4) -> Timed:
    """Click prediction on 26 tables of `rows` rows with `lookups` rows a bag; SGD on sparse gradients."""
    dense = normal(batch, DENSE_FEATURES)
    indices = [integers(rows, batch * lookups) for _ in range(TABLES)]
    offsets = torch.arange(0, batch * lookups, lookups)
    clicks = integers(2, batch).float()
    model = DLRM(rows=rows, features=features)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return training_step(
        model,
        optimizer,
        lambda net: functional.binary_cross_entropy_with_logits(net(dense, indices, offsets).float(), clicks),
        dtype=dtype,
        mode=mode,
    )
