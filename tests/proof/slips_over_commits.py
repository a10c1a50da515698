"""A case that slips by 4 % over 30 commits: what live gates of these commits say (`make proof-slips`, half an hour).

Makes a repository of 31 commits, each of which touches the case; three of the last 30 make it 1.33 % slower. Each
commit is gated against the one before it, by the command line in fresh processes, with a history of its own; at last
the newest is paired with the first, as `gate --anchor` does. Writes `docs/measurements/slips-<machine_id>.md`. Ends
with 1 unless that pair is red. Nothing else should run.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PLACE = REPOSITORY / "docs" / "measurements"
Row = dict[str, Any]  # A result in JSON, its commit and its only verdict
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
    parser.add_argument("--budget", default="30s", help="of each gate")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        *rows, last = _gates(Path(folder), given.budget)
    text = _report(rows, last, given.budget)
    (PLACE / f"slips-{last['machine_id']}.md").write_text(text, encoding="utf-8")
    print(text)
    sys.exit(last["said"]["outcome"] != "regressed")


def _gates(project: Path, budget: str) -> Iterator[Row]:
    """The result of each gate, in the order of the commits, and that of the newest against the first."""
    environment = {**os.environ, "PERFGUARD_DATABASE": str(project / ".perfguard" / "history.sqlite")}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)

    def gate(baseline: str, budget: str, commit: int) -> Row:
        arms = ("--baseline", baseline, "--candidate", "git:HEAD")
        done = run(sys.executable, "-m", "perfguard", "compare", *arms, "--budget", budget, "--format", "json")
        if not done.stdout.startswith("{"):
            sys.exit(f"commit {commit}: {done.stderr[-2000:]}")
        result = json.loads(done.stdout)
        (verdict,) = result["gate"]["verdicts"]
        print(f"{time.strftime('%H:%M:%S')} commit {commit} against {baseline}: {verdict['outcome']}", flush=True)
        return {**result, "commit": commit, "said": verdict}

    (project / "perfguard.toml").write_text(SETTINGS, encoding="utf-8")
    (project / ".gitignore").write_text(".perfguard/\n__pycache__/\n", encoding="utf-8")
    run("git", "init", "-q")
    for commit in range(COMMITS + 1):
        text = CASE.format(commit=commit, repeats=_repeats(commit))
        (project / "bench.py").write_text(text, encoding="utf-8")
        run("git", "add", "-A")
        run("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", f"commit {commit}")
        if commit:
            yield gate("git:HEAD~1", budget, commit)
    yield gate(f"git:HEAD~{COMMITS}", "60s", COMMITS)


def _repeats(commit: int) -> int:
    """Passes of the case at a commit."""
    return REPEATS + max((more for since, more in SLOWER.items() if since <= commit), default=0)


def _slips(row: Row) -> list[str]:
    """What a gate says of a slip."""
    return [
        f"{100 * math.expm1(note['values']['log_ratio']):+.2f} % ({note['code'].removeprefix('history.')})"
        for note in row["notes"]
        if note["code"] in ("history.slipped", "history.slipped_in_pairs")
    ]


def _effect(row: Row) -> str:
    """Effect, interval and blocks of a gate."""
    estimate = row["said"]["comparison"]["estimate"]
    if estimate is None:
        return "- | - | -"
    ends = (estimate["log_ratio"], estimate["interval"]["lower"], estimate["interval"]["upper"])
    effect, lower, upper = (f"{100 * math.expm1(end):+.2f}" for end in ends)
    return f"{effect} % | {lower} to {upper} | {estimate['blocks']}"


def _report(rows: Sequence[Row], last: Row, budget: str) -> str:
    outcomes = Counter(row["said"]["outcome"] for row in rows)
    counted = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    per_pass = [row["said"]["comparison"]["candidate_median_s"] / _repeats(row["commit"]) for row in rows]
    scatter = statistics.stdev(map(math.log, per_pass))
    effect, interval, blocks = _effect(last).split(" | ")
    lines = [
        "# A case that slips over 30 commits, gated live",
        "",
        f"Made by `make proof-slips` on {last['machine']} (`{last['machine_id']}`), CPU {last['cpus']}.",
        f"Each commit is gated against the one before, in {budget}; three make the case 1.33 % slower, by the number",
        "of its passes. The others touch it without changing its work.",
        "",
        f"- Added: {100 * (_repeats(COMMITS) / REPEATS - 1):+.2f} %.",
        f"- The {len(rows)} gates: {counted}.",
        f"- The last of them says of the history: {', '.join(_slips(rows[-1])) or 'no slip'}.",
        f"- Medians of a pass scatter by {100 * scatter:.1f} % between the runs (standard deviation).",
        f"- The newest commit paired with the first, as an anchor does it: {effect} [{interval}], {blocks} blocks,",
        f"  {last['said']['outcome']}.",
        "",
        "| commit | added | said | effect | 95 % interval | blocks | slip that the gate tells |",
        "|--:|--:|---|--:|--:|--:|---|",
    ]
    for row in rows:
        added = "+1.33 %" if row["commit"] in SLOWER else ""
        said, told = row["said"]["outcome"], ", ".join(_slips(row)) or "-"
        lines.append(f"| {row['commit']} | {added} | {said} | {_effect(row)} | {told} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
