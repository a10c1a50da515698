"""Which ops made a case's step slower or faster: the whole way from two profiled arms to a sentence."""

from __future__ import annotations

import math

from perfguard.profile.changes.balance import balance_of
from perfguard.profile.changes.culprits.finding import find_culprits
from perfguard.profile.changes.diff import diff_ops, op_deltas
from perfguard.profile.changes.sentences import attribution_sentence, is_worth_telling, moved_phrase
from perfguard.profile.op_times.arm_profile import ArmProfile
from perfguard.records.facts import Severity, fact
from perfguard.records.steps.ops import Attribution, CensusChange

_ONE_PROCESS = fact("ops.one_process", severity=Severity.NOTABLE)


def attribute(
    case_id: str, baseline: ArmProfile, candidate: ArmProfile, census_changes: tuple[CensusChange, ...]
) -> Attribution:
    """Compare two arms op by op and name what changed.

    One process of each arm gives no intervals: then only what is counted differently can be a culprit.

    Args:
        case_id: What was profiled.
        baseline: One arm.
        candidate: The other one; its processes were interleaved with those of the same number.
        census_changes: What is executed otherwise, gravest first; empty where it was not counted.

    Raises:
        MeasurementError: No process was profiled in both arms.
    """
    diff = diff_ops(baseline, candidate)
    balance = balance_of(baseline, candidate, diff)
    found = find_culprits(diff, balance)
    moved = [moved_phrase(diff, cost) for cost in found.moved if is_worth_telling(cost, balance, found.blamed)]
    return Attribution(
        case_id=case_id,
        sentence=attribution_sentence(
            balance, found.blamed, found.facts, found.minor, moved=moved, census_changes=census_changes
        ),
        balance=balance,
        culprits=found.culprits,
        deltas=op_deltas(diff, found.moved_columns(diff)),
        census_changes=census_changes,
        notes=() if math.isfinite(balance.lower_s) or not found.culprits else (_ONE_PROCESS,),
        processes=len(diff.pairs),
        steps=min(baseline.profile.wall_s.size, candidate.profile.wall_s.size),
    )
