"""Modules that can be trained: what they have, and one pass over the examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import torch
from torch import nn

from perfguard.errors import ConfigError
from perfguard.tasks.child.examples import Split, TaskExamples


class Trainable(Protocol):
    """What a module has beside `forward` to be trained by a task."""

    batch: int  # Examples of a step

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of some examples, 0-d; called in training mode."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        """A new optimizer of its parameters."""


Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def trainable(module: nn.Module, name: str, examples: TaskExamples) -> tuple[Trainable, Split]:
    """A module as one that can be trained, and the examples for it.

    Raises:
        ConfigError: It cannot be trained, or there are no labelled examples for it.
    """
    missing = [each for each in ("batch", "loss", "make_optimizer") if not hasattr(module, each)]
    if missing:
        raise ConfigError(f"model: {name} cannot be trained here: it has no {', '.join(missing)} (docs/tasks.md)")
    if examples.training is None or examples.training.labels is None:
        raise ConfigError(f"model: {name} cannot be trained here: the data has no examples for it")
    return cast("Trainable", module), examples.training


def train_epoch(
    model: Trainable, loss: Loss, optimizer: torch.optim.Optimizer, split: Split, *, stepped: Callable[[], None]
) -> None:
    """Train on all examples once, in an order drawn by torch's seed; `stepped` is called after each step."""
    inputs, labels = torch.from_numpy(split.inputs), torch.from_numpy(split.labels)
    for chosen in torch.randperm(len(inputs)).split(model.batch):
        optimizer.zero_grad(set_to_none=True)
        loss(inputs[chosen], labels[chosen]).backward()
        optimizer.step()
        stepped()
