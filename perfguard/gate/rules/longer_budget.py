"""The budget with which a gate that ended inconclusive is expected to decide."""

from __future__ import annotations

import math

from perfguard.records.spec import Gating
from perfguard.records.verdict import GateOutcome, GateResult, Outcome

_STEP_S = 30.0


def longer_budget(gate: GateResult, *, budget_s: float) -> float | None:
    """Seconds in which every open case gets the blocks that it lacks; None where that is unknown.

    The open cases share their blocks, so the neediest decides. `budget_s` is the budget that was too short.
    """
    if gate.outcome is not GateOutcome.INCONCLUSIVE:
        return None
    open_cases = [v for v in gate.verdicts if v.gating is Gating.GATING and v.outcome is Outcome.INCONCLUSIVE]
    more_s = [next((found.values.get("more_s") for found in case.reasons), None) for case in open_cases]
    known_s = [float(seconds) for seconds in more_s if isinstance(seconds, int | float)]
    if not known_s or len(known_s) < len(open_cases):
        return None
    return math.ceil((budget_s + max(known_s)) / _STEP_S) * _STEP_S
