"""Models in files of other frameworks."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from perfguard.tasks.child.backends import LoadRequest, RefusedError, reason_of
from perfguard.tasks.child.examples import Inputs

OPSET = 20
INPUT = "input"
"""Name of the models' only input."""


def onnx_model(order: LoadRequest) -> Path:
    """The model as ONNX with a free batch size and one input, `input`; exported once and kept.

    Raises:
        RefusedError: It cannot be exported.
    """
    return order.kept(
        "export", f"torch{torch.__version__.partition('+')[0]}.onnx", lambda target: _export(order, target)
    )


def _export(order: LoadRequest, target: Path) -> None:
    try:
        # Two examples: of one, torch.export makes a constant.
        example = torch.from_numpy(order.example).repeat(2, *([1] * (order.example.ndim - 1)))
        with contextlib.redirect_stdout(io.StringIO()):
            torch.onnx.export(
                order.model.module,
                (example,),
                target,
                input_names=[INPUT],
                dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
                opset_version=OPSET,
                external_data=False,
                dynamo=True,
            )
    except ImportError as error:
        raise RefusedError(f"the export needs onnxscript ({error}); install perfguard[tasks]") from error
    except Exception as error:
        raise RefusedError(f"the model cannot be exported to ONNX: {reason_of(error.__cause__ or error)}") from error


def quantized_onnx_model(order: LoadRequest) -> Path:
    """The model as ONNX in INT8 with QDQ nodes, calibrated with the examples for it; quantized once and kept.

    Raises:
        RefusedError: It cannot be exported or quantized.
    """
    source = onnx_model(order)
    return order.kept("quantize", "int8.onnx", lambda target: _quantize(order, source, target))


def _quantize(order: LoadRequest, source: Path, target: Path) -> None:
    try:
        from onnxruntime import quantization
    except ImportError as error:
        raise RefusedError(f"quantizing needs ONNX Runtime ({error}); install perfguard[onnxruntime]") from error
    try:
        quantization.quantize_static(
            str(source),
            str(target),
            _CalibrationReader(order.calibration),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
        )
    except Exception as error:
        raise RefusedError(f"the model cannot be quantized: {reason_of(error)}") from error


class _CalibrationReader:
    """Calibration examples one by one, as ONNX Runtime asks for them."""

    def __init__(self, examples: Inputs) -> None:
        self._rows: Iterator[Inputs] = iter(np.split(examples, len(examples)))

    def get_next(self) -> dict[str, Inputs] | None:
        """The next one; None at the end."""
        row = next(self._rows, None)
        return None if row is None else {INPUT: row}
