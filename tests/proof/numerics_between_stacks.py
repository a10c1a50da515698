"""How far legitimate settings move what a case computes: the evidence behind docs/decisions/0004.

`python tests/proof/numerics_between_stacks.py [SEEDS [PREFIX]]` sets every eager case of the catalogue (whose name
begins so) up under the same seeds in fresh processes with other instruction sets and thread counts, and calls it some
times, the last time on inputs of its own. It prints, for each dtype and check, the largest relative difference to the
default and the cases that come nearest to it. Needs torch; takes half an hour.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import perfguard

VARIANTS = {
    "default": {"OMP_NUM_THREADS": "1"},
    "two threads": {"OMP_NUM_THREADS": "2"},
    "oneDNN AVX2": {"OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "ATen AVX2": {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "avx2"},
    "MKL AVX2": {"OMP_NUM_THREADS": "1", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "oneDNN off": {"OMP_NUM_THREADS": "1", "TORCH_MKLDNN_OFF": "1"},
}
"""Environments that compute the same thing by other instructions or in another order."""

BIGGEST = ("size=1024", "image_size=224", "image_size=256", "hidden=768", "batch=2048", "rows=1000000", "classes=30522")
"""Parameters of cases that have a smaller sibling and are left out for time."""

CALLS = 12  # On the inputs of set-up, before those on others


def main() -> None:
    """Run the variants, compare, print."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    prefix = sys.argv[2] if len(sys.argv) > 2 else ""
    found = {name: run_variant(variables, seeds, prefix) for name, variables in VARIANTS.items()}
    for name in list(VARIANTS)[1:]:
        say(f"\n{name}")
        report(found["default"], found[name])
    if "kernel.optimizer".startswith(prefix):
        say("\nfused and foreach against for-loop")
        report(*optimizers(found["default"]))


def say(line: str) -> None:
    """One line of the report."""
    sys.stdout.write(line + "\n")


def run_variant(variables: dict[str, str], seeds: int, prefix: str) -> dict[str, list[dict[str, float]]]:
    """Checks of each case and seed, from a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", str(seeds), prefix],
        env={**os.environ, **variables, "PYTHONPATH": str(Path(perfguard.__file__).parent.parent)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def child(seeds: int, prefix: str) -> None:
    """Set every case up and print what its first call computes."""
    import torch

    from perfguard.benchmarks.catalog import BENCHMARKS
    from perfguard.records.spec import expand

    if os.environ.get("TORCH_MKLDNN_OFF"):
        torch.backends.mkldnn.enabled = False
    found: dict[str, list[dict[str, float]]] = {}
    for spec in BENCHMARKS:
        for case in expand(spec):
            parameters = dict(case.parameters)
            # Tasks and heterogeneous training are judged by their quality.
            is_apart = case.id.startswith(("task.", "hetero.")) or not case.id.startswith(prefix)
            if is_apart or parameters.get("mode") == "compile" or any(big in case.id for big in BIGGEST):
                continue
            described = {
                "id": case.id.partition(",mode=")[0] if spec.name == "kernel.optimizer" else case.id,
                "target": case.target,
                "parameters": parameters,
                "phase": case.phase.value,
            }
            try:
                found[case.id] = [checks_of_case(described, seed) for seed in range(seeds)]
            except RuntimeError as error:  # a bf16 LSTM, for one, has no oneDNN kernel for AVX2
                sys.stderr.write(f"{case.id} cannot run here: {error}\n")
    json.dump(found, sys.stdout)


def checks_of_case(described: dict, seed: int) -> dict[str, float]:
    """What a case computes in its first call, and later on other inputs."""
    from perfguard.worker.cases import prepare_case
    from perfguard.worker.results import TimedLook

    prepared = prepare_case(described, seed=seed, check=False)
    (call,) = prepared.calls
    for _ in range(CALLS):
        call()
    look = TimedLook(call, seed=1000 + seed, case_id=described["id"])
    return {**prepared.checks, **(look.checks(call(), seed=2000 + seed) if look.is_varied else {})}


def optimizers(found: dict[str, list[dict[str, float]]]) -> tuple[dict, dict]:
    """The loop's checks and those of the other implementations, under the names of the latter."""
    loops, others = {}, {}
    for case_id, values in found.items():
        for mode in ("foreach", "fused"):
            if case_id.startswith("kernel.optimizer") and f"mode={mode}" in case_id:
                others[case_id], loops[case_id] = values, found[case_id.replace(f"mode={mode}", "mode=for-loop")]
    return loops, others


def report(before: dict[str, list[dict[str, float]]], after: dict[str, list[dict[str, float]]]) -> None:
    """For each dtype and check: the largest median difference over the seeds, and the cases with the three largest."""
    largest: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for case_id in before.keys() & after.keys():
        seeds = after[case_id]
        dtype = "bf16" if "dtype=bf16" in case_id else "fp32"
        for name in seeds[0]:
            pairs = [(old[name], new[name]) for old, new in zip(before[case_id], seeds, strict=True)]
            moved = median(abs(b - a) / max(abs(a), abs(b)) if a != b else 0.0 for a, b in pairs)
            largest.setdefault((dtype, name), []).append((moved, case_id))
    for (dtype, name), cases in sorted(largest.items()):
        cases.sort(reverse=True)
        top = ", ".join(f"{case_id} {moved:.1e}" for moved, case_id in cases[:3])
        say(f"  {dtype} {name:14s} {cases[0][0]:.1e} of {len(cases):3d} cases: {top}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]), sys.argv[3])
    else:
        main()
