"""What a script computes in its first steps, and in which dtypes, so that two arms can be compared."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perfguard.records.script_settings import CHECKED_STEPS

_NARROW = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}  # Dtypes with tolerances of their own


class FirstSteps:
    """Records the first steps; from then on it costs one test for each backward pass, autocast region and step."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        """`loss_1`: sum of what `backward` was called on in the first step. `gradient_norm_1`: norm of all gradients
        that its optimizer used."""
        self.dtypes: set[str] = set()
        """`bf16` and `fp16`, where autocast or the weights have them, whoever chose them."""
        self._step = 1

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record while entered."""
        import torch

        backward = torch.autograd.backward

        @functools.wraps(backward)
        def backward_and_record(tensors: Any, *arguments: Any, **named: Any) -> Any:
            if self._step <= CHECKED_STEPS and not torch.compiler.is_compiling():
                self._add(tensors)
            return backward(tensors, *arguments, **named)

        enter = torch.autocast.__enter__

        @functools.wraps(enter)
        def enter_and_record(region: Any) -> Any:
            if getattr(region, "_enabled", False):
                self._add_dtype(region.fast_dtype)
            return enter(region)

        torch.autograd.backward = backward_and_record
        torch.autocast.__enter__ = enter_and_record  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.autograd.backward = backward
            torch.autocast.__enter__ = enter  # type: ignore[method-assign]

    def step_ended(self, optimizer: Any) -> None:
        """A step has ended with an update by this optimizer, whose gradients are still there."""
        if self._step <= CHECKED_STEPS:
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            for weight in weights:
                self._add_dtype(weight.dtype)
            gradients = [weight.grad for weight in weights if weight.grad is not None]
            if gradients:
                import torch

                norm = torch.nn.utils.get_total_norm(gradients)
                self.numbers[f"gradient_norm_{self._step}"] = float(norm)
        self._step += 1

    def _add_dtype(self, dtype: Any) -> None:
        if str(dtype) in _NARROW:
            self.dtypes.add(_NARROW[str(dtype)])

    def _add(self, tensors: Any) -> None:
        import torch

        roots = [tensors] if isinstance(tensors, torch.Tensor) else [each for each in tensors if each is not None]
        name = f"loss_{self._step}"
        self.numbers[name] = self.numbers.get(name, 0.0) + sum(float(each.detach().sum()) for each in roots)
