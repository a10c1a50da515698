"""Models in TensorFlow Lite's format as modules of PyTorch.

Six kinds of operators, which detectors of the MobileNet family are made of: convolutions, depthwise convolutions, sums,
reshapes, concatenations, and weights in half precision. Anything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from perfguard.errors import UsageError
from perfguard.tasks.child.networks.layers import same_padding

_TYPES = {0: np.float32, 1: np.float16, 2: np.int32}
_SAME = 0
_RELU, _RELU6 = 1, 3

Values = dict[int, torch.Tensor]
"""Tensors by their number in the file: images as `(batch, channels, height, width)`, all others as they are there."""


def import_tflite(path: Path) -> nn.Module:
    """The module of a file; its input is `(batch, 3, height, width)`, its outputs those of the file.

    Raises:
        UsageError: It is no such file, or has an operator that is not imported.
    """
    try:
        import tflite
    except ImportError as error:
        raise UsageError(f"reading {path.name} needs the package tflite ({error}); install perfguard[tasks]") from error
    content = path.read_bytes()
    if content[4:8] != b"TFL3":
        raise UsageError(f"{path} is no model of TensorFlow Lite")
    try:
        return _Graph(tflite.Model.GetRootAsModel(content, 0)).module()
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} cannot be imported: {error}") from error


class Padded(nn.Module):
    """A convolution that pads as TensorFlow does: where it does not come out even, more at the right and the bottom."""

    def __init__(self, convolution: nn.Conv2d, activation: int, *, same: bool) -> None:
        super().__init__()
        self.convolution, self.activation, self.same = convolution, activation, same

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Convolve and cut off."""
        if self.same:
            images = functional.pad(images, self._padding(images.shape[-2], images.shape[-1]))
        result: torch.Tensor = self.convolution(images)
        if self.activation == _RELU6:
            return functional.relu6(result)
        return functional.relu(result) if self.activation == _RELU else result

    def _padding(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Left, right, top, bottom."""
        sides: list[int] = []
        for size, kernel, stride in zip(
            (width, height), self.convolution.kernel_size[::-1], self.convolution.stride[::-1], strict=True
        ):
            sides += same_padding(size, kernel, stride)
        return sides[0], sides[1], sides[2], sides[3]


@dataclass(frozen=True, slots=True)
class Step:
    """One operator: what it takes, what it gives, and how."""

    inputs: tuple[int, ...]
    output: int
    run: Callable[..., torch.Tensor]


class Imported(nn.Module):
    """The operators of a file, one after the other."""

    def __init__(self, steps: list[Step], convolutions: dict[str, nn.Module], source: int, outputs: list[int]) -> None:
        super().__init__()
        self.convolutions = nn.ModuleDict(convolutions)
        self._steps, self._source, self._outputs = steps, source, outputs

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Images `(batch, 3, height, width)` to the outputs of the file."""
        values: Values = {self._source: images}
        for step in self._steps:
            values[step.output] = step.run(*(values[number] for number in step.inputs))
        return tuple(values[number] for number in self._outputs)


@dataclass(slots=True)
class _Graph:
    model: Any
    steps: list[Step] = field(default_factory=list)
    convolutions: dict[str, nn.Module] = field(default_factory=dict)
    constants: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)
    images: set[int] = field(default_factory=set)  # Tensors whose channels come first here and last in the file

    def module(self) -> nn.Module:
        """The whole graph."""
        graph = self.model.Subgraphs(0)
        for number in range(graph.TensorsLength()):
            self._read_constant(graph, number)
        source = int(graph.Inputs(0))
        self.images.add(source)
        for number in range(graph.OperatorsLength()):
            self._add(graph, graph.Operators(number))
        outputs = [int(graph.Outputs(number)) for number in range(graph.OutputsLength())]
        return Imported(self.steps, self.convolutions, source, outputs)

    def _read_constant(self, graph: Any, number: int) -> None:
        tensor = graph.Tensors(number)
        data = self.model.Buffers(tensor.Buffer()).DataAsNumpy()
        if isinstance(data, np.ndarray) and data.size:
            shape = tensor.ShapeAsNumpy() if tensor.ShapeLength() else ()
            self.constants[number] = np.frombuffer(data.tobytes(), _TYPES[tensor.Type()]).reshape(shape)

    def _add(self, graph: Any, operator: Any) -> None:
        import tflite

        codes = tflite.BuiltinOperator
        about = self.model.OperatorCodes(operator.OpcodeIndex())
        code = max(about.BuiltinCode(), about.DeprecatedBuiltinCode())
        inputs, output = [int(each) for each in operator.InputsAsNumpy()], int(operator.OutputsAsNumpy()[0])
        options = operator.BuiltinOptions()
        if code == codes.DEQUANTIZE:
            self.constants[output] = self.constants[inputs[0]].astype(np.float32)
        elif code == codes.CONV_2D:
            found = tflite.Conv2DOptions()
            found.Init(options.Bytes, options.Pos)
            self._convolve(inputs, output, found, is_depthwise=False)
        elif code == codes.DEPTHWISE_CONV_2D:
            found = tflite.DepthwiseConv2DOptions()
            found.Init(options.Bytes, options.Pos)
            self._convolve(inputs, output, found, is_depthwise=True)
        elif code == codes.ADD:
            self.steps.append(Step(tuple(inputs), output, torch.add))
            self.images.add(output)
        elif code == codes.RESHAPE:
            shape = [int(size) for size in graph.Tensors(output).ShapeAsNumpy()][1:]
            run = _reshaped_images if inputs[0] in self.images else _reshaped
            self.steps.append(Step((inputs[0],), output, _with_shape(run, shape)))
        elif code == codes.CONCATENATION:
            found = tflite.ConcatenationOptions()
            found.Init(options.Bytes, options.Pos)
            self.steps.append(Step(tuple(inputs), output, _joined(int(found.Axis()))))
        else:
            name = next(name for name, value in vars(codes).items() if value == code)
            raise ValueError(f"the operator {name} is not imported")

    def _convolve(self, inputs: list[int], output: int, options: Any, *, is_depthwise: bool) -> None:
        weight, bias = (torch.from_numpy(np.array(self.constants[number])) for number in inputs[1:3])
        # Files have (out, height, width, in); of depthwise ones (1, height, width, channels).
        weight = weight.permute(3, 0, 1, 2) if is_depthwise else weight.permute(0, 3, 1, 2)
        made = nn.Conv2d(
            weight.shape[0] if is_depthwise else weight.shape[1],
            weight.shape[0],
            (weight.shape[2], weight.shape[3]),
            stride=(int(options.StrideH()), int(options.StrideW())),
            groups=weight.shape[0] if is_depthwise else 1,
        )
        with torch.no_grad():
            made.weight.copy_(weight)
            assert made.bias is not None  # noqa: S101 - made with one
            made.bias.copy_(bias)
        layer = Padded(made, int(options.FusedActivationFunction()), same=options.Padding() == _SAME)
        self.convolutions[str(output)] = layer
        self.steps.append(Step((inputs[0],), output, layer))
        self.images.add(output)


def _reshaped_images(images: torch.Tensor, shape: list[int]) -> torch.Tensor:
    return images.permute(0, 2, 3, 1).reshape(-1, *shape)


def _reshaped(values: torch.Tensor, shape: list[int]) -> torch.Tensor:
    return values.reshape(-1, *shape)


def _with_shape(
    run: Callable[[torch.Tensor, list[int]], torch.Tensor], shape: list[int]
) -> Callable[..., torch.Tensor]:
    return lambda values: run(values, shape)


def _joined(axis: int) -> Callable[..., torch.Tensor]:
    return lambda *parts: torch.cat(parts, dim=axis)
