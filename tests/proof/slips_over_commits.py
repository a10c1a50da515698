"""A case that slips by 4 % over 30 commits: what live gates of these commits say (`make proof-slips`, half an hour).

Makes a repository of 31 commits, each of which touches the case; three of the last 30 make it 1.33 % slower. Each
commit is gated against the one before it, by the command line in fresh processes, with a history of its own. Writes
`docs/measurements/slips-<machine_id>.md`. Ends with 1 unless the last gate says that the case slipped, by an amount
within a percent of what was added. Nothing else should run.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PLACE = REPOSITORY / "docs" / "measurements"
COMMITS = 30
REPEATS = 300
SLOWER = {8: 4, 16: 8, 24: 12}
"""From which commit on the case makes so many passes more."""
CASE = """import perfguard
import torch

COMMIT = {commit}


@perfguard.benchmark
def layers():
    weights = torch.full((128, 128), 1 / 128)

    def timed():
        for _ in range({repeats}):
            found = torch.tanh(weights @ weights)
        return found + 0 * COMMIT

    return timed
"""
SETTINGS = """suite = "slips"
benchmarks = ["bench.py"]
project = "slips"

[suites.slips]
gating = ["layers"]
"""


def main() -> None:
    """Make the repository, gate its commits, write what was said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="40s", help="of each gate")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = list(_gates(Path(folder), given.budget))
    last = rows[-1]
    slipped = [note for note in last["notes"] if note["code"] == "history.slipped"]
    text = _report(rows, slipped, given.budget)
    (PLACE / f"slips-{last['machine_id']}.md").write_text(text, encoding="utf-8")
    print(text)
    sys.exit(not slipped or abs(_percent(slipped[0]) - 100 * _added()) > 1)


def _gates(project: Path, budget: str) -> Any:
    """The result of each gate, in the order of the commits."""
    environment = {**os.environ, "PERFGUARD_DATABASE": str(project / ".perfguard" / "history.sqlite")}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)

    (project / "perfguard.toml").write_text(SETTINGS, encoding="utf-8")
    (project / ".gitignore").write_text(".perfguard/\n__pycache__/\n", encoding="utf-8")
    run("git", "init", "-q")
    for commit in range(COMMITS + 1):
        repeats = REPEATS + max((more for since, more in SLOWER.items() if since <= commit), default=0)
        (project / "bench.py").write_text(CASE.format(commit=commit, repeats=repeats), encoding="utf-8")
        run("git", "add", "-A")
        run("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", f"commit {commit}")
        if not commit:
            continue
        arms = ("--baseline", "git:HEAD~1", "--candidate", "git:HEAD")
        done = run(sys.executable, "-m", "perfguard", "compare", *arms, "--budget", budget, "--format", "json")
        if not done.stdout.startswith("{"):
            sys.exit(f"commit {commit}: {done.stderr[-2000:]}")
        result = json.loads(done.stdout)
        (verdict,) = result["gate"]["verdicts"]
        print(f"{time.strftime('%H:%M:%S')} commit {commit}: {verdict['outcome']}", flush=True)
        yield {**result, "commit": commit, "said": verdict}


def _added() -> float:
    return max(SLOWER.values()) / REPEATS


def _percent(slipped: dict[str, Any]) -> float:
    return 100 * math.expm1(slipped["values"]["log_ratio"])


def _report(rows: list[dict[str, Any]], slipped: list[dict[str, Any]], budget: str) -> str:
    last = rows[-1]
    outcomes = Counter(row["said"]["outcome"] for row in rows)
    counted = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    said = "no slip"
    for note in slipped:
        values = note["values"]
        said = f"slipped by {_percent(note):+.2f} % over {values['commits']} commits, in {values['changes']} changes"
    lines = [
        "# A case that slips over 30 commits, gated live",
        "",
        f"Made by `make proof-slips` on {last['machine']} (`{last['machine_id']}`), CPU {last['cpus']}, {budget} a gate.",
        "Each commit is gated against the one before; three make the case 1.33 % slower, by the number of its passes.",
        "",
        f"- Added: {100 * _added():+.2f} %.",
        f"- The last gate says: {said}.",
        f"- The {len(rows)} gates: {counted}.",
        "",
        "| commit | added | said | effect | blocks | slip that the gate tells |",
        "|--:|--:|---|--:|--:|---|",
    ]
    for row in rows:
        estimate = row["said"]["comparison"]["estimate"]
        told = [f"{_percent(note):+.2f} %" for note in row["notes"] if note["code"] == "history.slipped"]
        added = "+1.33 %" if row["commit"] in SLOWER else ""
        effect = f"{100 * math.expm1(estimate['log_ratio']):+.2f} % | {estimate['blocks']}" if estimate else "- | -"
        lines.append(f"| {row['commit']} | {added} | {row['said']['outcome']} | {effect} | {', '.join(told) or '-'} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
