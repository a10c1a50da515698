"""Live gates on the machine it runs on: false alarms, gates left open, and small slowdowns found (`make proof-gates`).

Gates of identical arms are those of this machine's calibrations (`perfguard calibrate --gates 60 --resume`, and
`--suite pr --gates 12`). The others are run here: it runs the command line as a user does, reads its JSON, and writes
`docs/measurements/gates-<machine_id>.{json,md}` after each gate. It can be ended at any time and started again: gates
of the same rule count, those of an older rule are dropped. Kinds of gates take turns, so that any part of the whole has
a part of each. `ARGS='--minutes 90'` starts no gate after that time; all of them take three and a half hours, with
nothing else running.

Nothing is repeated until it fits, nothing is left out.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats

from perfguard.config import load_config
from perfguard.host.probe import probe
from perfguard.records.calibration import DECISION_RULE, Calibration
from perfguard.runner.suites import load_catalog, selected_cases
from perfguard.store.calibrations import calibration_file, load_calibration

REPOSITORY = Path(__file__).parents[2]
PLACE = REPOSITORY / "docs" / "measurements"
LINEAR = "kernel.linear[m=128,dtype=bf16,phase=forward+backward]"
STEP = "step.bert[layers=2,hidden=128,sequence=128,batch=4,dtype=bf16,mode=eager]"
COMPARE = (sys.executable, "-m", "perfguard", "compare", "--format", "json")
IDENTICAL = ("--baseline", "git:HEAD", "--candidate", "git:HEAD", "--measure-anyway")
NO_ALLOCATOR = "git:HEAD+env:GLIBC_TUNABLES=,MALLOC_MMAP_THRESHOLD_=,MALLOC_TRIM_THRESHOLD_=,MALLOC_TOP_PAD_="
SLOWER = (0.01, 0.0125, 0.015, 0.0175, 0.02)  # What the cases of a small slowdown take longer
HALF_OF_A_CPU = """import time
while True:
    end = time.monotonic() + 0.05
    while time.monotonic() < end: pass
    time.sleep(0.05)
"""
SUITES = {"quick": 60, "pr": 12}  # Gates of identical arms that are wanted of each
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Gates of one kind."""

    name: str
    times: int
    suite: str = "quick"
    arguments: tuple[str, ...] = IDENTICAL
    injects: Callable[[str, int], dict[str, float]] = lambda *_: {}  # Slowdowns by case, of a suite's n-th gate
    has_neighbour: bool = False


def two_cases(suite: str, number: int) -> dict[str, float]:
    """Two cases of a suite, another pair each time, and how much slower both are."""
    pairs = _pairs(suite)
    return dict.fromkeys(pairs[number % len(pairs)], SLOWER[number % len(SLOWER)])


@functools.cache
def _pairs(suite: str) -> list[tuple[str, str]]:
    cases = selected_cases(load_catalog(load_config(REPOSITORY, os.environ, {})), suite=suite, patterns=())
    pairs = list(itertools.combinations([case.id for case in cases if case.gating.value == "gating"], 2))
    random.Random(0).shuffle(pairs)
    return pairs


BUSY = "identical arms, a neighbour on half of a CPU"
SMALL, SMALL_PR = "two cases 1 to 2 % slower", "two cases 1 to 2 % slower, pr"
ATTEMPTS = (
    Attempt(name=BUSY, times=20, has_neighbour=True),
    Attempt(name=SMALL, times=12, injects=two_cases),
    Attempt(name=SMALL_PR, times=12, suite="pr", injects=two_cases),
    Attempt(name="+5 % injected into one step and one kernel", times=1, injects=lambda *_: {LINEAR: 0.05, STEP: 0.05}),
    Attempt(
        name="-5 % injected into one step and one kernel", times=1, injects=lambda *_: {LINEAR: -0.05, STEP: -0.05}
    ),
    Attempt(
        name="ONEDNN_MAX_CPU_ISA=AVX2 in the candidate",
        times=1,
        arguments=("--baseline", "git:HEAD", "--candidate", "git:HEAD+env:ONEDNN_MAX_CPU_ISA=AVX2"),
    ),
    Attempt(
        name="default allocator in the candidate",
        times=1,
        arguments=("--baseline", "git:HEAD", "--candidate", NO_ALLOCATOR),
    ),
)


def main() -> None:
    """Run the gates that are missing, and write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no gate after this time")
    end_s = time.monotonic() + 60 * parser.parse_args().minutes
    machine_id = probe().machine_id
    kept, rows = _kept(machine_id), read_rows(machine_id)
    for attempt, number in in_turn(ATTEMPTS):
        if any((row["attempt"], row["number"]) == (attempt.name, number) for row in rows):
            continue
        if time.monotonic() > end_s:
            break
        print(f"{time.strftime('%H:%M:%S')} {attempt.name} {number + 1}/{attempt.times}", flush=True)
        rows.append(run(attempt, number))
        kept.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    kept.with_suffix(".md").write_text(report(rows, machine_id), encoding="utf-8")


def read_rows(machine_id: str) -> list[Row]:
    """Gates of this rule that were run before."""
    kept = _kept(machine_id)
    known = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else []
    return [row for row in known if row.get("rule") == DECISION_RULE]


def calibration_of(machine_id: str, suite: str) -> Calibration | None:
    """This repository's calibration of a machine; None where there is none by this rule."""
    baselines = REPOSITORY / load_config(REPOSITORY, os.environ, {}).config.baselines
    found = load_calibration(calibration_file(baselines, machine_id, suite))
    return found if found is not None and found.scope.rule == DECISION_RULE else None


def _kept(machine_id: str) -> Path:
    return PLACE / f"gates-{machine_id}.json"


def in_turn(attempts: Sequence[Attempt]) -> list[tuple[Attempt, int]]:
    """Every gate of every kind, each kind spread evenly over all."""
    gates = [(attempt, number) for attempt in attempts for number in range(attempt.times)]
    return sorted(gates, key=lambda gate: (gate[1] + 0.5) / gate[0].times)


def run(attempt: Attempt, number: int) -> Row:
    """One `perfguard compare`, reduced to what the report shows."""
    injected = attempt.injects(attempt.suite, number)
    slower = itertools.chain.from_iterable(("--inject", f"{case}={ratio:+.2%}") for case, ratio in injected.items())
    row: Row = {
        "attempt": attempt.name,
        "number": number,
        "rule": DECISION_RULE,
        "commit": subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=True
        ).stdout.strip(),
        "at": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "load": round(os.getloadavg()[0], 2),
        "injected": injected,
        "has_neighbour": attempt.has_neighbour,
    }
    with neighbour() if attempt.has_neighbour else contextlib.nullcontext():
        done = subprocess.run(
            [*COMPARE, "--suite", attempt.suite, *attempt.arguments, *slower],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode < 0 or done.returncode == 130:
        sys.exit(130)  # ended by the user: no gate
    if not done.stdout.startswith("{"):
        return {**row, "exit_code": done.returncode, "error": done.stderr[-2000:], "cases": {}}
    result = json.loads(done.stdout)
    fingerprint = json.loads((Path(result["folder"]) / "fingerprint.json").read_text(encoding="utf-8"))
    return {
        **row,
        "run": Path(result["folder"]).name,
        "margin": result["gate"]["policy"]["margin_ratio"],
        "exit_code": done.returncode,
        # Identical arms pass by construction; what is asked here is what their times alone say.
        "verdict": result["gate"]["measured_outcome"] or result["verdict"],
        "machine_id": result["machine_id"],
        "machine": result["machine"],
        "stack_id": fingerprint["stack_id"],
        "cpus": result["cpus"],
        "duration_s": round(result["duration_s"], 1),
        "blocks": result["gate"]["blocks_total"],
        "voided": result["gate"]["blocks_voided"],
        "cases": {v["case_id"]: _case(v) for v in result["gate"]["verdicts"]},
    }


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    """A process of a session of its own that takes half of a CPU."""
    with subprocess.Popen([sys.executable, "-c", HALF_OF_A_CPU], start_new_session=True) as process:
        try:
            yield
        finally:
            process.kill()


def _case(verdict: dict[str, Any]) -> dict[str, Any]:
    estimate = verdict["comparison"]["estimate"]
    if estimate is None:
        return {"outcome": verdict["outcome"], "reasons": [reason["code"] for reason in verdict["reasons"]]}
    return {
        "outcome": verdict["outcome"],
        "effect": math.expm1(estimate["log_ratio"]),
        "block_sd": estimate["block_sd"],
        "blocks": estimate["blocks"],
    }


def report(rows: Sequence[Row], machine_id: str) -> str:
    """The rows as Markdown, below what the calibrations of the machine say."""
    first = next((row for row in rows if "machine" in row), {})
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
    planned = sum(attempt.times for attempt in ATTEMPTS)
    lines = [
        "# Live gates: false alarms, open gates, small slowdowns",
        "",
        (
            f"Made by `make proof-gates` on {first.get('machine')} (`{first.get('machine_id')}`, stack "
            f"`{first.get('stack_id')}`), CPU {first.get('cpus')}, rule {DECISION_RULE}, commit {commits}. "
            f"{len(rows)} of {planned} gates so far, beside those of calibrations. Each is listed; none was repeated."
        ),
        "",
        "| gates | measured | red [95 %] | inconclusive or host unstable [95 %] | median minutes |",
        "|---|--:|---|---|--:|",
        *(line for suite, wanted in SUITES.items() for line in _identical(machine_id, suite, wanted)),
    ]
    for attempt in ATTEMPTS:
        own = [row for row in rows if row["attempt"] == attempt.name]
        if own:
            verdicts = [row.get("verdict") for row in own]
            minutes = [row.get("duration_s", math.nan) / 60 for row in own]
            lines.append(_counted(attempt.name, attempt.times, verdicts, minutes))
    return "\n".join([*lines, "", *_found(rows), *_listed(rows), ""])


def _identical(machine_id: str, suite: str, wanted: int) -> Iterator[str]:
    """A line on the calibration's gates, whose arms lay at other places."""
    found = calibration_of(machine_id, suite)
    if found is not None:
        outcomes = [gate.outcome for gate in found.gates]
        minutes = [gate.duration_s / 60 for gate in found.gates]
        yield _counted(f"identical arms, {suite}, margin {found.scope.margin_ratio:.2%}", wanted, outcomes, minutes)


def _counted(name: str, wanted: int, verdicts: Sequence[str | None], minutes: Sequence[float]) -> str:
    red, total = verdicts.count("regressed"), len(verdicts)
    open_ = sum(verdict in ("inconclusive", "host-unstable") for verdict in verdicts)
    shares = f"{_share(red, total)} | {_share(open_, total)}"
    return f"| {name} | {total} of {wanted} | {shares} | {statistics.median(minutes):.1f} |"


def _share(count: int, total: int) -> str:
    """`1 of 60 [0.0, 8.9 %]`, with the exact interval (Clopper-Pearson)."""
    lower = stats.beta.ppf(0.025, count, total - count + 1) if count else 0.0
    upper = stats.beta.ppf(0.975, count + 1, total - count) if count < total else 1.0
    return f"{count} of {total} [{100 * lower:.1f}, {100 * upper:.1f} %]"


def _found(rows: Sequence[Row]) -> Iterator[str]:
    """Cases that were made slower, and what their gate said of them."""
    yield from ("Cases that were made slower:", "", "| slower by | cases | regressed | inconclusive | unchanged |")
    yield "|--:|--:|--:|--:|--:|"
    for ratio in (*SLOWER, 0.05):
        said = [
            row["cases"].get(case, {}).get("outcome")
            for row in rows
            for case, own in row["injected"].items()
            if own == ratio
        ]
        counts = " | ".join(str(said.count(outcome)) for outcome in ("regressed", "inconclusive", "unchanged"))
        yield f"| {ratio:.2%} | {len(said)} | {counts} |"
    others = sum(
        case not in row["injected"] and entry["outcome"] == "regressed"
        for row in rows
        if row["injected"]
        for case, entry in row["cases"].items()
    )
    yield from ("", f"Other cases of these gates that were called slower: {others}.", "")


def _listed(rows: Sequence[Row]) -> Iterator[str]:
    yield "| at | gate | exit | verdict | load before | blocks (voided) | seconds | regressed | improved |"
    yield "|---|---|--:|---|--:|--:|--:|---|---|"
    for row in rows:
        found = {
            kind: ", ".join(
                f"{_short(case)} {entry['effect']:+.1%}"
                for case, entry in row["cases"].items()
                if entry["outcome"] == kind and "effect" in entry
            )
            or "-"
            for kind in ("regressed", "improved")
        }
        yield (
            f"| {row['at']} | {row['attempt']} | {row['exit_code']} | {row.get('verdict', 'error')} | {row['load']} | "
            f"{row.get('blocks', '-')} ({row.get('voided', '-')}) | {row.get('duration_s', '-')} | "
            f"{found['regressed']} | {found['improved']} |"
        )


def _short(case_id: str) -> str:
    return case_id.partition("[")[0]


if __name__ == "__main__":
    main()
