"""Op counts of cases of the catalogue, each counted in one fresh worker, for tests and for the proof."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perfguard.host.probe import probe
from perfguard.profile.changes.op_counts import compare_op_counts
from perfguard.profile.runs.profiling import isa_of, op_counts_of_case
from perfguard.records.plan import MeasureSettings
from perfguard.records.ranks import runs_apart
from perfguard.records.run import Arm
from perfguard.report.messages.catalog import describe
from perfguard.runner.profiling.cases import Profiling, profile_cases
from tests.real_workers import starter_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perfguard.records.spec import Case
    from perfguard.records.steps.ops import OpCounts

SETTINGS = MeasureSettings(setup_timeout_s=600, sample_timeout_s=300, seed=11)


@dataclass(frozen=True, slots=True)
class Counted:
    """What one worker counted."""

    op_counts: dict[str, OpCounts] = field(default_factory=dict)
    """By case id."""
    problems: dict[str, str] = field(default_factory=dict)
    """By case id: why it could not be counted. A case that is in neither was not reached."""


def is_countable(case: Case) -> bool:
    """Whether a case computes in the worker itself, by PyTorch, where its ops can be counted."""
    return "task" not in case.tags and not runs_apart(case.target, dict(case.parameters))


def count_cases(cases: Sequence[Case], place: Path) -> Counted:
    """Count one steady step of each case, all in one fresh worker; no further step is profiled.

    Args:
        cases: What to count.
        place: An empty or absent folder for what the worker leaves.
    """
    starter = starter_in(place, SETTINGS)
    profiling = Profiling(
        starter=starter,
        settings=SETTINGS,
        cpus=starter.cpus,
        folder=place / "profiles",
        arms=(Arm.CANDIDATE,),
        processes=1,
        steps=0,
        most_steps=0,
        where=False,
        should_stop=lambda: False,
        progress=lambda _: None,
    )
    try:
        found = profile_cases(cases, profiling)
    finally:
        starter.close()
    isa_class = isa_of(probe())
    reached = [case for case in cases if (case.id, Arm.CANDIDATE) in found.processes]
    return Counted(
        {case.id: op_counts_of_case(found, case, Arm.CANDIDATE, isa_class) for case in reached},
        {case_id: problem.reason for case_id, problem in found.problems.items()},
    )


def differences(first: OpCounts, second: OpCounts) -> list[str]:
    """What two op counts count otherwise, to the byte; empty where they are the same."""
    if first.rows == second.rows:
        return []
    told = [describe(change.fact) for change in compare_op_counts(first, second)]
    rows = len({*first.rows} ^ {*second.rows})
    return told or [f"{rows} rows differ by bytes alone"]
