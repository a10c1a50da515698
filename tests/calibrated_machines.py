"""What is known of a machine from its calibration, as it is stored: its scope, gates of identical arms, a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfguard.records.calibration import AAGate, Scope, SuitePlan
from perfguard.records.facts import fact

if TYPE_CHECKING:
    from perfguard.records.calibration import PlannedCase

SCOPE = Scope(
    machine_id="intel-x-1",
    stack_id="torch2.13.0-py3.11-0",
    software={"torch": "2.13.0", "python": "3.11.7"},
    cpus=4,
    env_profile="stable",
    rule=2,
    alpha=0.008,
    margin_ratio=0.005,
)


def gate_of(run_id: str, **fields: Any) -> AAGate:
    """A gate of identical arms that passed, with relocated arms."""
    known = {
        "finished_at": "2026-01-02T03:04:05Z",
        "outcome": "pass",
        "flagged": (),
        "placebo": True,
        "banked": False,
        "blocks": 10,
        "block_s": 5.0,
        "duration_s": 70.0,
        "overhead_s": 20.0,
        "cases": {},
    }
    return AAGate(run_id=run_id, **{**known, **fields})


def plan_of(*cases: PlannedCase, minutes: float | None = None) -> SuitePlan:
    """A plan to find 2 % with 95 % power in ten minutes."""
    return SuitePlan(
        suite="pr",
        machine_id=SCOPE.machine_id,
        cpus=SCOPE.cpus,
        env_profile=SCOPE.env_profile,
        created_at="2026-01-02T03:04:05Z",
        source=fact("plan.from_run", run_id="r", status="absent"),
        detect_ratio=0.02,
        power=0.95,
        alpha=0.008,
        budget_s=600.0,
        blocks_within=60,
        minutes=minutes,
        cases=cases,
    )
