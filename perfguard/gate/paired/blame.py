"""What attributions add to verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from perfguard.records.steps.ops import Attribution
from perfguard.records.verdict import GateResult, Outcome, Verdict


def blamed(gate: GateResult, attributions: Mapping[str, Attribution]) -> GateResult:
    """The gate's result whose verdicts say which ops their difference is in.

    Args:
        gate: The result.
        attributions: By case id.
    """
    verdicts = tuple(
        replace(verdict, blame=_sentence(verdict, attributions[verdict.case_id]))
        if verdict.case_id in attributions
        else verdict
        for verdict in gate.verdicts
    )
    return replace(gate, verdicts=verdicts)


def _sentence(verdict: Verdict, attribution: Attribution) -> str:
    """The attribution's, and that it contradicts the verdict where it does: profiled steps are few."""
    balance = attribution.balance
    was_faster = math.isfinite(balance.upper_s) and balance.upper_s < 0
    was_slower = math.isfinite(balance.lower_s) and balance.lower_s > 0
    if (verdict.outcome is Outcome.REGRESSED and was_faster) or (verdict.outcome is Outcome.IMPROVED and was_slower):
        return f"the few steps that were profiled went the other way, so this explains little: {attribution.sentence}"
    if verdict.outcome is Outcome.UNCHANGED and (was_faster or was_slower):
        return f"by all blocks the step is unchanged, the few that were profiled differ: {attribution.sentence}"
    return attribution.sentence
