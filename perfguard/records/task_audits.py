"""What an audit of a package of task results found."""

from __future__ import annotations

from msgspec import Struct

from perfguard.records.facts import Fact
from perfguard.records.tasks import Scenario, TaskCell


class CellAudit(Struct, frozen=True, kw_only=True):
    """One cell of a package, measured again."""

    cell: TaskCell
    claimed: float  # Score of the package: seconds, or samples per second offline
    found: tuple[float, ...]  # Scores of the tries, in order; the last one ended them
    claimed_quality: float | None
    found_quality: float | None
    findings: tuple[Fact, ...]  # What the package claims and the audit did not find; empty: passed
    is_finished: bool = True  # Whether all of it was measured


class Audit(Struct, frozen=True, kw_only=True):
    """An audit of a package; `audit.json` of its run's folder."""

    run_id: str
    machine: str  # One line
    machine_id: str
    package_machine_id: str  # Where the package was measured
    task: str
    scenario: Scenario
    broken: tuple[Fact, ...]  # Run rules that the package breaks
    cells: tuple[CellAudit, ...]
    exit_code: int
