"""How fast the six focal losses are, forward and with backward, against the reference and the memory's bandwidth.

`make proof-kernels` (`ARGS='--processes N'`) times each variant at 3.2 million logits in fresh processes, pinned, with
perfguard's environment for workers. In a process the variants take turns, and each variant's ratio to the reference is
of the same process. The floor is what the memory alone would take: read logits and targets, write gradients, at the
triad bandwidth of STREAM, measured in the same process. `docs/measurements/focal-loss-<machine_id>.md` gets the
figures. Ends with 1 where the fused operator is slower than its targets. Takes some minutes; nothing else should run.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import mean, median, stdev

from scipy.stats import t as student

from perfguard.host.placement import select_cpus
from perfguard.host.probe import probe
from perfguard.records.plan import EnvProfile
from perfguard.runner.arms.environment import base_environment

ANCHORS, CLASSES = 12_276, 264  # A 256x256 image, OpenImages: 3.2 million logits
LEAST_OF_REFERENCE, LEAST_OF_COMPILED = 7.0, 2.5  # Targets in fp32 on one CPU, forward and backward
TURNS = 15
REPOSITORY = Path(__file__).parents[2]
Seconds = dict[str, float]  # By `variant dtype phase`, and `triad`: bytes a second


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast as another variant, over processes."""

    value: float
    lower: float
    upper: float

    @classmethod
    def of(cls, processes: Sequence[Seconds], variant: str, other: str) -> Ratio:
        """Geometric mean of the processes' ratios with its 95 % interval."""
        logs = [log(seconds[other] / seconds[variant]) for seconds in processes]
        half = student.ppf(0.975, len(logs) - 1) * stdev(logs) / len(logs) ** 0.5
        return cls(exp(mean(logs)), exp(mean(logs) - half), exp(mean(logs) + half))

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.lower:.2f}, {self.upper:.2f}]"


def measure(threads: int) -> Seconds:
    """Median seconds of each variant in this process; they take turns."""
    import torch

    from perfguard.benchmarks import ops
    from perfguard.benchmarks.networks.focal_losses import FOCAL_LOSSES
    from perfguard.worker.profiling.ceilings import measure_streams

    torch.set_num_threads(threads)
    timed: dict[str, Callable[[], object]] = {}
    for dtype in ("fp32", "bf16"):
        for phase in ("forward", "forward+backward"):
            for variant in FOCAL_LOSSES:
                torch.manual_seed(0)
                timed[f"{variant} {dtype} {phase}"] = ops.focal_loss(
                    anchors=ANCHORS, classes=CLASSES, dtype=dtype, phase=phase, variant=variant
                )
    found: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(TURNS + 3):
        for name, call in timed.items():
            started = time.perf_counter()
            call()
            if turn >= 3:
                found[name].append(time.perf_counter() - started)
    streams = {stream.kernel: stream.bytes_per_s for stream in measure_streams(1 << 28)}
    return {**{name: median(values) for name, values in found.items()}, "triad": streams["triad"]}


def in_fresh_process(threads: int, cpus: Sequence[int]) -> Seconds:
    """`measure` in a process of its own on so many CPUs."""
    glibc = tuple(map(int, platform.libc_ver()[1].split(".")[:2]))
    environment = base_environment(os.environ, profile=EnvProfile.STABLE, threads=threads, glibc=glibc)  # type: ignore[arg-type]
    command = ["taskset", "-c", ",".join(map(str, cpus[:threads])), sys.executable, "-m", __spec__.name, "--measure"]
    done = subprocess.run(
        [*command, str(threads)], env={**environment, "PYTHONPATH": str(REPOSITORY)}, cwd=REPOSITORY,
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found: Seconds = json.loads(done.stdout.splitlines()[-1])
    return found


def table(threads: int, processes: Sequence[Seconds]) -> list[str]:
    """The figures of one number of threads, as Markdown."""
    triad = median(seconds["triad"] for seconds in processes)
    lines = [
        f"## {threads} thread{'s' * (threads > 1)}",
        "",
        f"Triad: {triad / 1e9:.1f} GB/s. Times as fast as the reference, with 95 % intervals over processes.",
        "",
        "| variant | dtype | forward | ms | forward+backward | ms | of the memory's floor |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for dtype, width in (("fp32", 4), ("bf16", 2)):
        floor_s = 3 * width * ANCHORS * CLASSES / triad
        for name in (name for name in processes[0] if name.endswith(f"{dtype} forward")):
            variant, both = name.split()[0], f"{name}+backward"
            forward_s, both_s = (median(seconds[key] for seconds in processes) for key in (name, both))
            ratios = [Ratio.of(processes, key, key.replace(variant, "reference", 1)) for key in (name, both)]
            lines.append(
                f"| {variant} | {dtype} | {ratios[0]} | {forward_s * 1e3:.2f} | {ratios[1]} | {both_s * 1e3:.2f} | "
                f"{floor_s / both_s:.0%} |"
            )
    return [*lines, ""]


def verdicts(processes: Sequence[Seconds]) -> Mapping[str, bool]:
    """Each target on one CPU, with whether it was reached."""
    found = {}
    for other, least in (("reference", LEAST_OF_REFERENCE), ("compiled", LEAST_OF_COMPILED)):
        ratio = Ratio.of(processes, "fused fp32 forward+backward", f"{other} fp32 forward+backward")
        found[f"fused against {other}, fp32, forward and backward, one thread: {ratio}, target {least}"] = (
            ratio.value >= least
        )
    return found


def main() -> int:
    """Measure, print, and write the figures beside the other measurements."""
    parser = argparse.ArgumentParser(prog="make proof-kernels", description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=8, help="fresh processes for each number of threads")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return 0
    fingerprint = probe()
    cpus = sorted(os.sched_getaffinity(0))
    chosen = select_cpus(fingerprint, cpus=None, threads=None, numa=None, available=frozenset(cpus)).cpus
    text = [
        f"# Focal losses on `{fingerprint.machine_id}`",
        "",
        f"`make proof-kernels`: {ANCHORS * CLASSES:,} logits, {options.processes} fresh processes, median of {TURNS}",
        "interleaved calls in each. The floor reads logits and targets and writes gradients at triad bandwidth.",
        "",
    ]
    reached: Mapping[str, bool] = {}
    for threads in (1, 2):
        if len(cpus) < threads:
            continue
        processes = [in_fresh_process(threads, chosen if threads == 1 else cpus) for _ in range(options.processes)]
        text += table(threads, processes)
        reached = reached or verdicts(processes)
    text += [f"- {'reached' if is_reached else 'not reached'}: {said}" for said, is_reached in reached.items()]
    print("\n".join(text))
    place = REPOSITORY / "docs" / "measurements" / f"focal-loss-{fingerprint.machine_id}.md"
    place.write_text("\n".join(text) + "\n", encoding="utf-8")
    return 0 if all(reached.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
