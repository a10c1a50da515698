"""What attributions add to verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perfguard.model.ops import Attribution
from perfguard.model.verdict import GateResult


def blamed(gate: GateResult, attributions: Mapping[str, Attribution]) -> GateResult:
    """The gate's result whose verdicts say which ops their difference is in.

    Args:
        gate: The result.
        attributions: By case id.
    """
    verdicts = tuple(
        replace(verdict, blame=attributions[verdict.case_id].sentence) if verdict.case_id in attributions else verdict
        for verdict in gate.verdicts
    )
    return replace(gate, verdicts=verdicts)
