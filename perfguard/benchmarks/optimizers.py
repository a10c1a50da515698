"""PyTorch's optimizers by name, and their three implementations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from perfguard.errors import UsageError

ALGORITHMS: dict[str, Callable[..., Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}
DEFAULT_IMPLEMENTATION = "for-loop"  # What PyTorch takes on a CPU where nothing is asked for
IMPLEMENTATIONS = {
    "for-loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
"""One kernel for each tensor and operation, for lists of tensors, or for the whole update."""


def optimizer_of(
    algorithm: str, parameters: Iterable[nn.Parameter], *, implementation: str = DEFAULT_IMPLEMENTATION, **settings: Any
) -> Optimizer:
    """An optimizer over the parameters.

    Raises:
        UsageError: Unknown algorithm or implementation, or an algorithm without this implementation.
    """
    if algorithm not in ALGORITHMS or implementation not in IMPLEMENTATIONS:
        raise UsageError(
            f"no optimizer {algorithm!r} in mode {implementation!r}; choose from {', '.join(ALGORITHMS)} "
            f"and {', '.join(IMPLEMENTATIONS)}"
        )
    choice = IMPLEMENTATIONS[implementation]
    if algorithm == "rmsprop":
        if choice["fused"]:
            raise UsageError("PyTorch has no fused RMSprop; choose for-loop or foreach")
        choice = {"foreach": choice["foreach"]}
    return ALGORITHMS[algorithm](parameters, **choice, **settings)
