"""Seeded data in the four shapes of the paper: examples, features, classes, how sparse; labels by a hidden teacher.

The values are synthetic: what is kept of the real sets is their size, their kind of features and their labels' number
and balance, so that times, messages and sparsity are alike. Losses are those of the teacher, not of the real sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfguard.hetero.child.rows import Chunk, Csr
from perfguard.hetero.shapes import DataShape

_CHUNK = 2048


_ONE_HOT = (4, 40)  # covtype: wilderness areas and kinds of soil, beside ten measured values
_HIDDEN = 32  # Width of the teacher


def generated(shape: DataShape, *, examples: int | None, seed: int) -> Iterator[Chunk]:
    """Examples of a shape, the reduced number by default; the same for the same seed, whatever the number."""
    left = shape.reduced if examples is None else examples
    teacher = _Teacher(shape, np.random.default_rng((seed, 0)))
    number = 0
    while left > 0:
        rng = np.random.default_rng((seed, number + 1))
        chunk = teacher.chunk(_CHUNK, rng)
        yield chunk if left >= _CHUNK else _head(chunk, left)
        left -= _CHUNK
        number += 1


class _Teacher:
    """A two-layer network of random weights that labels random features, with noise."""

    def __init__(self, shape: DataShape, rng: np.random.Generator) -> None:
        self._shape = shape
        is_dense = shape.nonzeros is None
        scale = 1.0 if is_dense else 3.0
        self._first = rng.normal(0.0, scale / np.sqrt(12 if is_dense else 4), (shape.features, _HIDDEN))
        self._second = rng.normal(0.0, 4.0 / np.sqrt(_HIDDEN), (_HIDDEN, shape.classes))
        self._bias = rng.normal(0.0, 0.5, shape.classes)
        popularity = 1.0 / np.arange(3, shape.features + 3)  # Zipf
        self._upto = np.cumsum(popularity / popularity.sum())
        self._names = rng.permutation(shape.features)
        self._cut: float | None = None

    def chunk(self, rows: int, rng: np.random.Generator) -> Chunk:
        x: NDArray[Any] | Csr
        if self._shape.nonzeros is None:
            x = _tabular(rows, rng)
            hidden = np.tanh(x @ self._first)
        else:
            x = self._sparse(rows, rng)
            sums = np.add.reduceat(x.values[:, None] * self._first[x.columns], x.starts[:-1], axis=0)
            hidden = np.tanh(sums)
        scores = hidden @ self._second + self._bias
        return Chunk(x=x, y=self._labelled(scores, rng), features=self._shape.features, classes=self._shape.classes)

    def _sparse(self, rows: int, rng: np.random.Generator) -> Csr:
        """Words by Zipf's law, each once in a row; rows have length 1."""
        mean = self._shape.nonzeros or 1.0
        counts = np.maximum(1, rng.poisson(mean * 1.15, rows))  # some words come twice
        row_of = np.repeat(np.arange(rows), counts)
        words = np.minimum(np.searchsorted(self._upto, rng.random(len(row_of))), self._shape.features - 1)
        unique = np.unique(row_of * self._shape.features + self._names[words])
        row_of, columns = np.divmod(unique, self._shape.features)
        starts = np.searchsorted(row_of, np.arange(rows + 1))
        weights = rng.lognormal(0.0, 0.5, len(columns))
        norms = np.sqrt(np.bincount(row_of, weights**2, minlength=rows))
        return Csr(starts, columns, weights / norms[row_of])

    def _labelled(self, scores: NDArray[Any], rng: np.random.Generator) -> NDArray[Any] | Csr:
        noisy = scores + rng.gumbel(0.0, 0.5, scores.shape)
        if self._shape.labels is not None:
            counts = np.clip(rng.poisson(self._shape.labels, len(noisy)), 1, self._shape.classes)
            order = np.argsort(-noisy, axis=1)[:, : counts.max()]
            is_label = np.arange(order.shape[1])[None, :] < counts[:, None]
            starts = np.concatenate(([0], np.cumsum(counts)))
            return Csr(starts, order[is_label], np.empty(0))
        if self._shape.positives is None:
            return np.asarray(np.argmax(noisy, axis=1))
        margin = noisy[:, 1] - noisy[:, 0]
        if self._cut is None:  # of the first chunk, so that all chunks have one rule
            self._cut = float(np.quantile(margin, 1 - self._shape.positives))
        return np.asarray(margin > self._cut, dtype=np.int64)


def _tabular(rows: int, rng: np.random.Generator) -> NDArray[Any]:
    """Ten measured values, and two groups of features of which one is 1."""
    measured = rng.normal(0.0, 1.0, (rows, 10))
    measured[:, 1:] += 0.5 * measured[:, :1]
    groups = [np.eye(size)[rng.choice(size, rows, p=_falling(size))] for size in _ONE_HOT]
    return np.concatenate([measured, *groups], axis=1).astype(np.float32)


def _falling(size: int) -> NDArray[Any]:
    weights = 1.0 / np.arange(1, size + 1)
    return np.asarray(weights / weights.sum())


def _head(chunk: Chunk, rows: int) -> Chunk:
    def cut(part: NDArray[Any] | Csr) -> NDArray[Any] | Csr:
        if not isinstance(part, Csr):
            return part[:rows]
        end = part.starts[rows]
        return Csr(part.starts[: rows + 1], part.columns[:end], part.values[:end])

    return Chunk(x=cut(chunk.x), y=cut(chunk.y), features=chunk.features, classes=chunk.classes)
