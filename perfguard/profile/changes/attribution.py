"""Which ops made a case's step slower or faster: the whole way from two profiled arms to culprits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfguard.profile.changes.balance import balance_of
from perfguard.profile.changes.cause_facts import moved_fact
from perfguard.profile.changes.counted import Change
from perfguard.profile.changes.culprits import WORTH_NAMING, FoundCulprits, find_culprits
from perfguard.profile.changes.diff import OpDiff, diff_ops, op_deltas
from perfguard.profile.changes.op_counts import records_of
from perfguard.profile.changes.weighing import MovedCost
from perfguard.profile.op_times.arm_profile import ArmProfile
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.steps.ops import Attribution, Culprit, StepBalance


def attribute(case_id: str, baseline: ArmProfile, candidate: ArmProfile, changes: Sequence[Change] = ()) -> Attribution:
    """Compare two arms op by op and name what changed.

    One process of each arm gives no intervals: then only what is counted differently can be a culprit.

    Args:
        case_id: What was profiled.
        baseline: One arm.
        candidate: The other one; its processes were interleaved with those of the same number.
        changes: By op counts, gravest first; empty where ops were not counted.

    Raises:
        MeasurementError: No process was profiled in both arms.
    """
    diff = diff_ops(baseline, candidate)
    balance = balance_of(baseline, candidate, diff)
    found = find_culprits(diff, balance, changes)
    return Attribution(
        case_id=case_id,
        balance=balance,
        culprits=found.culprits,
        deltas=op_deltas(diff, found.moved_columns(diff)),
        census_changes=records_of(changes),
        notes=tuple(_notes(diff, balance, found)),
        processes=len(diff.pairs),
        steps=min(baseline.profile.wall_s.size, candidate.profile.wall_s.size),
    )


def is_worth_telling(cost: MovedCost, balance: StepBalance, blamed: Sequence[Culprit]) -> bool:
    """Whether a cost that moved is told: where culprits are named, only what is as large as they."""
    moved_s = sum(rise.delta_s for rise in cost.rises)
    return not blamed or moved_s >= WORTH_NAMING * abs(balance.delta_s)


def _notes(diff: OpDiff, balance: StepBalance, found: FoundCulprits) -> list[Fact]:
    moved = [cost for cost in found.moved if is_worth_telling(cost, balance, found.blamed)]
    notes = [moved_fact(diff, cost) for cost in moved[:1]]
    if not math.isfinite(balance.lower_s):
        notes.append(fact("ops.one_process", severity=Severity.NOTABLE))
    return notes
