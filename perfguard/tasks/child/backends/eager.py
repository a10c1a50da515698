"""PyTorch, eager."""

from __future__ import annotations

import copy

import torch

from perfguard.records.tasks import ModelPrecision
from perfguard.tasks.child.backends import Loaded, LoadRequest, RefusedError
from perfguard.tasks.child.examples import Inputs
from perfguard.tasks.child.postprocessing import Arrays


def load(order: LoadRequest) -> Loaded:
    """The module as it is; BF16 converts weights and inputs."""
    if order.precision is ModelPrecision.INT8:
        raise RefusedError("PyTorch has no INT8 for convolutions without compiling; use another backend")
    torch.set_num_threads(order.threads)
    module, dtype = order.model.module, torch.float32
    if order.precision is ModelPrecision.BF16:
        module, dtype = copy.deepcopy(module).to(torch.bfloat16), torch.bfloat16
    if order.device != "cpu":
        module = copy.deepcopy(module).to(order.device)

    def run(batch: Inputs) -> Arrays:
        with torch.inference_mode():
            return arrays_of(module(tensor_of(batch, dtype, order.device)))

    return Loaded(run=run, ran_in=_dtype_of(module), version=torch.__version__)


def tensor_of(batch: Inputs, dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """Inputs as a module in `dtype` on `device` takes them; whole numbers stay what they are."""
    found = torch.from_numpy(batch)
    return found.to(device, dtype) if found.is_floating_point() else found.to(device)


def arrays_of(outputs: torch.Tensor | tuple[torch.Tensor, ...]) -> Arrays:
    """Outputs of a module as float32 arrays."""
    tensors = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
    return tuple(tensor.float().cpu().numpy() for tensor in tensors)


def _dtype_of(module: torch.nn.Module) -> str:
    dtypes = {parameter.dtype for parameter in module.parameters()}
    return "bf16" if dtypes == {torch.bfloat16} else "fp32" if dtypes == {torch.float32} else "mixed"
