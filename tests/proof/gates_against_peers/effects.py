"""Whether a variant does what it says: its cases timed in fresh processes of both arms, which take turns.

A quick look, not a gate: it says how large the effect is on this machine, so that a gate's answer can be judged.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.proof.gates_against_peers.alternating import alternating
from tests.proof.gates_against_peers.intervals import mean_effect
from tests.proof.gates_against_peers.journal import Journal, Row, within
from tests.proof.gates_against_peers.making import BASE, Made
from tests.proof.gates_against_peers.pinning import measured_cpus
from tests.proof.gates_against_peers.places import EFFECTS_JOURNAL
from tests.proof.gates_against_peers.variants import Variant

PAIRS = 8
CLOCKS = ("wall_s", "cpu_s")
_SAMPLES = 8


def missing_flags(variant: Variant) -> tuple[str, ...]:
    """Flags of the CPU that the variant needs and this machine lacks."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    flags = {word for line in text.splitlines() if line.startswith("flags") for word in line.split(":", 1)[1].split()}
    return tuple(flag for flag in variant.needs if flag not in flags)


def check(
    variants: tuple[Variant, ...],
    made: Made,
    *,
    minutes: float | None,
    again: bool,
    pairs: int = PAIRS,
    say: Callable[[str], None] = print,
) -> None:
    """Time the cases of each variant that has any, in so many pairs of processes, and write a row for each."""
    journal = Journal(EFFECTS_JOURNAL)
    done = frozenset() if again else journal.done()
    todo = [v for v in variants if v.cases and not v.stored and v.name not in done]
    for variant in within(todo, minutes=minutes):
        row = measured(variant, made, pairs=pairs)
        journal.append(row)
        say(f"{variant.name}: " + (row.get("error") or ", ".join(_words(case) for case in row["cases"].items())))


def measured(variant: Variant, made: Made, *, pairs: int = PAIRS) -> Row:
    """What each pair of processes says of each case: how much longer the candidate takes, in wall and CPU seconds.

    A pair gives the median over samples that ran next to each other. Pairs differ by more than their samples do, since
    each process has its own memory, so they are what an interval is made of.
    """
    cases = (*variant.cases, *variant.controls)
    cpus = measured_cpus(variant.cpus)
    row: Row = {"key": variant.name, "at": time.time(), "missing_flags": missing_flags(variant), "cases": {}}
    arms = [
        (made.trees[BASE], dict(variant.baseline_environment)),
        (made.trees[variant.name], dict(variant.environment)),
    ]
    try:
        found = [_pair(arms, cases, cpus=cpus, is_reversed=bool(number % 2)) for number in range(pairs)]
    except RuntimeError as error:
        return {**row, "error": str(error)}
    for case in cases:
        ratios = {
            clock: [
                statistics.median(
                    after / before - 1
                    for before, after in zip(baseline[case][clock], candidate[case][clock], strict=True)
                )
                for baseline, candidate in found
            ]
            for clock in CLOCKS
        }
        first, second = found[0][0][case]["result"], found[0][1][case]["result"]
        row["cases"][case] = {**ratios, "expected": case in variant.cases, "results": [first, second]}
    return row


def _pair(
    arms: Sequence[tuple[Path, Mapping[str, str]]], cases: Sequence[str], *, cpus: Sequence[int], is_reversed: bool
) -> list[Row]:
    """Baseline and candidate; which of them starts first alternates, as the second was 1 to 2 % slower here."""
    if is_reversed:
        return alternating(arms[::-1], cases, samples=_SAMPLES, cpus=cpus)[::-1]
    return alternating(arms, cases, samples=_SAMPLES, cpus=cpus)


def _words(entry: tuple[str, Row]) -> str:
    case, found = entry
    same = abs(found["results"][0] - found["results"][1]) <= 1e-5 * max(1e-3, abs(found["results"][0]))
    return (
        f"{case}{'' if found['expected'] else ' (control)'} wall {mean_effect(found['wall_s'])} "
        f"cpu {mean_effect(found['cpu_s'])}"
        f"{'' if same else ' OTHER RESULT'}"
    )
