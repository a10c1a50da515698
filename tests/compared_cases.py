"""Cases as gates compare them, for tests of what follows from a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from perfguard.gate.rules.policy import conclude, decide_cases
from perfguard.records.facts import fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import Comparison, GateResult, Outcome, Policy, Verdict
from perfguard.stats.p_values import p_faster, p_slower
from perfguard.stats.paired import from_standard_error


def compared(
    case_id: str = "x",
    effect: float = 0.0,
    *,
    sd: float = 0.004,
    error: float | None = None,
    blocks: int = 10,
    margin: float = 0.005,
    **fields: Any,
) -> Comparison:
    """A candidate that is slower by `effect`.

    Args:
        case_id: The case.
        effect: 0.02 for 2 %.
        sd: Between blocks.
        error: Standard error; None takes it from `sd`.
        blocks: How many.
        margin: Smallest slowdown that matters.
        fields: Further ones.
    """
    estimate = from_standard_error(
        math.log1p(effect),
        sd / math.sqrt(blocks) if error is None else error,
        block_sd=sd,
        blocks=blocks,
        degrees_of_freedom=blocks - 1.0,
        level=0.95,
    )
    known: dict[str, Any] = {"gating": Gating.GATING, **fields}
    return Comparison(
        case_id=case_id,
        estimate=estimate,
        p_regressed=p_slower(estimate, margin),
        p_improved=p_faster(estimate, margin),
        baseline_median_s=1e-3,
        candidate_median_s=1e-3,
        margin_ratio=margin,
        **known,
    )


def unmeasured(case_id: str = "x", **fields: Any) -> Comparison:
    """A comparison without times."""
    known: dict[str, Any] = {"gating": Gating.GATING, "estimate": None, "margin_ratio": 0.005, **fields}
    return Comparison(
        case_id=case_id, p_regressed=None, p_improved=None, baseline_median_s=None, candidate_median_s=None, **known
    )


def verdict_without_times(case_id: str, outcome: Outcome, code: str = "as.seen") -> Verdict:
    """A verdict, for tests in which its times have no part."""
    return Verdict(
        case_id=case_id, outcome=outcome, gating=Gating.GATING, reasons=(fact(code),), comparison=unmeasured(case_id)
    )


def judge(comparisons: Sequence[Comparison], policy: Policy, **known: Any) -> GateResult:
    """Decide every case and the gate."""
    return conclude(decide_cases(comparisons, policy), policy, **known)
