"""What the built-in benchmarks are recognised by beside their result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from perfguard.benchmarks.api import Timed


def checked(timed: Timed, check: Callable[[], Mapping[str, float]]) -> Timed:
    """The timed function with its `check`, which the worker calls once, after the first call of the function."""
    timed.check = check  # type: ignore[attr-defined]
    return timed


def norm_of(tensors: Iterable[Tensor | None]) -> float:
    """Euclidean norm over all values together, summed in float64; sparse tensors by what they add up to.

    None is left out: a parameter that takes no part has no gradient.
    """
    total = 0.0
    for tensor in tensors:
        if tensor is not None:
            values = tensor.detach()
            if values.is_sparse:
                values = values.coalesce().values()
            total += float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2
    return total**0.5
