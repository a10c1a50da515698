"""Optimizer steps on the parameters of a transformer encoder, with fixed gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.shared import checked, dtype_of, norm_of
from perfguard.errors import UsageError

ALGORITHMS: dict[str, Callable[..., Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
}
IMPLEMENTATIONS = {
    "for-loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
"""PyTorch's three implementations; on CPU the default is the loop, and fused must be asked for."""
_LEARNING_RATE = 1e-6
"""So small that a million steps along a fixed gradient leave the weights of order one."""


def optimizer(*, layers: int, algorithm: str, dtype: str, mode: str, hidden: int = 256) -> Timed:
    """One update of all parameters of `layers` encoder layers (12·hidden² each, in 12 tensors).

    Raises:
        UsageError: Unknown algorithm or mode.
    """
    if algorithm not in ALGORITHMS or mode not in IMPLEMENTATIONS:
        raise UsageError(
            f"no optimizer {algorithm!r} in mode {mode!r}; choose from {', '.join(ALGORITHMS)} "
            f"and {', '.join(IMPLEMENTATIONS)}"
        )
    parameters = _parameters(layers, hidden, dtype_of(dtype))
    options: dict[str, Any] = {"lr": _LEARNING_RATE, **IMPLEMENTATIONS[mode]}
    if algorithm == "sgd":
        options["momentum"] = 0.9
    update = ALGORITHMS[algorithm](parameters, **options)
    watched = parameters[0].detach().view(-1)[:1]

    def step() -> Tensor:
        update.step()
        return watched.clone()

    def check() -> dict[str, float]:
        # Moments, not weights: weights of order one hide an update of 1e-6.
        states = [item for state in update.state.values() for item in state.items()]
        return {"state_norm": norm_of(v for name, v in states if isinstance(v, Tensor) and name != "step")}

    return checked(step, check)


def _parameters(layers: int, hidden: int, dtype: torch.dtype) -> list[nn.Parameter]:
    square, wide, tall = (hidden, hidden), (4 * hidden, hidden), (hidden, 4 * hidden)
    matrices = [square, square, square, square, wide, tall]
    shapes = [shape for _ in range(layers) for matrix in matrices for shape in (matrix, matrix[:1])]
    parameters = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]
    for parameter in parameters:
        # Magnitudes in [0.5, 1.5): no moment is ever near zero, where denormal numbers are slow.
        magnitude = torch.rand(parameter.shape) + 0.5
        parameter.grad = (magnitude * torch.randn(parameter.shape).sign()).to(dtype)
    return parameters
