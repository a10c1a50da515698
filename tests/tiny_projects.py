"""What tests of the command line on small projects share: changes to a project, and what a result says of its cases."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.conftest import Project

DOUBLED = ("return sum(range(LENGTH))", "return [sum(range(LENGTH)) for _ in range(2)][0]")
"""A replacement in `tiny_work.py`: twice the work, the same result."""

UPDATE = ("baseline", "update", "--rounds", "4", "--spread", "0", "--allow-unfit", "--no-progress")
"""Records a small baseline, whatever the host."""


def verdicts(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The verdicts of a gate by case."""
    return {verdict["case_id"]: verdict for verdict in result["gate"]["verdicts"]}


def outcomes(result: Mapping[str, Any]) -> dict[str, str]:
    """What a gate says of each case."""
    return {case_id: verdict["outcome"] for case_id, verdict in verdicts(result).items()}


def noted(result: Mapping[str, Any], code: str) -> list[dict[str, Any]]:
    """The notes of a code, of a run and of its gate, as JSON has them."""
    notes = [*result["notes"], *((result["gate"] or {}).get("notes", ()))]
    return [note for note in notes if note["code"] == code]


def facts(holder: Mapping[str, Any], code: str) -> list[dict[str, Any]]:
    """All facts with a code among the reasons of a result, a gate or a verdict."""
    return [reason for reason in holder["reasons"] if reason["code"] == code]


def passes(result: Mapping[str, Any]) -> bool:
    """Whether the gate passes; on a disturbed host, whose verdict is `host-unstable`, that counts as a pass."""
    return result["exit_code"] == 0 or result["verdict"] == "host-unstable"


def baseline_of(project: Project) -> Path:
    """Where the only stored baseline of a project lies."""
    (place,) = (project.path / "baselines").glob("*/tiny")
    return place


def record_as_taking(place: Path, seconds: float) -> None:
    """Give stored rounds other times, as another machine would have: every case takes so long, hardly scattered."""
    file = place / "timings.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    for benchmark in document["benchmarks"]:
        for number, run in enumerate(benchmark["runs"]):
            run["values"] = [seconds * (1 + number / 1000) for _ in run["values"]]
    file.write_text(json.dumps(document), encoding="utf-8")


def wait_for(condition: Callable[[], object], *, seconds: float = 300.0) -> bool:
    """Whether a condition came true; gives up after a generous while."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
