"""Chrome traces as torch.profiler writes them, with events and times of a test's choice."""

from __future__ import annotations

import gzip
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GRADIENT = "autograd::engine::evaluate_function: "


class TraceBuilder:
    """Events of a clock that only `wait` moves; what happens inside a `with` lies in its event.

    ```
    trace = TraceBuilder()
    with trace.step(), trace.module("Net"), trace.op("aten::conv2d", shapes=[[2, 3, 8, 8], [4, 3, 3, 3]]):
        trace.wait(30)
    ```
    """

    def __init__(self, *, start_us: float = 1000.0) -> None:
        self.now_us = start_us
        self.thread = 1
        self.events: list[dict[str, Any]] = []
        self.head: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [],
            "baseTimeNanoseconds": 1_700_000_000_000,
        }

    def wait(self, us: float) -> None:
        self.now_us = round(self.now_us + us, 3)

    @contextmanager
    def span(self, name: str, category: str = "user_annotation", **arguments: Any) -> Iterator[None]:
        """An event around what happens inside; it is written before that, as Kineto does."""
        event = {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": 7,
            "tid": self.thread,
            "ts": self.now_us,
            "dur": 0.0,
            "args": {"Ev Idx": len(self.events), **arguments},
        }
        self.events.append(event)
        yield
        event["dur"] = round(self.now_us - event["ts"], 3)

    def step(self):
        return self.span("perfguard::step")

    def module(self, path: str):
        return self.span(f"module:{path}")

    def frame(self, name: str):
        return self.span(name, "python_function")

    def line(self, source: str) -> None:
        """The mark that what comes next is run by a line; empty where the user's code is left."""
        with self.span(f"perfguard::line:{source}", "cpu_op"):
            pass

    @contextmanager
    def op(self, name: str, *, us: float = 0.0, sequence: int | None = None, **tensors: Any) -> Iterator[None]:
        """An op; `us` pass before what happens inside. `tensors` are those of `tensors_of`."""
        numbers = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": 0}
        with self.span(name, "cpu_op", **numbers, **tensors_of(**tensors)):
            self.wait(us)
            yield

    def leaf(self, name: str, us: float, **arguments: Any) -> None:
        """An op with nothing below it."""
        with self.op(name, us=us, **arguments):
            pass

    @contextmanager
    def gradient(self, node: str, sequence: int | None, *, us: float = 0.0) -> Iterator[None]:
        """What autograd's engine writes around the backward of an op: its own event and the node's."""
        numbers = {} if sequence is None else {"Sequence number": sequence}
        with self.span(f"{GRADIENT}{node}", "cpu_op", **numbers):
            thread = {} if sequence is None else {"Fwd thread id": 1}
            with self.span(node, "cpu_op", **numbers, **thread):
                self.wait(us)
                yield

    def allocation(self, size_bytes: int, device: int = 0) -> None:
        """What profile_memory adds; a negative size gives memory back."""
        self.events.append(
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "s": "t",
                "name": "[memory]",
                "pid": 7,
                "tid": self.thread,
                "ts": self.now_us,
                "args": {"Bytes": size_bytes, "Addr": 94, "Device Id": -1, "Device Type": device},
            }
        )

    def text(self) -> str:
        """The file, laid out as Kineto does it: indented, its own fields before and after the events."""
        head = json.dumps(self.head)[1:-1]
        events = ",\n  ".join(json.dumps(event) for event in self.events)
        return f'\n  {{\n    {head},\n  "traceEvents": [\n  {events}\n  ],\n  "traceName": "trace.json"\n}}'

    def write(self, path: Path) -> Path:
        """Gzip where the name says so."""
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


def tensors_of(
    shapes: list[Any] | None = None, types: list[str] | None = None, strides: list[Any] | None = None
) -> dict[str, Any]:
    """Arguments of an op; types are float and strides contiguous where they are not given."""
    if shapes is None:
        return {}
    return {
        "Concrete Inputs": [""] * len(shapes),
        "Input type": types or ["float"] * len(shapes),
        "Input Strides": strides or [contiguous(shape) for shape in shapes],
        "Input Dims": shapes,
    }


def contiguous(shape: list[int]) -> list[int]:
    """Strides of a dense tensor with the last dimension the fastest."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


def training_step(trace: TraceBuilder, *, first_sequence: int = 0) -> None:
    """A step of a small model, 200 us: the batch, a convolution, a loss, their gradients, clipping, the update."""
    image, weight, out = [2, 3, 8, 8], [4, 3, 3, 3], [2, 4, 6, 6]
    with trace.step():
        trace.wait(1)
        trace.leaf("aten::randn", 9)
        with trace.module("Net"):
            trace.wait(2)
            with trace.module("Net.conv"):
                trace.wait(3)
                with trace.op("aten::conv2d", us=4, sequence=first_sequence, shapes=[image, weight]):
                    trace.leaf("aten::convolution", 30, sequence=first_sequence, shapes=[image, weight])
                trace.wait(1)
        trace.wait(2)
        with trace.module("MSELoss"):
            trace.leaf("aten::mse_loss", 10, sequence=first_sequence + 1, shapes=[out, out])
        trace.wait(3)
        trace.leaf("aten::ones_like", 5, shapes=[[]])
        with trace.gradient("MseLossBackward0", first_sequence + 1, us=1):
            trace.leaf("aten::mse_loss_backward", 14, shapes=[[], out, out])
        trace.wait(2)
        with trace.gradient("ConvolutionBackward0", first_sequence, us=2):
            trace.leaf("aten::convolution_backward", 60, shapes=[out, image, weight])
        with trace.gradient("torch::autograd::AccumulateGrad", None, us=1):
            trace.leaf("aten::detach", 2, shapes=[weight])
        trace.wait(4)
        trace.leaf("aten::linalg_vector_norm", 8, shapes=[weight])
        with trace.span("Optimizer.step#Adam.step"):
            trace.wait(6)
            trace.leaf(
                "aten::_fused_adam_", 20, shapes=[[weight]], types=["TensorList"], strides=[[contiguous(weight)]]
            )
        with trace.span("Optimizer.zero_grad#Adam.zero_grad"):
            trace.wait(5)
        trace.wait(5)
