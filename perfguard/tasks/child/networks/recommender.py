"""A small model of the DLRM family, for made-up clicks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

COUNTS, FIELDS = 5, 8
"""Numerical and categorical features of a click."""
ROWS = 100  # Values of each categorical feature
_WIDTH = 16  # Of an embedding


class Recommender(nn.Module):
    """Embeddings of eight fields and of counts, their products by pairs, and two linear layers; 17,042 parameters.

    Source: Naumov et al., arXiv 1906.00091.
    """

    first: torch.Tensor
    second: torch.Tensor
    batch = 256

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ROWS, _WIDTH) for _ in range(FIELDS))
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.1)  # type: ignore[arg-type]
        self.counts = nn.Sequential(nn.Linear(COUNTS, 32), nn.ReLU(), nn.Linear(32, _WIDTH))
        first, second = torch.tril_indices(FIELDS + 1, FIELDS + 1, offset=-1)
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("second", second, persistent=False)
        self.click = nn.Sequential(nn.Linear(_WIDTH + len(first), 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, clicks: torch.Tensor) -> torch.Tensor:
        """Whole numbers, five counts and eight rows, `(batch, 13)`, to logits of no click and click, `(batch, 2)`."""
        width = next(self.parameters()).dtype
        dense = self.counts(torch.log1p(clicks[:, :COUNTS].to(width)))
        embedded = [table(clicks[:, COUNTS + number]) for number, table in enumerate(self.tables)]
        vectors = torch.stack([dense, *embedded], dim=1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.first, self.second]
        logits: torch.Tensor = self.click(torch.cat([dense, products], dim=1))
        return logits

    def loss(self, clicks: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Cross entropy."""
        return functional.cross_entropy(self(clicks), labels)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=3e-3)
