"""PyTorch, eager."""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt
import torch

from perfguard.records.tasks import ModelPrecision
from perfguard.tasks.child.backends import Loaded, LoadRequest, RefusedError
from perfguard.tasks.child.models import Arrays


def load(order: LoadRequest) -> Loaded:
    """The module as it is; BF16 converts weights and inputs."""
    if order.precision is ModelPrecision.INT8:
        raise RefusedError("PyTorch has no INT8 for convolutions without compiling; use another backend")
    torch.set_num_threads(order.threads)
    module, dtype = order.model.module, torch.float32
    if order.precision is ModelPrecision.BF16:
        module, dtype = copy.deepcopy(module).to(torch.bfloat16), torch.bfloat16

    def run(batch: npt.NDArray[np.float32]) -> Arrays:
        with torch.inference_mode():
            return arrays_of(module(torch.from_numpy(batch).to(dtype)))

    return Loaded(run=run, ran_in=_dtype_of(module), version=torch.__version__)


def arrays_of(outputs: torch.Tensor | tuple[torch.Tensor, ...]) -> Arrays:
    """Outputs of a module as float32 arrays."""
    tensors = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
    return tuple(tensor.float().numpy() for tensor in tensors)


def _dtype_of(module: torch.nn.Module) -> str:
    dtypes = {parameter.dtype for parameter in module.parameters()}
    return "bf16" if dtypes == {torch.bfloat16} else "fp32" if dtypes == {torch.float32} else "mixed"
