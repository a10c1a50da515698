"""Runs trials and writes what they say: `python -m tests.proof.culprits_of_injections [--trials N]`.

Each trial is written to a journal as it ends; a run goes on where the last one stopped. Nothing is left out, nothing
is repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from perfguard.host.probe import probe
from perfguard.runner.arms import git
from perfguard.units import format_effect, format_ratio
from tests.proof.culprits_of_injections.injections import INJECTIONS, Injection
from tests.proof.culprits_of_injections.trials import SPIN_RATIO, as_line, project, run_trial, step_seconds

REPOSITORY = Path(__file__).parents[3]
FOLDER = REPOSITORY / ".perfguard" / "culprits"
TARGET = 0.95
MOST_UNEXPLAINED = 0.05


def main() -> None:
    """Run what is missing of the trials, in rounds over all injections, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20, help="trials of each injection")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--only", choices=[injection.name for injection in INJECTIONS], help="one fault alone")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    journal = FOLDER / f"{probe().machine_id}.jsonl"
    place = project(FOLDER)
    until = time.monotonic() + 60 * options.minutes
    with suppress(KeyboardInterrupt):  # the trials that have ended are still told
        wanted = [injection for injection in INJECTIONS if options.only in (None, injection.name)]
        run_missing(journal, place, wanted, trials=options.trials, until=until)
    write(rows_of(journal))


def run_missing(journal: Path, place: Path, injections: Sequence[Injection], *, trials: int, until: float) -> None:
    """Run what the journal does not hold; start nothing after `until`, seconds of the monotonic clock."""
    commit = git.run_git(REPOSITORY, "rev-parse", "--short", "HEAD").decode().strip()
    spin_s = SPIN_RATIO * step_seconds(place)
    for number in range(trials):
        for injection in injections:
            done = sum(row["injection"] == injection.name for row in rows_of(journal))
            if done > number or time.monotonic() > until:
                continue
            trial = run_trial(place, injection, spin_s=spin_s, seed=1000 * number + 7)
            with journal.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({**as_line(trial), "commit": commit}) + "\n")
            print(f"{injection.name} {number + 1}: {trial.first} ({trial.is_right})", flush=True)  # noqa: T201


def rows_of(journal: Path) -> list[dict[str, Any]]:
    """The trials so far."""
    if not journal.exists():
        return []
    return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]


def write(rows: Sequence[dict[str, Any]]) -> None:
    """`docs/measurements/culprits-<machine_id>.{md,json}`."""
    if not rows:
        return
    machine_id = rows[0]["machine_id"]
    stem = REPOSITORY / "docs" / "measurements" / f"culprits-{machine_id}"
    stem.with_suffix(".json").write_text(json.dumps(list(rows), indent=1) + "\n", encoding="utf-8")
    by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_name[row["injection"]].append(row)
    lines = [
        "# Whether the culprit that was injected is named first",
        "",
        f"Made by `make proof-culprits` on `{machine_id}`, one CPU, profiled as a gate does: four pairs of processes,",
        "or eight where these do not settle how much the steps differ.",
        f"Every trial is counted. Target: first in at least {TARGET:.0%}, unexplained at most 5 % of the longer step",
        "(median, largest; how many are at most 5 %, and how many have a 95 % interval that holds 0).",
        "",
        "| injected | step | effect: median (lowest to highest) | first | named | unexplained | ≤ 5 % | within noise |",
        "|---|--:|---|--:|--:|---|--:|--:|",
    ]
    for injection in INJECTIONS:
        found = by_name.get(injection.name, [])
        if not found:
            continue
        effects = sorted(row["effect"] for row in found)
        left = sorted(abs(row["unexplained"]) for row in found)
        lines.append(
            f"| {injection.doc} | {1e3 * median(row['step_s'] for row in found):.2f} ms "
            f"| {_percent(median(effects))} ({_percent(effects[0])} to {_percent(effects[-1])}) "
            f"| {sum(row['is_right'] for row in found)} of {len(found)} "
            f"| {sum(row['place'] is not None for row in found)} "
            f"| {format_ratio(median(left))}, {format_ratio(left[-1])} "
            f"| {sum(value <= MOST_UNEXPLAINED for value in left)} | {_within_noise(found)} |"
        )
    commits = Counter(row["commit"] for row in rows if "commit" in row)
    if commits:
        told = ", ".join(f"{number} of {commit}" for commit, number in commits.items())
        lines += ["", f"Trials by commit, oldest first: {told}."]
    stem.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _within_noise(rows: Sequence[dict[str, Any]]) -> str:
    """In how many trials the interval of what is unexplained holds 0; the oldest trials had none."""
    known = [row for row in rows if "unexplained_lower" in row]
    return str(sum(row["unexplained_lower"] <= 0 <= row["unexplained_upper"] for row in known)) if known else "-"


def _percent(ratio: float) -> str:
    import math

    return format_effect(math.log1p(ratio))


if __name__ == "__main__":
    main()
