"""What the sandbox costs a measurement: nothing, in times and in the scatter of blocks.

`make proof-sandbox`: 20 minutes, nothing else running. Gates of this repository's last commit against itself measure
the suite `quick` in paired blocks. In most of them one arm alone is in the sandbox, candidate and baseline by turns, so
that their effect is its cost. In the others both arms are in it, or none: the ratio of their blocks' standard
deviations is what it adds to the scatter. Prints a Markdown table; `-o FILE` writes it as well. Ends with 1 where a
time differs beyond 0.5 % and its interval.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import t as t_distribution

from perfguard.cli import main as perfguard
from perfguard.host.identity import machine_line
from perfguard.host.probe import probe
from perfguard.records.run import Arm
from perfguard.runner.process.forking import ForkServer
from perfguard.runner.process.sandboxing import holder
from perfguard.runner.process.starting import ProcessStarter
from tests.changed_values import replace

REPOSITORY = Path(__file__).parents[2]
ONE_ARM, ALL_OR_NONE = ((Arm.CANDIDATE,), (Arm.BASELINE,)), ((Arm.BASELINE, Arm.CANDIDATE), ())
MARGIN = 0.005


@dataclass(frozen=True)
class Gate:
    """One gate: which arms were in the sandbox, and the effect and scatter of each case, on the log scale."""

    inside: tuple[Arm, ...]
    effects: dict[str, float]
    spreads: dict[str, float]


def measured(inside: tuple[Arm, ...], blocks: int, suite: str) -> Gate:
    """One gate, in a process of its own."""
    names = ",".join(arm.value for arm in inside)
    command = [sys.executable, "-m", "tests.proof.sandbox_cost", "--inside", names, "--", "compare",
               "--baseline", "git:HEAD", "--candidate", "git:HEAD", "--confine", "--measure-anyway",
               "--no-ops", "--suite", suite, "--max-blocks", str(blocks), "--budget", "3600", "-q",
               "--json"]  # fmt: skip
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr)
    estimates = {
        verdict["case_id"]: verdict["comparison"]["estimate"] for verdict in json.loads(done.stdout)["gate"]["verdicts"]
    }
    return Gate(
        inside,
        {case_id: found["log_ratio"] for case_id, found in estimates.items()},
        {case_id: found["block_sd"] for case_id, found in estimates.items()},
    )


def take_out(outside: Sequence[Arm]) -> None:
    """Start the servers of some arms without the sandbox that the gate means for them."""
    start = ProcessStarter._started

    def started(self: ProcessStarter, arm: Arm, hash_seed: int) -> ForkServer:
        if arm not in outside:
            return start(self, arm, hash_seed)
        self._outbox(arm)
        free = replace(self.arms[arm], sandbox=None)
        return start(replace(self, arms={**self.arms, arm: free}), arm, hash_seed)

    ProcessStarter._started = started  # type: ignore[method-assign]


def rows(gates: Sequence[Gate]) -> list[tuple[str, float, float, float]]:
    """Case, ratio of its times less one, half of the interval's width, ratio of its blocks' standard deviations."""
    costs: dict[str, list[float]] = defaultdict(list)
    spreads: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for gate in gates:
        for case_id, effect in gate.effects.items():
            if len(gate.inside) == 1:
                costs[case_id].append(effect if gate.inside == (Arm.CANDIDATE,) else -effect)
            else:
                spreads[case_id][len(gate.inside)].append(gate.spreads[case_id])
    made = []
    for case_id, found in costs.items():
        half = t_distribution.ppf(0.975, len(found) - 1) * statistics.stdev(found) / math.sqrt(len(found))
        outside, inside = (statistics.median(spreads[case_id][count]) for count in (0, 2))
        made.append((case_id, math.expm1(statistics.mean(found)), half, inside / outside if outside else math.nan))
    return made


def page(found: list[tuple[str, float, float, float]], *, rounds: int, blocks: int) -> str:
    """The table."""
    machine, held = probe(), holder()
    how = (
        f"{4 * rounds} gates of {blocks} blocks with one arm inside, {2 * rounds} with both or none, on identical "
        "code. Rerun: `make proof-sandbox`."
    )
    changes = [change for _, change, _, _ in found]
    mean, spread = statistics.mean(changes), statistics.mean(math.log(row[3]) for row in found)
    half = t_distribution.ppf(0.975, len(changes) - 1) * statistics.stdev(changes) / math.sqrt(len(changes))
    lines = [
        "# What the sandbox costs a measurement",
        "",
        f"`{machine.machine_id}`: {machine_line(machine)}. Held by {held.value if held else 'nothing'}. {how}",
        "",
        "| case | time in the sandbox over that outside | 95 % interval | SD of blocks, inside over outside |",
        "|---|---|---|---|",
        *(f"| {case_id.partition('[')[0]} | {1 + change:.4f} | ± {wide:.4f} | {wider:.2f} |"
          for case_id, change, wide, wider in found),
        "",
        f"Over all cases: {1 + mean:.4f} ± {half:.4f}, and {math.exp(spread):.2f} × the scatter.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.sandbox_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="of four gates with one arm inside, and two others")
    parser.add_argument("--blocks", type=int, default=16, help="of each gate")
    parser.add_argument("--suite", default="quick")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        take_out([arm for arm in Arm if arm.value not in options.inside.split(",")])
        perfguard(options.command)
    kinds = [*ONE_ARM, ALL_OR_NONE[0], *ONE_ARM[::-1], ALL_OR_NONE[1]] * options.rounds
    gates = []
    for number, inside in enumerate(kinds, start=1):
        gates.append(measured(inside, options.blocks, options.suite))
        print(f"gate {number} of {len(kinds)}", file=sys.stderr, flush=True)
    found = rows(gates)
    text = page(found, rounds=options.rounds, blocks=options.blocks)
    print(text)
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")
    sys.exit(any(abs(change) > MARGIN + half for _, change, half, _ in found))


if __name__ == "__main__":
    main()
