"""Models in files of other frameworks."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import torch

from perfguard.tasks.child.backends import LoadRequest, RefusedError, reason_of

OPSET = 20


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
                input_names=["input"],
                dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
                opset_version=OPSET,
                external_data=False,
                dynamo=True,
            )
    except ImportError as error:
        raise RefusedError(f"the export needs onnxscript ({error}); install perfguard[tasks]") from error
    except Exception as error:
        raise RefusedError(f"the model cannot be exported to ONNX: {reason_of(error.__cause__ or error)}") from error
