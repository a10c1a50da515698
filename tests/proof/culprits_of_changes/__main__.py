"""Makes a repository with a fault on each branch, and looks at what is named first: `make proof-culprits-of-changes`.

Each trial is written to a journal as it ends; a run goes on where the last one stopped. Both arms are profiled as a
gate does for a red case. Ends with 1 where a target is missed.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from perfguard.config import load_config
from perfguard.gate.paired.explain import BOTH, GATE_SIZE
from perfguard.host.identity import machine_line
from perfguard.host.probe import probe
from perfguard.profile.changes.attribution import attribute
from perfguard.profile.changes.op_counts import classify
from perfguard.profile.runs.profiling import findings_of, isa_of, run_profiles
from perfguard.records.changed_lines import ChangedLines
from perfguard.records.run import Arm
from perfguard.records.steps.ops import Attribution
from perfguard.report.culprits import culprit_texts
from perfguard.runner.arms import git
from perfguard.runner.arms.changed_lines import changed_lines
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.measuring import start_arms
from perfguard.runner.session import Request, open_session
from perfguard.runner.suites import load_catalog, selected_cases
from perfguard.units import format_effect
from tests.proof.culprits_of_changes.faults import FAULTS, FILES, Fault

REPOSITORY = Path(__file__).parents[3]
FOLDER = REPOSITORY / ".perfguard" / "culprits-of-changes"
RIGHT, INSIDE = 0.95, 0.9  # Targets


def make_repository(folder: Path) -> None:
    """The step on `main`, and each fault on a branch of its name."""
    folder.mkdir(parents=True)
    run(folder, "init", "-q", "-b", "main")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / ".gitignore").write_text(".perfguard/\n__pycache__/\n", encoding="utf-8")
    commit(folder, "the step")
    for fault in FAULTS:
        run(folder, "checkout", "-q", "-b", fault.name, "main")
        text = FILES[fault.file]
        assert text.count(fault.before) == 1, fault.name
        (folder / fault.file).write_text(text.replace(fault.before, fault.after), encoding="utf-8")
        commit(folder, fault.doc)
    run(folder, "checkout", "-q", "main")


def commit(folder: Path, message: str) -> None:
    """Everything in the folder."""
    run(folder, "add", "-A")
    run(folder, "commit", "-q", "-m", message)


def run(folder: Path, *arguments: str) -> None:
    """Run git as somebody."""
    identity = ("-c", "user.name=proof", "-c", "user.email=proof@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def attributed(folder: Path, fault: Fault, *, seed: int) -> tuple[Attribution, ChangedLines]:
    """The step with and without a fault, profiled, and what the fault changes."""
    loaded = load_config(folder, {}, {"seed": seed})
    cases = selected_cases(load_catalog(loaded), suite="training", patterns=())
    request = Request(
        command="compare", arguments=("compare",), loaded=loaded, suite="training", cases=cases, budget_s=600.0
    )
    with open_session(request, mode="profile") as session:
        specs = {Arm.BASELINE: parse_arm("git:main"), Arm.CANDIDATE: parse_arm(f"git:{fault.name}")}
        starter, arms = start_arms(session, specs)
        sides = changed_lines(arms[Arm.BASELINE], arms[Arm.CANDIDATE], folder)
        (case,) = cases
        changed = dict(zip(BOTH, sides, strict=True))
        found = run_profiles(session, starter, [case], BOTH, GATE_SIZE, changed=changed)
        if session.interrupts.asked:
            raise KeyboardInterrupt
        if case.id in found.problems:
            raise SystemExit(f"{fault.name}: {found.problems[case.id].reason}\n{found.problems[case.id].detail}")
        isa_class = isa_of(session.request.fingerprint)
        before, after = (findings_of(found, case, role, isa_class) for role in BOTH)
        counted = classify(before.joined.op_counts, after.joined.op_counts) if before.joined and after.joined else ()
        attribution = attribute(case.id, before.profile, after.profile, counted, changed=changed[Arm.CANDIDATE])
    return attribution, changed[Arm.CANDIDATE]


def trial(folder: Path, fault: Fault, *, seed: int) -> dict[str, Any]:
    """What was named first."""
    started = time.monotonic()
    found, changed = attributed(folder, fault, seed=seed)
    first = found.culprits[0] if found.culprits else None
    place = first.fact.subject.place if first is not None else None
    named = {} if first is None else {key.op.rpartition("::")[2] for key in first.ops}
    is_inside = place is not None and changed.place_of(place) is not None
    is_python = first is not None and first.fact.code == "python.time"
    return {
        "fault": fault.name,
        "machine_id": probe().machine_id,
        "seconds": time.monotonic() - started,
        "step_s": found.balance.baseline_s,
        "effect": found.balance.delta_s / found.balance.baseline_s,
        "first": culprit_texts(found)[0] if first is not None else None,
        "place": place,
        "is_right": (is_python and is_inside) or bool(set(fault.ops) & set(named)),
        "is_inside": is_inside,
    }


def rows_of(journal: Path) -> list[dict[str, Any]]:
    """The trials so far."""
    return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()] if journal.exists() else []


def table(rows: Sequence[dict[str, Any]]) -> tuple[list[str], bool]:
    """The table, and whether the targets are met."""
    by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_name[row["fault"]].append(row)
    lines = [
        "| change | effect (median) | right first | line inside the change | named first, the last time |",
        "|---|--:|--:|--:|---|",
    ]
    for fault in FAULTS:
        if found := by_name.get(fault.name):
            effect = format_effect(math.log1p(median(row["effect"] for row in found)))
            right, inside = (sum(row[key] for row in found) for key in ("is_right", "is_inside"))
            lines.append(f"| {fault.doc} | {effect} | {right} of {len(found)} | {inside} | {found[-1]['first']} |")
    right, inside = (sum(row[key] for row in rows) / len(rows) for key in ("is_right", "is_inside"))
    hits = f"Right first: {right:.0%} of {len(rows)} (target {RIGHT:.0%})."
    lines += ["", f"{hits} Line inside the change: {inside:.0%} (target {INSIDE:.0%})."]
    return lines, right >= RIGHT and inside >= INSIDE


def main() -> None:
    """Run what is missing of the trials, in rounds over all faults, then print the table."""
    parser = argparse.ArgumentParser(prog="make proof-culprits-of-changes", description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--trials", type=int, default=10, help="trials of each fault")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--only", choices=[fault.name for fault in FAULTS], help="one fault alone")
    given = parser.parse_args()
    folder = FOLDER / "repository"
    if not folder.exists():
        make_repository(folder)
    host = probe()
    journal = FOLDER / f"{host.machine_id}.jsonl"
    until = time.monotonic() + 60 * given.minutes
    revision = git.run_git(REPOSITORY, "rev-parse", "--short", "HEAD").decode().strip()
    with suppress(KeyboardInterrupt):
        for number in range(given.trials):
            for fault in FAULTS:
                done = sum(row["fault"] == fault.name for row in rows_of(journal))
                if given.only in (None, fault.name) and done <= number and time.monotonic() < until:
                    row = {**trial(folder, fault, seed=1000 * number + 7), "commit": revision}
                    with journal.open("a", encoding="utf-8") as out:
                        out.write(json.dumps(row) + "\n")
                    print(
                        f"{fault.name} {number + 1}: {row['first']} ({row['is_right']}, {row['is_inside']})", flush=True
                    )
    rows = rows_of(journal)
    if not rows:
        sys.exit(1)
    found, is_met = table(rows)
    head = f"Measured on {machine_line(host)} (`{host.machine_id}`), one CPU, profiled as a gate does."
    text = "\n".join(["# Whether slow Python and data code is named by its line", "", head, "", *found]) + "\n"
    print(text)
    if given.output is not None:
        given.output.write_text(text, encoding="utf-8")
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
