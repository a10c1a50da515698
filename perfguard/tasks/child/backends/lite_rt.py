"""LiteRT, TensorFlow Lite's runtime, for models that are ready in its format."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from perfguard.records.tasks import ModelPrecision
from perfguard.tasks.child.backends import Loaded, LoadRequest, RefusedError, reason_of
from perfguard.tasks.child.examples import Inputs
from perfguard.tasks.child.postprocessing import Arrays

_TYPES = {np.float32: "fp32", np.int8: "int8", np.uint8: "int8"}


def load(order: LoadRequest) -> Loaded:
    """An interpreter over the file; it takes images whose channels come last, one by one."""
    if order.model.file is None:
        raise RefusedError("the model is not a file of TensorFlow Lite; converting it needs packages of a gigabyte")
    if order.precision is not ModelPrecision.FP32:
        raise RefusedError("the file is computed as it is, in FP32")
    try:
        interpreter = Interpreter(str(order.model.file), num_threads=order.threads)
        interpreter.allocate_tensors()
    except Exception as error:
        raise RefusedError(f"LiteRT refuses the model: {reason_of(error)}") from error
    (source,), outputs = interpreter.get_input_details(), interpreter.get_output_details()

    def answer(image: Inputs) -> Arrays:
        interpreter.set_tensor(source["index"], np.ascontiguousarray(image.transpose(0, 2, 3, 1)))
        interpreter.invoke()
        return tuple(interpreter.get_tensor(each["index"]) for each in outputs)

    def run(batch: Inputs) -> Arrays:
        answered = [answer(batch[row : row + 1]) for row in range(len(batch))]
        return answered[0] if len(answered) == 1 else tuple(map(np.concatenate, zip(*answered, strict=True)))

    return Loaded(run=run, ran_in=_TYPES.get(source["dtype"], "other"), version=version("ai-edge-litert"))
