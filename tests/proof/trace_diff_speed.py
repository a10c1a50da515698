"""How long two traces of 1,000,000 events take to be compared, and how much memory: the claim is 5 s and 1 GiB.

`python -m tests.proof.trace_diff_speed [EVENTS]` writes two traces as torch.profiler does, of a deep network trained
for some steps, one of them with a copy too many, plain and as gzip. A fresh process then reads both, nests and places
their events, sums up their ops and compares them. The time is CPU time of one thread, the memory the process's peak.
Ends with 1 where the claim does not hold. Takes a minute and 1.5 GB of temporary space; nothing else should run.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

from tests.profile_traces import TraceBuilder, contiguous

BUDGET_S = 5.0
BUDGET_BYTES = 1 << 30
EVENTS = 1_000_000
STEPS = 20

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    """Write the traces, compare them in a fresh process, print what it took."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    with tempfile.TemporaryDirectory() as place:
        plain = [Path(place) / "baseline.json", Path(place) / "candidate.json"]
        for path, copies in zip(plain, (0, 1), strict=True):
            write(path, events, copies)
        packed = [path.with_suffix(".json.gz") for path in plain]
        for path, target in zip(plain, packed, strict=True):
            target.write_bytes(gzip.compress(path.read_bytes(), compresslevel=6))
        results = [measured("plain", plain), measured("gzip", packed)]
    sys.exit(0 if all(results) else 1)


def measured(kind: str, paths: list[Path]) -> bool:
    """Compare two traces in a fresh process; whether that was quick and small enough."""
    size_mb = sum(path.stat().st_size for path in paths) / 1e6
    done = subprocess.run(
        [sys.executable, "-m", "tests.proof.trace_diff_speed", "--child", *map(str, paths)],
        env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    stages = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in found["stages_s"].items())
    total_s = sum(found["stages_s"].values())
    say(f"{kind}: {found['events']} events, {size_mb:.0f} MB, {found['keys']} kinds of ops")
    say(f"  {total_s:.2f} s of {BUDGET_S:.0f} s ({stages})")
    say(f"  {found['peak_bytes'] / 2**20:.0f} MiB of {BUDGET_BYTES / 2**20:.0f} MiB")
    return total_s <= BUDGET_S and found["peak_bytes"] <= BUDGET_BYTES


def say(line: str) -> None:
    """One line of the report."""
    sys.stdout.write(line + "\n")


def child(paths: list[Path]) -> None:
    """Compare two traces and print what each stage took."""
    import numpy as np

    from perfguard.profile.arm_profile import ArmProfile, EventCost
    from perfguard.profile.diff import diff_ops
    from perfguard.profile.op_profile import profile_of
    from perfguard.profile.trace import read_trace

    stages_s = {"read": 0.0, "profile": 0.0, "diff": 0.0}
    events, arms = [], []
    for path in paths:
        start = process_time()
        trace = read_trace(path)
        stages_s["read"] += process_time() - start
        events.append(len(trace))
        start = process_time()
        profile = profile_of(trace)
        stages_s["profile"] += process_time() - start
        del trace
        nothing = np.zeros(0)
        arms.append(
            ArmProfile(
                profile=profile,
                bare_s=nothing,
                bare_thread_s=nothing,
                bare_process=nothing.astype(np.int64),
                implementations={},
                event_cost=EventCost(),
            )
        )
    start = process_time()
    diff = diff_ops(*arms)
    stages_s["diff"] = process_time() - start
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"stages_s": stages_s, "events": events, "keys": len(diff.ops.keys), "peak_bytes": peak_bytes}
    json.dump(found, sys.stdout)


def write(path: Path, events: int, copies: int) -> None:
    """A trace with that many entries, laid out as Kineto does; steps differ by their speed and their numbers."""
    layer = len(step_of(2, 0).events) - len(step_of(1, 0).events)
    builder = step_of(ceil(events / STEPS / layer), copies)
    entries = [encoded(entry) for entry in builder.events]
    speeds = Random(0)
    with path.open("w", encoding="utf-8") as file:
        file.write(HEAD)
        start_us, left = 4378374379.27, events - 1
        for step in range(STEPS):
            slowness = speeds.uniform(1, 1.1)
            file.writelines(entry.text(start_us, slowness, step) for entry in entries[:left])
            start_us += slowness * (builder.now_us + 1000)
            left -= min(left, len(entries))
        file.write('\n  ],\n  "traceName": "trace.json"\n}')


HEAD = """ {
    "schemaVersion": 1,
    "deviceProperties": [],
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1700000000000000000,
    "traceEvents": [
  {
    "ph": "M",
    "name": "process_name",
    "ts": 0.000,
    "pid": 27116,
    "tid": 0,
    "args": {
      "name": "python"
    }
  }"""
ENTRY = """,
  {{
    {start},
    "ts": {ts:.3f},
    "dur": {dur:.3f}
    ,
    "args": {{
      {arguments}
    }}
  }}"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a step, encoded but for what differs between steps."""

    start: str
    ts: float
    dur: float
    sequence: int | None
    arguments: str

    def text(self, start_us: float, slowness: float, step: int) -> str:
        """The entry of one of the steps."""
        number = "" if self.sequence is None else f'"Sequence number": {self.sequence + step * 100_000}, '
        return ENTRY.format(
            start=self.start,
            ts=start_us + slowness * self.ts,
            dur=slowness * self.dur,
            arguments=number + self.arguments,
        )


def encoded(entry: dict[str, Any]) -> Entry:
    """An entry of a builder."""
    arguments = dict(entry["args"])
    start = ",\n    ".join(f'"{name}": {json.dumps(entry[name])}' for name in ("ph", "cat", "name", "pid", "tid"))
    return Entry(
        start=start,
        ts=entry["ts"],
        dur=entry["dur"],
        sequence=arguments.pop("Sequence number", None),
        arguments=json.dumps(arguments)[1:-1],
    )


def step_of(layers: int, copies: int) -> TraceBuilder:
    """One step of a network of convolutions with norms, updated parameter by parameter."""
    trace = TraceBuilder()
    with trace.step():
        with trace.module("Net"):
            for layer in range(layers):
                forward(trace, layer, copies if layer == layers // 2 else 0)
        for layer in reversed(range(layers)):
            backward(trace, layer)
        with trace.span("Optimizer.step#Adam.step"):
            for layer in range(layers):
                update(trace, layer)
    return trace


def tensors(layer: int) -> tuple[list[int], list[int]]:
    """Shapes of a layer's activations and weights; there are few different ones."""
    width = 64 << (layer % 16 // 4)
    return [32, width, 3584 // width, 3584 // width], [width, width, 3, 3]


def forward(trace: TraceBuilder, layer: int, copies: int) -> None:
    """A convolution, a norm and what makes them up."""
    image, weight = tensors(layer)
    first = 3 * layer
    path = f"Net.stage{layer // 16}.{layer % 16}"
    with trace.module(path):
        with trace.module(f"{path}.conv"):
            for _ in range(copies):
                trace.leaf("aten::contiguous", 40, shapes=[image])
            convolution = [image, weight, [], [], [], [], [], [], []]
            types = ["float", "float", "", "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar"]
            strides = [contiguous(image), contiguous(weight), *([[]] * 7)]
            arguments = {"sequence": first, "shapes": convolution, "types": types, "strides": strides}
            names = ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::mkldnn_convolution")
            with ExitStack() as stack:
                for name in names:
                    stack.enter_context(trace.op(name, us=2, **arguments))
                trace.leaf("aten::empty", 3, shapes=[[]] * 6, types=["ScalarList", "Scalar", "", "", "Scalar", ""])
                trace.wait(300)
        with trace.module(f"{path}.norm"), trace.op("aten::batch_norm", us=2, sequence=first + 1, shapes=[image]):
            with trace.op("aten::native_batch_norm", us=80, sequence=first + 1, shapes=[image]):
                for _ in range(4):
                    trace.leaf("aten::empty_like", 3, shapes=[image])
        trace.leaf("aten::relu_", 30, sequence=first + 2, shapes=[image])


def backward(trace: TraceBuilder, layer: int) -> None:
    """The gradients of a layer, and their accumulation."""
    image, weight = tensors(layer)
    first = 3 * layer
    with trace.gradient("ReluBackward0", first + 2, us=2):
        trace.leaf("aten::threshold_backward", 30, shapes=[image, image])
    with trace.gradient("NativeBatchNormBackward0", first + 1, us=2):
        trace.leaf("aten::native_batch_norm_backward", 120, shapes=[image, image, weight[:1]])
    with trace.gradient("ConvolutionBackward0", first, us=2):
        trace.leaf("aten::convolution_backward", 600, shapes=[image, image, weight])
    for shape in (weight[:1], weight):
        with trace.gradient("torch::autograd::AccumulateGrad", None, us=2):
            trace.leaf("aten::detach", 2, shapes=[shape])


def update(trace: TraceBuilder, layer: int) -> None:
    """Adam without fusion."""
    _, weight = tensors(layer)
    for shape in (weight[:1], weight):
        for name in ("lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_"):
            trace.leaf(f"aten::{name}", 8, shapes=[shape, shape])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child([Path(argument) for argument in sys.argv[2:]])
    else:
        main()
