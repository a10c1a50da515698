"""Whether gates find and name what breaks heterogeneous training, and stay green where nothing does.

`make proof-hetero-gates`: three quarters of an hour, two CPUs, nothing else running; resumes. In a copy of perfguard's
tree four changes are made, one at a time, and each is gated against the commit without it: a worker that spins, a
message that gets lost, a balance that is skewed, a merge that is wrong. Then gates measure the tree against itself.
Prints Markdown tables; `-o FILE` writes them as well. A skewed balance may make training faster: then the verdict is
`improved`, and names the share all the same. Ends with 1 where a change is not named, or a gate of equal trees is red.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfguard.host.identity import machine_line
from perfguard.host.probe import probe
from tests.broken_trainings import CHANGES, Change, broken, copy_tree

CASE = "hetero.covtype[algorithm=adaptive]"
BUDGET_S = 100  # Of a gate: two thirds of what the suite `hetero` gives a case


def make_tree(folder: Path) -> None:
    """A repository with perfguard's own tree, as it is here."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copy_tree(folder)
    (folder / ".gitignore").write_text(".perfguard/\n__pycache__/\n", encoding="utf-8")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "as it is"]):
        identity = ["-c", "user.name=proof", "-c", "user.email=proof@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)


def gate(folder: Path, *options: str) -> dict[str, Any]:
    """The result of one gate of the working tree against its commit."""
    command = [sys.executable, "-m", "perfguard", "gate", "-c", CASE, "--baseline", "git:HEAD", "--threads", "2"]
    command += ["--budget", str(BUDGET_S)]
    done = subprocess.run(
        [*command, "--format", "json", "-q", *options], cwd=folder, capture_output=True, text=True, check=False
    )
    if not done.stdout:
        raise SystemExit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def summary(result: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a result."""
    (verdict,) = result["gate"]["verdicts"]
    comparison = verdict["comparison"]
    estimate = comparison["estimate"]
    red = [found["signal"] for found in verdict["signals"] if found["gating"] and found["outcome"] == "regressed"]
    checks = [reason["values"]["name"] for reason in verdict["reasons"] if reason["code"] == "result.different"]
    return {
        "outcome": verdict["timed_outcome"] or verdict["outcome"],
        "effect": None if estimate is None else estimate["log_ratio"],
        "blocks": 0 if estimate is None else estimate["blocks"],
        "named": checks or red,
        "seconds": result["duration_s"],
    }


def changed(folder: Path, change: Change) -> dict[str, Any]:
    """The gate of one change."""
    with broken(folder, change):
        return summary(gate(folder))


def main() -> None:
    """Gate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gates", type=int, default=20, help="of equal trees")
    parser.add_argument("--folder", type=Path, default=Path(".perfguard/proof-hetero-gates"), help="takes all of it")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    tree, journal = (given.folder / "tree").resolve(), given.folder / "journal.json"
    if not journal.is_file():
        make_tree(tree)
    known: dict[str, Any] = json.loads(journal.read_text(encoding="utf-8")) if journal.is_file() else {}

    def kept(key: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if key not in known:
            known[key] = measure()
            journal.write_text(json.dumps(known), encoding="utf-8")
            print(f"· {key}: {known[key]}", file=sys.stderr)
        found: dict[str, Any] = known[key]
        return found

    rows, is_good = [], True
    for change in CHANGES:
        found = kept(change.what, lambda change=change: changed(tree, change))  # type: ignore[misc]
        is_good &= any(name.startswith(change.names) for name in found["named"])
        named = "; ".join(f"`{name}`" for name in found["named"])
        rows.append(f"| {change.what} | {found['outcome']} | {named} | {found['blocks']} | {found['seconds']:.0f} s |")
    equal = [kept(f"equal {number}", lambda: summary(gate(tree, "--measure-anyway"))) for number in range(given.gates)]
    red = sum(found["outcome"] in ("regressed", "different") or bool(found["named"]) for found in equal)
    counts = {outcome: sum(found["outcome"] == outcome for found in equal) for outcome in {f["outcome"] for f in equal}}
    host = probe()
    lines = [
        f"Measured on {machine_line(host)} (`{host.machine_id}`), `{CASE}` with two CPUs, at most {BUDGET_S} s a gate.",
        "",
        "| change | verdict | named | blocks | time |",
        "|---|---|---|--:|--:|",
        *rows,
        "",
        f"Gates of equal trees: {len(equal)}, of which red: {red}; "
        + ", ".join(f"{outcome}: {count}" for outcome, count in sorted(counts.items()))
        + ".",
    ]
    print("\n".join(lines))
    if given.output is not None:
        given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.exit(0 if is_good and red == 0 else 1)


if __name__ == "__main__":
    main()
