"""The software stack that models and optimizers pass through: plain PyTorch, or IPEX on request.

`PERFGUARD_STACK=ipex` in a worker's environment turns on Intel Extension for PyTorch. IPEX is imported only
then, because importing it alone replaces kernels and would change a plain measurement.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from perfguard.benchmarks.shared import dtype_of
from perfguard.errors import MeasurementError, UsageError

STACK_VARIABLE = "PERFGUARD_STACK"
"""Environment variable that names the stack: unset, empty or `torch`, or `ipex`."""


class PreparedModel(NamedTuple):
    """A model in training mode and its optimizer, as the stack returned them: possibly other objects than given."""

    model: nn.Module
    optimizer: Any  # None when none was given


def prepare(model: nn.Module, optimizer: Optimizer | None = None, *, dtype: str) -> PreparedModel:
    """Hand a model and its optimizer to the stack, before the first step.

    Args:
        model: fp32 weights, already in the memory format of the case.
        optimizer: Over the model's trainable parameters.
        dtype: `fp32`, or `bf16` for a step under bf16 autocast.

    Raises:
        UsageError: The environment names an unknown stack.
        MeasurementError: IPEX cannot be imported or cannot take this model.
    """
    model.train()
    if _stack() == "torch":
        return PreparedModel(model, optimizer)
    return _ipex_optimized(model, optimizer, dtype)


def distributed(model: nn.Module) -> nn.Module:
    """The model, in DistributedDataParallel where this process is one of several ranks that average their gradients."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return model
    return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def prepare_module(module: nn.Module, *, dtype: str) -> nn.Module:
    """A single layer for a kernel benchmark, with its weights in `dtype`.

    IPEX keeps its own low-precision weights and wants fp32 ones; without it the layer is simply converted.
    """
    if _stack() == "torch":
        return module.train().to(dtype_of(dtype))
    # IPEX refuses a module in training mode without an optimizer; this one is never stepped.
    unused = torch.optim.SGD(module.parameters(), lr=0.0)
    return _ipex_optimized(module.train(), unused, dtype).model


def _stack() -> str:
    stack = os.environ.get(STACK_VARIABLE) or "torch"
    if stack not in {"torch", "ipex"}:
        raise UsageError(f"{STACK_VARIABLE}={stack!r} is unknown; use 'torch' or 'ipex', or unset it")
    return stack


def _ipex_optimized(model: nn.Module, optimizer: Optimizer | None, dtype: str) -> PreparedModel:
    ipex = import_ipex()
    try:
        optimized = ipex.optimize(model, optimizer=optimizer, dtype=dtype_of(dtype), inplace=True)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise MeasurementError(
            f"ipex.optimize does not support {type(model).__name__} in {dtype}: {error}; "
            f"leave this case out or unset {STACK_VARIABLE}"
        ) from error
    return PreparedModel(optimized, None) if optimizer is None else PreparedModel(*optimized)


def import_ipex() -> Any:
    """The IPEX module.

    Raises:
        MeasurementError: It is missing, belongs to another torch, or refuses this CPU.
    """
    # On a version mismatch IPEX 2.8 prints a message and calls the missing os.exit (AttributeError);
    # on a CPU without AVX2 it calls sys.exit. Both must fail one case, not end the worker.
    try:
        import intel_extension_for_pytorch as ipex
    except (ImportError, AttributeError, SystemExit) as error:
        raise MeasurementError(
            f"{STACK_VARIABLE}=ipex, but intel_extension_for_pytorch cannot be imported with torch "
            f"{torch.__version__} on this CPU: {error}; it needs the same major.minor version and AVX2"
        ) from error
    return ipex
