"""Rows of a data set as numpy arrays: what generators and loaders give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Csr:
    """Sparse rows; row i has `columns[starts[i]:starts[i + 1]]`, each with its value."""

    starts: NDArray[Any]  # [n + 1], from 0
    columns: NDArray[Any]  # [nnz]
    values: NDArray[Any]  # [nnz]; of labels nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some examples."""

    x: NDArray[Any] | Csr  # Features [n, features]
    y: NDArray[Any] | Csr  # Class of each [n], or its labels
    features: int
    classes: int

    @property
    def rows(self) -> int:
        """Number of examples."""
        return len(self.x.starts) - 1 if isinstance(self.x, Csr) else len(self.x)
