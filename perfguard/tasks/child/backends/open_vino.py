"""OpenVINO on the CPU, from the ONNX model."""

from __future__ import annotations

import numpy as np
import openvino

from perfguard.records.tasks import ModelPrecision
from perfguard.tasks.child.backends import Loaded, LoadRequest, RefusedError, reason_of
from perfguard.tasks.child.examples import Inputs
from perfguard.tasks.child.exporting import onnx_model, quantized_onnx_model
from perfguard.tasks.child.postprocessing import Arrays

_HINTS = {ModelPrecision.FP32: "f32", ModelPrecision.BF16: "bf16", ModelPrecision.INT8: "f32"}
"""What is not quantized is computed in; an INT8 model is one already."""
_NAMES = {"f32": "fp32", "bf16": "bf16", "f16": "fp16", "i8": "int8", "u8": "int8"}
_COMPUTING = ("Convolution", "FullyConnected", "MatMul", "GroupConvolution")


def load(order: LoadRequest) -> Loaded:
    """The compiled model, with its precision set: OpenVINO's own choice is BF16 where the CPU has it. INT8 is QDQ."""
    is_int8 = order.precision is ModelPrecision.INT8
    model = openvino.Core().read_model(quantized_onnx_model(order) if is_int8 else onnx_model(order))
    settings = {
        "INFERENCE_PRECISION_HINT": _HINTS[order.precision],
        "INFERENCE_NUM_THREADS": order.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    try:
        with order.stages.stage("compile"):
            compiled = openvino.compile_model(model, "CPU", settings)
    except Exception as error:
        raise RefusedError(f"OpenVINO refuses the model: {reason_of(error)}") from error
    request = compiled.create_infer_request()

    def run(batch: Inputs) -> Arrays:
        request.infer([batch], share_inputs=True)
        return tuple(np.array(request.get_output_tensor(index).data) for index in range(len(compiled.outputs)))

    return Loaded(run=run, ran_in=_ran_in(compiled), version=openvino.__version__.partition("-")[0])


def _ran_in(compiled: openvino.CompiledModel) -> str:
    """By the precision that the executable graph reports for what computes most."""
    found = set()
    for node in compiled.get_runtime_model().get_ops():
        about = node.get_rt_info()
        if str(about["layerType"].value if "layerType" in about else "") in _COMPUTING:
            found.add(_NAMES.get(str(about["runtimePrecision"].value).lower(), "other"))
    return found.pop() if len(found) == 1 else "mixed" if found else "unknown"
