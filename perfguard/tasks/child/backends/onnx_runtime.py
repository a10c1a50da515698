"""ONNX Runtime on the CPU, from a model that PyTorch exports."""

from __future__ import annotations

from pathlib import Path

import onnxruntime

from perfguard.records.tasks import ModelPrecision
from perfguard.tasks.child.backends import Loaded, LoadRequest, RefusedError, reason_of
from perfguard.tasks.child.examples import Inputs
from perfguard.tasks.child.exporting import INPUT, onnx_model, quantized_onnx_model
from perfguard.tasks.child.postprocessing import Arrays


def load(order: LoadRequest) -> Loaded:
    """A session over the exported model, or over the quantized one."""
    if order.precision is ModelPrecision.BF16:
        raise RefusedError("ONNX Runtime's CPU provider has no BF16 kernels for most ops")
    path = onnx_model(order)
    if order.precision is ModelPrecision.INT8:
        path = quantized_onnx_model(order)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = order.threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0" if order.threads == 1 else "1")
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise RefusedError(f"ONNX Runtime refuses the model: {reason_of(error)}") from error

    def run(batch: Inputs) -> Arrays:
        return tuple(session.run(None, {INPUT: batch}))

    return Loaded(run=run, ran_in=_ran_in(path), version=onnxruntime.__version__)


def _ran_in(path: Path) -> str:
    """By the nodes of the graph: INT8 where each product has quantized inputs."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    dequantized = {output for node in graph.node if node.op_type == "DequantizeLinear" for output in node.output}
    products = [node for node in graph.node if node.op_type in ("Conv", "MatMul", "Gemm")]
    quantized = [set(node.input[:2]) <= dequantized for node in products]
    return "int8" if products and all(quantized) else "mixed" if any(quantized) else "fp32"
