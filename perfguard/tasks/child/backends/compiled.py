"""PyTorch, compiled by Inductor."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from perfguard.records.tasks import ModelPrecision
from perfguard.tasks.child.backends import Loaded, LoadRequest, RefusedError, eager, reason_of
from perfguard.tasks.child.examples import Inputs
from perfguard.tasks.child.postprocessing import Arrays

_PRODUCTS = ("conv", "linear", "mm")
"""Parts of the names of ops that compute most."""


def load(order: LoadRequest) -> Loaded:
    """The module under `torch.compile`, compiled for batches of one by the first call; INT8 is PT2E quantization."""
    torch.set_num_threads(order.threads)
    dtype = torch.bfloat16 if order.precision is ModelPrecision.BF16 else torch.float32
    module: Any = copy.deepcopy(order.model.module).to(order.device, dtype)
    ran_in = order.precision.value
    try:
        if order.precision is ModelPrecision.INT8:
            with order.stages.stage("quantize"):
                module = _quantized(module, order)
            ran_in = _ran_in(module)
            # Else quantized weights are unpacked again in each call. An option of `torch.compile` comes too late.
            torch._inductor.config.freezing = True  # noqa: SLF001 - its documented place
        compiled = torch.compile(module)
        with order.stages.stage("compile"), torch.inference_mode():
            compiled(eager.tensor_of(order.example, dtype, order.device))
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(f"torch.compile failed: {reason_of(error)}") from error

    def run(batch: Inputs) -> Arrays:
        with torch.inference_mode():
            return eager.arrays_of(compiled(eager.tensor_of(batch, dtype, order.device)))

    return Loaded(run=run, ran_in=ran_in, version=torch.__version__)


def _quantized(module: nn.Module, order: LoadRequest) -> torch.fx.GraphModule:
    """Static INT8 by the quantizer for x86, calibrated with the examples for it; for batches of one."""
    try:
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer
    except ImportError as error:
        raise RefusedError(f"INT8 under torch.compile needs torchao ({error}); install perfguard[torchao]") from error
    example = eager.tensor_of(order.example, torch.float32)
    exported = torch.export.export(module, (example,)).module()
    quantizer = x86_inductor_quantizer.X86InductorQuantizer()
    quantizer.set_global(x86_inductor_quantizer.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported, quantizer)
    with torch.inference_mode():
        for row in range(len(order.calibration)):
            prepared(eager.tensor_of(order.calibration[row : row + 1], torch.float32))
    return convert_pt2e(prepared)


def _ran_in(module: torch.fx.GraphModule) -> str:
    """By the nodes of the graph: INT8 where each product has a quantized input."""
    products = [
        node
        for node in module.graph.nodes
        if node.op == "call_function" and any(part in str(node.target) for part in _PRODUCTS)
    ]
    quantized = [any("dequantize" in str(each.target) for each in node.all_input_nodes) for node in products]
    return "int8" if products and all(quantized) else "mixed" if any(quantized) else "fp32"
