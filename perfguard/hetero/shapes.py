"""The paper's data sets by their numbers: what generated data has of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from perfguard.records.training import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DataShape:
    """One data set."""

    examples: int  # Full size
    reduced: int  # Examples of the reduced size
    features: int
    classes: int
    paper_layers: int  # Hidden layers of the paper's network, each of 512
    nonzeros: float | None = None  # Mean of a row; None: dense
    labels: float | None = None  # Mean number of labels of an example; None: exactly one class
    positives: float | None = None  # Part of class 1, where there are two


SHAPES: Mapping[str, DataShape] = {
    "covtype": DataShape(examples=581_012, reduced=20_000, features=54, classes=7, paper_layers=6),
    "w8a": DataShape(
        examples=64_700, reduced=20_000, features=300, classes=2, paper_layers=8, nonzeros=11.7, positives=0.03
    ),
    "delicious": DataShape(
        examples=16_105, reduced=8_000, features=500, classes=983, paper_layers=8, nonzeros=18.3, labels=19.0
    ),
    "real-sim": DataShape(
        examples=72_309, reduced=20_000, features=20_958, classes=2, paper_layers=4, nonzeros=51.3, positives=0.31
    ),
}
"""Source: pages of LIBSVM (covtype, w8a, real-sim) and of the extreme-classification repository (delicious)."""


def bytes_of(shape: DataShape, examples: int) -> float:
    """About as many bytes as examples of a shape take on disk."""
    features = 4.0 * shape.features if shape.nonzeros is None else 12.0 * shape.nonzeros + 8
    labels = 8.0 if shape.labels is None else 8.0 * shape.labels + 8
    return examples * (features + labels)


def parameters_of(model: ModelConfig, features: int, classes: int) -> int:
    """Numbers in a multilayer perceptron, biases included."""
    sizes = [features, *([model.width] * model.layers), classes]
    return sum((before + 1) * after for before, after in pairwise(sizes))
