"""What the sandbox costs a measurement: nothing, in medians and in the scatter of blocks.

`make proof-sandbox`: 20 minutes, nothing else running. Gates of this repository against itself measure the
suite `quick` in turns, without a sandbox and in one. Of each case and kind: the ratio of the medians with a 95 %
interval over the gates, and the ratio of the standard deviations of blocks. Prints a Markdown table; `-o FILE` writes
it as well. Ends with 1 where a median differs beyond 0.5 % and its interval.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from scipy.stats import t as t_distribution

from perfguard.host.identity import machine_line
from perfguard.host.probe import probe
from perfguard.runner.process.sandboxing import holder

REPOSITORY = Path(__file__).parents[2]
KINDS = ("--no-confine", "--confine")
MARGIN = 0.005


def gate(kind: str, blocks: int, suite: str) -> dict[str, Any]:
    """One gate of the same code on both sides: as many blocks, and no verdict is asked for."""
    command = [sys.executable, "-m", "perfguard", "compare", "--baseline", "git:HEAD", "--candidate", "git:HEAD", kind,
               "--measure-anyway", "--no-ops", "--suite", suite, "--max-blocks", str(blocks), "--budget", "3600",
               "--no-progress", "--format", "json"]  # fmt: skip
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(results: dict[str, list[dict[str, Any]]]) -> list[tuple[str, float, float, float]]:
    """Case, ratio of its medians, half of the interval's width, ratio of its blocks' standard deviations."""
    logs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    spreads: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for kind, gates in results.items():
        for found in gates:
            for verdict in found["gate"]["verdicts"]:
                compared = verdict["comparison"]
                both = compared["baseline_median_s"] * compared["candidate_median_s"]
                logs[verdict["case_id"]][kind].append(math.log(both) / 2)
                spreads[verdict["case_id"]][kind].append(compared["estimate"]["block_sd"])
    made = []
    for case_id, by_kind in logs.items():
        pairs = [inside - outside for outside, inside in zip(*(by_kind[kind] for kind in KINDS), strict=True)]
        half = t_distribution.ppf(0.975, len(pairs) - 1) * statistics.stdev(pairs) / math.sqrt(len(pairs))
        outside, inside = (statistics.median(spreads[case_id][kind]) for kind in KINDS)
        made.append((case_id, math.expm1(statistics.mean(pairs)), half, inside / outside if outside else math.nan))
    return made


def page(found: list[tuple[str, float, float, float]], *, gates: int, blocks: int) -> str:
    """The table."""
    machine, held = probe(), holder()
    how = f"{gates} gates of {blocks} blocks of each kind, in turns, on identical code. Rerun: `make proof-sandbox`."
    ratio, spread = statistics.mean(row[1] for row in found), statistics.mean(math.log(row[3]) for row in found)
    lines = [
        "# What the sandbox costs a measurement",
        "",
        f"`{machine.machine_id}`: {machine_line(machine)}. Held by {held.value if held else 'nothing'}. {how}",
        "",
        "| case | time in the sandbox over that outside | 95 % interval | SD of blocks, inside over outside |",
        "|---|---|---|---|",
    ]
    for case_id, change, half, wider in found:
        lines.append(f"| {case_id.partition('[')[0]} | {1 + change:.4f} | ± {half:.4f} | {wider:.2f} |")
    return "\n".join([*lines, "", f"Over all cases: {1 + ratio:.4f}, and {math.exp(spread):.2f} × the scatter.", ""])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.sandbox_cost", description=__doc__)
    parser.add_argument("--gates", type=int, default=6, help="of each kind")
    parser.add_argument("--blocks", type=int, default=8, help="of each gate")
    parser.add_argument("--suite", default="quick")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for number in range(options.gates):
        for kind in KINDS if number % 2 else KINDS[::-1]:
            results[kind].append(gate(kind, options.blocks, options.suite))
            print(f"gate {number + 1} of {options.gates}, {kind}", file=sys.stderr, flush=True)
    found = rows(results)
    text = page(found, gates=options.gates, blocks=options.blocks)
    print(text)
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")
    sys.exit(any(abs(ratio) > MARGIN + half for _, ratio, half, _ in found))


if __name__ == "__main__":
    main()
