"""A DLRM-style recommendation model.

Source: Naumov et al., arXiv 1906.00091: dense features through a bottom MLP, categorical ones through
embedding bags with sparse gradients, pairwise dot products of all of them, and a top MLP.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

DENSE_FEATURES = 13  # Numerical features of a Criteo sample
TABLES = 26  # Categorical features of a Criteo sample, one embedding table each


class DLRM(nn.Module):
    """Click-through prediction with the MLP widths of the Criteo Kaggle configuration.

    `rows` are those of every embedding table, `features` the width of an embedding and of the bottom MLP's output.
    """

    lower_rows: Tensor
    lower_columns: Tensor

    def __init__(self, *, rows: int, features: int) -> None:
        super().__init__()
        self.bottom = _mlp(DENSE_FEATURES, 512, 256, features)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, features, mode="sum", sparse=True) for _ in range(TABLES))
        for table in self.tables:
            nn.init.uniform_(table.weight, -(rows**-0.5), rows**-0.5)  # type: ignore[arg-type]
        lower_rows, lower_columns = torch.tril_indices(TABLES + 1, TABLES + 1, offset=-1)
        self.register_buffer("lower_rows", lower_rows, persistent=False)
        self.register_buffer("lower_columns", lower_columns, persistent=False)
        self.top = _mlp(features + lower_rows.numel(), 512, 256)
        self.click = nn.Linear(256, 1)

    def forward(self, dense: Tensor, indices: Sequence[Tensor], offsets: Tensor) -> Tensor:
        """Logits (batch,) for dense features (batch, 13).

        For each table, `indices` are the rows of all bags; `offsets` (batch,) are the first indices of the bags.
        """
        bottom = self.bottom(dense)
        pooled = [table(rows, offsets) for table, rows in zip(self.tables, indices, strict=True)]
        vectors = torch.stack([bottom, *(p.to(bottom.dtype) for p in pooled)], dim=1)
        interactions = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.lower_rows, self.lower_columns]
        return self.click(self.top(torch.cat([bottom, interactions], dim=1))).squeeze(1)


def _mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)
