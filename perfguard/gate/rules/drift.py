"""Drift: many small slips that no single gate sees, told against an anchor, an older baseline that stays.

Numbers of another day only screen here, as they do for baselines: what they show to be beyond the anchor's margin is
paired with the anchor's commit, and is red only where those pairs say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import Comparison, Outcome, Verdict
from perfguard.stats.p_values import holm

DRIFT_SHARE = 0.25
"""Part of the gate's level that a gate with an anchor spends on drift; what is left goes to the baseline."""

_SMALL_STEP = (Outcome.SAME_CODE, Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.ALLOWED)
_OVERRULED = (*_SMALL_STEP, Outcome.INCONCLUSIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How far a case is from its anchor, by the stored numbers."""

    comparison: Comparison
    """Fresh rounds against those of the anchor; its margin is the anchor's."""
    is_beyond: bool
    """Whether a gating case is shown to be slower by more than the margin, over the family of gating cases."""


def screen_drift(comparisons: Sequence[Comparison], *, alpha: float) -> tuple[Drift, ...]:
    """Which cases are shown to have drifted beyond their margin, in the order of `comparisons`.

    Args:
        comparisons: Fresh rounds against the anchor's, at the anchor's margin.
        alpha: Family-wise level over the gating cases.

    Source: Holm (1979).
    """
    family = [c for c in comparisons if c.gating is Gating.GATING and c.estimate and c.p_regressed is not None]
    adjusted = holm([c.p_regressed for c in family if c.p_regressed is not None])
    beyond = {c.case_id for c, p_value in zip(family, adjusted, strict=True) if p_value <= alpha}
    return tuple(Drift(comparison=c, is_beyond=c.case_id in beyond) for c in comparisons)


def drift_note(drift: Drift, since: str) -> Fact:
    """How far a case is from its anchor.

    Args:
        drift: Of one case.
        since: When the anchor was recorded.
    """
    comparison, estimate = drift.comparison, drift.comparison.estimate
    if estimate is None:
        return fact("drift.unknown", case_id=comparison.case_id, since=since)
    return fact(
        "drift.measured",
        severity=Severity.NOTABLE if drift.is_beyond else Severity.INFO,
        case_id=comparison.case_id,
        since=since,
        log_ratio=estimate.log_ratio,
        log_ratio_lower=estimate.interval.lower,
        log_ratio_upper=estimate.interval.upper,
        margin_ratio=comparison.margin_ratio,
        is_beyond=drift.is_beyond,
    )


def merge_drift(verdicts: Sequence[Verdict], paired: Sequence[Verdict], since: str) -> tuple[Verdict, ...]:
    """Verdicts in which cases are red that pairs with the anchor's commit showed to have drifted.

    A pair with the anchor reddens and never clears: whatever else it says changes nothing. A case that is red, failed
    or different already keeps its verdict.

    Args:
        verdicts: Against the baseline, in the order of the suite.
        paired: Against the anchor, after confirmation; of some cases.
        since: When the anchor was recorded.
    """
    drifted = {v.case_id: v for v in paired if v.outcome is Outcome.REGRESSED and v.gating is Gating.GATING}
    return tuple(_merged(verdict, drifted.get(verdict.case_id), since) for verdict in verdicts)


def _merged(verdict: Verdict, drifted: Verdict | None, since: str) -> Verdict:
    if drifted is None or verdict.outcome not in _OVERRULED or drifted.comparison.estimate is None:
        return verdict
    drift = fact(
        "drift.since_anchor",
        log_ratio=drifted.comparison.estimate.log_ratio,
        since=since,
        # Of a step that nobody could measure it cannot be said that it was small.
        in_small_steps=verdict.outcome in _SMALL_STEP,
    )
    return replace(drifted, reasons=(drift, *drifted.reasons))
