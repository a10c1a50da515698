"""Measures what this version claims, on the machine it runs on: `make proof-spine`, 40 minutes, nothing else running.

Runs the command line as a user does, reads its JSON, and writes `docs/measurements/spine-<machine_id>.{json,md}`:
identical arms ten times, injected slowdowns and speed-ups of 5 %, a capped instruction set, a default allocator.
Nothing is repeated until it fits, nothing is left out.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
LINEAR = "kernel.linear[m=128,dtype=bf16,phase=forward+backward]"
STEP = "step.bert[layers=2,hidden=128,sequence=128,batch=4,dtype=bf16,mode=eager]"
IDENTICAL = ("--baseline", "git:HEAD", "--candidate", "git:HEAD", "--measure-anyway")
NO_ALLOCATOR = "git:HEAD+env:GLIBC_TUNABLES=,MALLOC_MMAP_THRESHOLD_=,MALLOC_TRIM_THRESHOLD_=,MALLOC_TOP_PAD_="
ATTEMPTS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("identical arms", 10, IDENTICAL),
    (
        "+5 % injected into one step and one kernel",
        1,
        (*IDENTICAL, "--inject", f"{LINEAR}=+5%", "--inject", f"{STEP}=+5%"),
    ),
    (
        "-5 % injected into one step and one kernel",
        1,
        (*IDENTICAL, "--inject", f"{LINEAR}=-5%", "--inject", f"{STEP}=-5%"),
    ),
    (
        "ONEDNN_MAX_CPU_ISA=AVX2 in the candidate",
        1,
        ("--baseline", "git:HEAD", "--candidate", "git:HEAD+env:ONEDNN_MAX_CPU_ISA=AVX2"),
    ),
    ("default allocator in the candidate", 1, ("--baseline", "git:HEAD", "--candidate", NO_ALLOCATOR)),
)


def main() -> None:
    """Run every attempt and write the results after each, so that an interruption loses nothing."""
    rows: list[dict[str, Any]] = []
    for name, times, arguments in ATTEMPTS:
        for number in range(times):
            print(f"{time.strftime('%H:%M:%S')} {name} {number + 1}/{times}", flush=True)  # noqa: T201
            rows.append({"attempt": name, **run(arguments)})
            write(rows)


def run(arguments: tuple[str, ...]) -> dict[str, Any]:
    """One `perfguard compare` of the quick suite, reduced to what the report shows."""
    done = subprocess.run(
        [sys.executable, "-m", "perfguard", "compare", "--suite", "quick", *arguments, "--format", "json"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout.startswith("{"):
        return {"exit_code": done.returncode, "error": done.stderr[-2000:], "cases": {}}
    result = json.loads(done.stdout)
    fingerprint = json.loads((Path(result["folder"]) / "fingerprint.json").read_text(encoding="utf-8"))
    return {
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


def write(rows: list[dict[str, Any]]) -> None:
    """Write the raw rows and a table of them."""
    machine_id = next((row["machine_id"] for row in rows if "machine_id" in row), "unknown")
    place = REPOSITORY / "docs" / "measurements"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"spine-{machine_id}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (place / f"spine-{machine_id}.md").write_text(report(rows), encoding="utf-8")


def report(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    first = next((row for row in rows if "machine" in row), {})
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    lines = [
        "# What `perfguard compare --suite quick` found",
        "",
        (
            f"Made by `make proof-spine` on {first.get('machine')} (`{first.get('machine_id')}`, stack "
            f"`{first.get('stack_id')}`), CPU {first.get('cpus')}, commit {commit.stdout[:12]}. "
            "Every attempt is listed; none was repeated."
        ),
        "",
        "| attempt | exit | verdict | blocks (voided) | seconds | regressed | improved |",
        "|---|--:|---|--:|--:|---|---|",
    ]
    for row in rows:
        found = {
            kind: ", ".join(
                f"{_short(case)} {entry['effect']:+.1%}"
                for case, entry in row["cases"].items()
                if entry["outcome"] == kind
            )
            or "-"
            for kind in ("regressed", "improved")
        }
        lines.append(
            f"| {row['attempt']} | {row['exit_code']} | {row.get('verdict', 'error')} | {row.get('blocks', '-')} "
            f"({row.get('voided', '-')}) | {row.get('duration_s', '-')} | {found['regressed']} | {found['improved']} |"
        )
    return "\n".join([*lines, "", *_spread(rows), ""])


def _spread(rows: list[dict[str, Any]]) -> list[str]:
    """Block SD and estimates of each case over the identical arms."""
    identical = [row for row in rows if row["attempt"] == ATTEMPTS[0][0]]
    cases = list(dict.fromkeys(case for row in identical for case in row["cases"]))
    lines = [
        "Identical arms, by case:",
        "",
        "| case | block SD: median (lowest to highest) | estimates: lowest to highest |",
        "|---|---|---|",
    ]
    for case in cases:
        entries = [row["cases"][case] for row in identical if "block_sd" in row["cases"].get(case, {})]
        spreads = sorted(entry["block_sd"] for entry in entries)
        effects = [entry["effect"] for entry in entries]
        if entries:
            lines.append(
                f"| {case} | {spreads[len(spreads) // 2]:.2%} ({spreads[0]:.2%} to {spreads[-1]:.2%}) | "
                f"{min(effects):+.2%} to {max(effects):+.2%} |"
            )
    return lines


def _short(case_id: str) -> str:
    return case_id.partition("[")[0]


if __name__ == "__main__":
    main()
