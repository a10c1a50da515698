"""The budget with which a gate that ended inconclusive is expected to decide."""

from __future__ import annotations

import math

from msgspec import Struct

from perfguard.records.facts import Fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import GateOutcome, GateResult, Outcome

_STEP_S = 30.0


class LongerBudget(Struct, frozen=True, kw_only=True):
    """What is expected to decide an open gate."""

    budget_s: float  # Wall seconds of the whole gate
    blocks: int | None = None  # Where the limit of blocks is too low as well


def longer_budget(gate: GateResult, *, budget_s: float, max_blocks: int) -> LongerBudget | None:
    """The limits in which every open case gets the blocks that it lacks; None where that is unknown.

    The open cases share their blocks, so the neediest decides. `budget_s` and `max_blocks` were too low.
    """
    if gate.outcome is not GateOutcome.INCONCLUSIVE:
        return None
    open_cases = [v for v in gate.verdicts if v.gating is Gating.GATING and v.outcome is Outcome.INCONCLUSIVE]
    needed = [blocks for case in open_cases for found in case.reasons if (blocks := _number(found, "needed_blocks"))]
    known_s = [next(filter(None, (_number(found, "more_s") for found in case.reasons)), None) for case in open_cases]
    more_s = [seconds for seconds in known_s if seconds is not None]
    if not more_s or len(more_s) < len(open_cases):
        return None
    return LongerBudget(
        budget_s=math.ceil((budget_s + max(more_s)) / _STEP_S) * _STEP_S,
        blocks=round(max(needed)) if needed and max(needed) > max_blocks else None,
    )


def _number(found: Fact, name: str) -> float | None:
    value = found.values.get(name)
    return float(value) if isinstance(value, int | float) else None
