"""How long two traces of 1,000,000 events take to be compared, and how much memory: the claim is 5 s and 1 GiB.

`make proof-traces` (`ARGS='--events N --runs N'`) writes two traces as torch.profiler does, of a deep
network trained for some steps, one of them with a copy too many, plain and as gzip. `perfguard profile diff` then
compares them, each time in a fresh process, from the command line to the printed table: wall seconds, and the largest
resident memory of a process; there are two where there are CPUs for them.
`docs/measurements/trace-diff-<machine_id>.md` gets the figures. Ends with 1 where the claim does not hold. Takes some
minutes and 1.5 GB of temporary space; nothing else should run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from perfguard.host.probe import probe
from perfguard.units import format_count
from tests.profile_traces import TraceBuilder, contiguous

BUDGET_S = 5.0
BUDGET_BYTES = 1 << 30
EVENTS = 1_000_000
RUNS = 5
STEPS = 20
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What comparing two traces took."""

    kind: str
    """`plain` or `gzip`."""
    size_bytes: int
    """Of both files."""
    wall_s: tuple[float, ...]
    """Wall seconds of each run."""
    peak_bytes: tuple[int, ...]
    """Largest resident memory of each run."""

    @property
    def is_within(self) -> bool:
        """Whether every run kept to the claim."""
        return max(self.wall_s) <= BUDGET_S and 2 * max(self.peak_bytes) <= BUDGET_BYTES


def main() -> None:
    """Write the traces, compare them in fresh processes, write down what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help="of each trace")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each kind of file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        plain = [Path(place) / "baseline.json", Path(place) / "candidate.json"]
        for path, copies in zip(plain, (0, 1), strict=True):
            write(path, options.events, copies)
        packed = [path.with_suffix(".json.gz") for path in plain]
        for path, target in zip(plain, packed, strict=True):
            target.write_bytes(gzip.compress(path.read_bytes(), compresslevel=6))
        found = [measured(kind, paths, options.runs) for kind, paths in (("plain", plain), ("gzip", packed))]
    lines = report(found, events=options.events)
    if options.events == EVENTS:
        stem = REPOSITORY / "docs" / "measurements" / f"trace-diff-{probe().machine_id}"
        stem.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.exit(0 if all(figures.is_within for figures in found) else 1)


def measured(kind: str, paths: Sequence[Path], runs: int) -> Figures:
    """Compare two traces in fresh processes."""
    taken = [compared(paths) for _ in range(runs)]
    return Figures(
        kind=kind,
        size_bytes=sum(path.stat().st_size for path in paths),
        wall_s=tuple(seconds for seconds, _ in taken),
        peak_bytes=tuple(peak for _, peak in taken),
    )


def compared(paths: Sequence[Path]) -> tuple[float, int]:
    """`perfguard profile diff` once: wall seconds and peak memory.

    Raises:
        SystemExit: It failed, or did not find the copy.
    """
    started = time.monotonic()
    command = [sys.executable, "-m", "perfguard", "profile", "diff", *map(str, paths)]
    with tempfile.TemporaryFile() as output:
        worker = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(worker.pid, 0)
        seconds = time.monotonic() - started
        worker.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode()
    if worker.returncode or "contiguous" not in text:
        raise SystemExit(f"{' '.join(command)} ended with {worker.returncode}: {text[-2000:]}")
    return seconds, usage.ru_maxrss * 1024


def report(found: Sequence[Figures], *, events: int) -> list[str]:
    """The figures as a table."""
    fingerprint = probe()
    lines = [
        "# What comparing two traces takes",
        "",
        f"Made by `make proof-traces` on `{fingerprint.machine_id}` ({fingerprint.cpu.brand}).",
        f"Two traces of {events:,} events each, `perfguard profile diff` from the command line to the printed table,",
        f"each time in a fresh process, {format_count(len(found[0].wall_s), 'run')} a row.",
        f"Claim: at most {BUDGET_S:.0f} s and {BUDGET_BYTES >> 20} MiB. One of two processes reads the second trace.",
        "",
        "| files | size | wall: median, longest | memory: largest process | within |",
        "|---|--:|--:|--:|---|",
    ]
    lines += (
        f"| {row.kind} | {row.size_bytes / 1e6:.0f} MB | {median(row.wall_s):.2f} s, {max(row.wall_s):.2f} s "
        f"| {max(row.peak_bytes) >> 20} MiB | {'yes' if row.is_within else '**no**'} |"
        for row in found
    )
    return lines


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
    main()
