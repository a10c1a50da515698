"""PyTorch, compiled by Inductor."""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt
import torch

from perfguard.records.tasks import ModelPrecision
from perfguard.tasks.child.backends import Loaded, LoadRequest, RefusedError, eager, reason_of
from perfguard.tasks.child.models import Arrays


def load(order: LoadRequest) -> Loaded:
    """The module under `torch.compile`, compiled for batches of one by the first call."""
    if order.precision is ModelPrecision.INT8:
        raise RefusedError("no INT8 recipe for torch.compile is built in; use another backend")
    torch.set_num_threads(order.threads)
    dtype = torch.bfloat16 if order.precision is ModelPrecision.BF16 else torch.float32
    module = copy.deepcopy(order.model.module).to(dtype)
    try:
        compiled = torch.compile(module)
        with order.stages.stage("compile"), torch.inference_mode():
            compiled(torch.from_numpy(order.example).to(dtype))
    except Exception as error:
        raise RefusedError(f"torch.compile failed: {reason_of(error)}") from error

    def run(batch: npt.NDArray[np.float32]) -> Arrays:
        with torch.inference_mode():
            return eager.arrays_of(compiled(torch.from_numpy(batch).to(dtype)))

    return Loaded(run=run, ran_in=order.precision.value, version=torch.__version__)
