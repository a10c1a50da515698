"""Networks and their losses: a multilayer perceptron on dense or sparse rows, or a module of the user's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from perfguard.errors import UsageError
from perfguard.hetero.child.data import Examples, Shape
from perfguard.records.training import Activation, ModelConfig

LossSum = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Sum over the examples of the loss of outputs [n, classes]."""


class SparseLinear(nn.Module):
    """A linear layer on sparse rows; its gradient has rows only for features that occur, and so has an update.

    `forward` takes columns [nnz] int64, the start of each row [n] int64 and values [nnz], and returns [n, width].
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features, width))
        self.bias = nn.Parameter(torch.zeros(width))
        nn.init.kaiming_uniform_(self.weight.T, a=5**0.5)

    def forward(self, rows: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Rows times the weights."""
        columns, starts, values = rows
        summed = functional.embedding_bag(
            columns, self.weight, starts, mode="sum", per_sample_weights=values, sparse=True
        )
        return summed + self.bias


def build_model(config: ModelConfig, shape: Shape) -> nn.Module:
    """The network for these examples, with initial weights from torch's generator.

    Raises:
        UsageError: The user's factory fails, or returns no module.
    """
    if config.factory is not None:
        return _foreign(config.factory, shape)
    activation = {Activation.RELU: nn.ReLU, Activation.SIGMOID: nn.Sigmoid}[config.activation]
    layers: list[nn.Module] = []
    size = shape.features
    for number in range(config.layers + 1):
        width = config.width if number < config.layers else shape.classes
        is_first_of_sparse = number == 0 and shape.is_sparse
        layers.append(SparseLinear(size, width) if is_first_of_sparse else nn.Linear(size, width))
        if number < config.layers:
            layers.append(activation())
        size = width
    if config.activation is Activation.SIGMOID:
        for layer in layers:
            if isinstance(layer, (nn.Linear, SparseLinear)):
                nn.init.xavier_normal_(layer.weight, gain=2.0)
    return nn.Sequential(*layers)


@torch.no_grad()
def require_outputs(factory: str, model: nn.Module, examples: Examples) -> None:
    """Check what a user's module makes of the first examples.

    Raises:
        UsageError: It fails, or its outputs are not [n, classes].
    """
    count = min(2, examples.shape.examples)
    inputs, _ = examples.batch(0, count)
    wanted = (count, examples.shape.classes)
    was_training = model.training
    model.eval()
    try:
        outputs = model(inputs)
    except Exception as error:  # whatever foreign code raises
        line = str(error).partition("\n")[0]
        given = f"float32 [{count}, {examples.shape.features}]" if isinstance(inputs, torch.Tensor) else _ROWS
        raise UsageError(
            f"model.factory {factory!r}: its module fails on {count} examples: {type(error).__name__}: {line}; "
            f"its input is {given}"
        ) from error
    finally:
        model.train(was_training)
    found = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
    if found != wanted:
        raise UsageError(f"model.factory {factory!r}: for {count} examples its module gives {found}, not {wanted}")


_ROWS = "a tuple of columns [nnz] int64, the start of each row [n] int64, and values [nnz]"


def loss_sum(shape: Shape) -> LossSum:
    """Softmax cross-entropy for one class an example; sigmoid cross-entropy, mean over labels, for several."""
    if not shape.is_multilabel:
        return lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="sum")
    return lambda outputs, targets: (
        functional.binary_cross_entropy_with_logits(outputs, targets, reduction="sum") / targets.shape[1]
    )


def _foreign(factory: str, shape: Shape) -> nn.Module:
    module_name, _, function_name = factory.partition(":")
    if not module_name or not function_name:
        raise UsageError(f"model.factory = {factory!r}: write module:function")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        made: Any = getattr(importlib.import_module(module_name), function_name)(shape.features, shape.classes)
    except Exception as error:  # whatever foreign code raises
        raise UsageError(f"model.factory {factory!r} failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, nn.Module):
        raise UsageError(f"model.factory {factory!r} returned {type(made).__name__}, not a torch.nn.Module")
    return made
