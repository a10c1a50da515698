"""Every natural fault and reported regression, given to perfguard; and those that must not fire."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

from tests.proof.gates_against_peers.effects import missing_flags
from tests.proof.gates_against_peers.journal import Journal, Row, within
from tests.proof.gates_against_peers.live_summary import as_expected
from tests.proof.gates_against_peers.machine import commit, moment
from tests.proof.gates_against_peers.making import Made
from tests.proof.gates_against_peers.neighbour import noisy
from tests.proof.gates_against_peers.pinning import Ran, measured_cpus, run
from tests.proof.gates_against_peers.places import FAULTS_JOURNAL, REPOSITORY, RUNS, SUITES_VENV, python_of
from tests.proof.gates_against_peers.tools.observation import Observation, Question
from tests.proof.gates_against_peers.tools.perfguard_tool import compare, observed
from tests.proof.gates_against_peers.variants import Variant

_DUTY = 0.5
_QUICKLY = ("--rounds", "4", "--spread", "0", "--allow-few", "--allow-dirty", "--allow-unfit")
"""The baseline of N1 is not going to be compared with anything."""


def measure(
    variants: tuple[Variant, ...],
    made: Made,
    *,
    gate_minutes: float,
    minutes: float | None,
    done: frozenset[str],
    seed: int,
    say: object = print,
) -> None:
    """Gate each variant whose key is not done and write the row down at once."""
    journal = Journal(FAULTS_JOURNAL)
    todo = [v for v in variants if _key(v, gate_minutes) not in done]
    for variant in within(todo, minutes=minutes):
        row = gate(variant, made, gate_minutes=gate_minutes, seed=seed)
        journal.append(row)
        answer = "as expected" if row["as_expected"] else "NOT as expected"
        say(f"{variant.name}: {row['answer']} ({row['detail'].get('verdict', 'no verdict')}), {answer}")


def gate(variant: Variant, made: Made, *, gate_minutes: float, seed: int) -> Row:
    """One gate of perfguard, over the cases that the variant is about and those that it must leave alone."""
    cpus = measured_cpus(variant.cpus)
    folder = RUNS / f"fault-{variant.name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    question = Question(
        variant=variant,
        made=made,
        minutes=gate_minutes,
        cpus=cpus,
        allocator="pinned",
        folder=folder,
        seed=random.Random(f"{seed}/{variant.name}").randrange(2**31),
    )
    start = moment()
    company = cpus[0] if variant.neighbour else None
    with noisy(company, seconds=gate_minutes * 180 + 600, seed=seed, duty=_DUTY, cwd=REPOSITORY):
        observation = _asked(question)
    shutil.rmtree(folder, ignore_errors=True)
    row = {
        "key": _key(variant, gate_minutes),
        "variant": variant.name,
        "kind": variant.kind.value,
        "doc": variant.doc,
        "source": variant.source,
        "hardware": variant.hardware,
        "missing_flags": list(missing_flags(variant)),
        "should_be": variant.expected.value,
        "expected": list(variant.cases),
        "controls": list(variant.controls),
        "gate_minutes": gate_minutes,
        "cpus": list(cpus),
        "commit": commit(),
        **start,
        **asdict(observation),
        "answer": observation.answer.value,
    }
    return {**row, "as_expected": as_expected(row)}


def _key(variant: Variant, gate_minutes: float) -> str:
    return f"{variant.name}/{gate_minutes:g}min"


def _asked(question: Question) -> Observation:
    if question.variant.stored:
        return observed(_against_another_machine(question))
    return observed(compare(question, (*question.variant.cases, *question.variant.controls)))


def _against_another_machine(question: Question) -> Ran:
    """N1: store a baseline here, pretend that another and much faster machine did, and gate against it."""
    project = question.folder / "project"
    shutil.copytree(question.made.trees["base"], project, ignore=shutil.ignore_patterns(".git", "__pycache__"))
    shared = (
        *("--suite", "victim", "--cpus", ",".join(map(str, question.cpus)), "--threads", "1"),
        *("--python", str(python_of(SUITES_VENV)), "--no-progress"),
    )
    cpus = sorted(os.sched_getaffinity(0))
    options = {"cwd": project, "cpus": cpus, "timeout_s": 1800.0}
    stored = run([*_PERFGUARD, "baseline", "update", *shared, *_QUICKLY], environment=dict(os.environ), **options)
    if stored.code != 0:
        return stored
    for place in (project / "baselines").iterdir():
        pretend_another_machine(place)
    return run(
        [
            *_PERFGUARD,
            "gate",
            "--baseline",
            "stored",
            *shared,
            "--budget",
            f"{question.minutes * 60:.0f}",
            "--format",
            "json",
        ],
        environment=dict(os.environ),
        **options,
    )


def pretend_another_machine(place: Path) -> None:
    """Change what a stored baseline says of its machine, and make its times a hundredth."""
    for path in place.rglob("fingerprint.json"):
        fingerprint = json.loads(path.read_text(encoding="utf-8"))
        fingerprint["cpu"]["brand"] = "Another CPU"
        fingerprint["cpu"]["microarchitecture"] = "sapphirerapids"
        fingerprint["machine_id"] = f"another-{fingerprint['machine_id']}"
        path.write_text(json.dumps(fingerprint, indent=1), encoding="utf-8")
    for path in place.rglob("timings.json"):
        timings = json.loads(path.read_text(encoding="utf-8"))
        for benchmark in timings["benchmarks"]:
            for entry in benchmark["runs"]:
                entry["values"] = [value / 100 for value in entry.get("values", ())] or entry.get("values")
        path.write_text(json.dumps(timings, indent=1), encoding="utf-8")


_PERFGUARD = (sys.executable, "-m", "perfguard")
