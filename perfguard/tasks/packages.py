"""Writes a run of a task as a package: one folder in the layout of MLPerf Mobile's submissions, with checksums."""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgspec.structs import replace

from perfguard.codec import to_json
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.records.task_results import Package
from perfguard.records.tasks import ComplianceTest, Mode, Scenario, TaskCell, TaskPlan

MANIFEST = "package.json"
ORGANIZATION = "perfguard"
SCENARIO_FOLDERS = {Scenario.SINGLE_STREAM: "SingleStream", Scenario.OFFLINE: "Offline", Scenario.SERVER: "Server"}


def logs_folder(
    plan: TaskPlan, system: str, cell: TaskCell, mode: Mode, number: int, *, test: ComplianceTest | None = None
) -> Path:
    """Where LoadGen's logs of one measurement are, relative to the package."""
    name = Path("performance", f"run_{number + 1}") if mode is Mode.PERFORMANCE else Path("accuracy")
    if test is not None:
        name = Path("compliance", test.value if number == 0 else f"{test.value}-{number + 1}")
    benchmark = f"{plan.task.name}-{cell.id.replace('#', '-')}"
    return Path(_own(plan), "results", system, benchmark, SCENARIO_FOLDERS[plan.scenario], name)


def task_file(plan: TaskPlan) -> Path:
    """Where the task is, relative to the package."""
    return _own(plan) / "code" / f"{plan.task.name}.json"


def system_file(plan: TaskPlan, system: str) -> Path:
    """Where the description of the machine is, relative to the package."""
    return _own(plan) / "systems" / f"{system}.json"


def _own(plan: TaskPlan) -> Path:
    return Path("open" if plan.is_open else "closed", ORGANIZATION)


def describe_system(root: Path, plan: TaskPlan, system: str, fingerprint: Fingerprint) -> None:
    """Write what was measured on, and the task itself."""
    for path, value in ((system_file(plan, system), fingerprint), (task_file(plan), plan.task)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(to_json(value, indent=1) + "\n", encoding="utf-8")


def write_manifest(root: Path, package: Package) -> None:
    """Write `package.json`, with the checksum of every file that is there."""
    text = to_json(replace(package, files=checksums(root)), indent=1)
    (root / MANIFEST).write_text(text + "\n", encoding="utf-8")


def checksums(root: Path) -> dict[str, str]:
    """SHA-256 of every file of a package but `package.json`, by path."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
