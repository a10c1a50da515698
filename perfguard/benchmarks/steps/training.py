"""The training loop's body that all steps share: zero_grad, autocast forward, loss, backward, update."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.shared import checked, dtype_of, norm_of
from perfguard.benchmarks.stack import prepare
from perfguard.errors import MeasurementError, UsageError

MODES = ("eager", "compile")
"""How the model is run; `compile` is torch.compile with Inductor."""


def training_step(
    model: nn.Module,
    optimizer: Optimizer,
    loss_of: Callable[[nn.Module], Tensor],
    *,
    dtype: str,
    mode: str,
    clip_norm: float | None = None,
) -> Timed:
    """One training step as a callable that returns the loss before the update; checked by its gradients' norm, too.

    With `bf16` the forward and the loss run under CPU autocast; bf16 has the exponents of fp32, so there is
    no gradient scaler. In mode `compile` one step is taken, so that compilation belongs to the set-up.

    Args:
        model: fp32 weights in the memory format of the case, which go through the stack.
        optimizer: Over the model's trainable parameters; it goes there, too.
        loss_of: Calls the given model on the fixed batch.
        dtype: `fp32` or `bf16`.
        mode: One of `MODES`.
        clip_norm: Largest total norm of the gradients; None does not clip.

    Raises:
        UsageError: Unknown dtype, mode or stack.
        MeasurementError: The stack does not take the model; or mode `compile` has no C++ compiler, or nothing of this
            model can be compiled.
    """
    model, updater = prepare(model, optimizer, dtype=dtype)
    autocast = dtype_of(dtype) is not torch.float32
    if mode not in MODES:
        raise UsageError(f"unknown mode {mode!r}; choose from {', '.join(MODES)}")
    trained = [p for group in updater.param_groups for p in group["params"]]
    norm_before_clipping: Tensor | None = None

    def step() -> Tensor:
        nonlocal norm_before_clipping
        updater.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = loss_of(model)
        loss.backward()
        if clip_norm is not None:
            norm_before_clipping = nn.utils.clip_grad_norm_(trained, clip_norm)
        updater.step()
        return loss.detach()

    def check() -> dict[str, float]:
        if norm_before_clipping is not None:
            return {"gradient_norm": float(norm_before_clipping)}
        return {"gradient_norm": norm_of(p.grad for p in trained)}

    if mode == "compile":
        _compile(model, step)
    return checked(step, check)


def _compile(model: nn.Module, step: Timed) -> None:
    from torch._dynamo.utils import counters

    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler) is None:
        raise MeasurementError(
            f"torch.compile on CPU needs a C++ compiler, and {compiler!r} is not on PATH; "
            "install g++, set CXX, or choose cases with mode=eager"
        )
    graphs_before = counters["stats"]["unique_graphs"]
    model.compile()
    step()
    # Where Dynamo gives up on the outermost frame it silently runs eagerly: that must not pass for compiled.
    if counters["stats"]["unique_graphs"] == graphs_before:
        raise MeasurementError(
            f"torch.compile of torch {torch.__version__} compiled nothing of {type(model).__name__}; "
            "choose the case with mode=eager"
        )
