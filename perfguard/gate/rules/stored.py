"""What stored numbers may decide by themselves, and what has to be measured in pairs.

Numbers of another day cannot tell another machine from other code (docs/decisions/0006-stored-baselines.md): they may
clear a case, they neither condemn nor praise one. Where most of a suite has moved, they do not clear either: one commit
seldom moves most cases, another host moves all of them, and a faster one hides a slowdown.

Drift, many small slips that no single gate sees, is measured against an anchor, an older baseline that stays. There,
too, numbers only screen: what they show to be beyond the anchor's margin is paired with the anchor's commit, and is red
only where those pairs say so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from msgspec.structs import replace

from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.run import Round
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import Comparison, Outcome, Verdict
from perfguard.stats.p_values import holm

MOVED_SHARE = 0.5
"""From this part of the gating cases on, the machine is taken to have moved, and nothing is cleared unpaired."""

SPEED_WORTH_TELLING = 0.02  # Change of the control workload's time that is said; a ratio

DRIFT_SHARE = 0.25
"""Part of the gate's level that a gate with an anchor spends on drift; what is left goes to the baseline."""

_FEW = 2  # One case that moved is a case, whatever the size of its suite
_MOVED = (Outcome.REGRESSED, Outcome.IMPROVED)
_SMALL_STEP = (Outcome.SAME_CODE, Outcome.UNTOUCHED, Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.ALLOWED)


def cases_to_pair(cases: Sequence[Case], verdicts: Sequence[Verdict]) -> tuple[Case, ...]:
    """The gating cases that a stored baseline's numbers cannot clear, in the order of the suite.

    The verdicts are what the stored numbers say of the suite's cases, in the same order.
    """
    machine_moved = has_machine_moved(cases, verdicts)
    return tuple(
        case
        for case, verdict in zip(cases, verdicts, strict=True)
        if case.gating is Gating.GATING
        and (
            verdict.outcome in (*_MOVED, Outcome.INCONCLUSIVE)
            # Noise between rounds demotes a case against stored numbers; pairs may well be quiet enough to decide it.
            or (verdict.outcome is Outcome.UNCHANGED and (machine_moved or verdict.gating is Gating.ADVISORY))
        )
    )


def has_machine_moved(cases: Sequence[Case], verdicts: Sequence[Verdict]) -> bool:
    """Whether so many gating cases are shown to be slower or faster that the machine is the likely reason."""
    gating = [verdict.outcome for case, verdict in zip(cases, verdicts, strict=True) if case.gating is Gating.GATING]
    return sum(outcome in _MOVED for outcome in gating) >= max(_FEW, MOVED_SHARE * len(gating))


def speed_note(stored: Mapping[str, Sequence[Round]], fresh: Mapping[str, Sequence[Round]]) -> tuple[Fact, ...]:
    """What the control workload says of the machine, then and now; nothing where it hardly moved.

    Without it a reader wonders why an effect is not the ratio of the two medians beside it.
    """
    before, now = _control_s(stored.values()), _control_s(fresh.values())
    if before is None or now is None or abs(math.log(now / before)) < math.log1p(SPEED_WORTH_TELLING):
        return ()
    return (fact("host.speed_changed", severity=Severity.NOTABLE, log_ratio=math.log(now / before)),)


def _control_s(cases: Iterable[Sequence[Round]]) -> float | None:
    values = [median(entry.control_s) for rounds in cases for entry in rounds if entry.control_s]
    typical = median(values) if values else 0.0
    return typical if typical > 0 else None


def left_open(verdict: Verdict, *, why: tuple[Fact, ...]) -> Verdict:
    """The verdict of a gating case that could not be paired: what the stored numbers show of it stays open, and why."""
    if verdict.gating is not Gating.GATING or verdict.outcome not in (*_MOVED, Outcome.UNCHANGED):
        return verdict
    open_ = fact("stored.left_open", severity=Severity.NOTABLE, outcome=verdict.outcome.value)
    return replace(verdict, outcome=Outcome.INCONCLUSIVE, reasons=(open_, *why, *verdict.reasons))


def screen_drift(comparisons: Sequence[Comparison], *, alpha: float) -> frozenset[str]:
    """Which gating cases are shown to have drifted beyond their margin.

    Compared are fresh rounds with the anchor's, at the anchor's margin; alpha is the family-wise level over the gating
    cases.

    Source: Holm (1979).
    """
    p_values = {c.case_id: c.p_regressed for c in comparisons if c.gating is Gating.GATING and c.estimate}
    known = {case_id: p_value for case_id, p_value in p_values.items() if p_value is not None}
    adjusted = zip(known, holm(list(known.values())), strict=True)
    return frozenset(case_id for case_id, p_value in adjusted if p_value <= alpha)


def drift_note(comparison: Comparison, since: str, *, is_beyond: bool) -> Fact:
    """How far a case is from its anchor, which was recorded on that day."""
    estimate = comparison.estimate
    if estimate is None:
        return fact("drift.unknown", case_id=comparison.case_id, since=since)
    return fact(
        "drift.measured",
        severity=Severity.NOTABLE if is_beyond else Severity.INFO,
        case_id=comparison.case_id,
        since=since,
        log_ratio=estimate.log_ratio,
        log_ratio_lower=estimate.interval.lower,
        log_ratio_upper=estimate.interval.upper,
        margin_ratio=comparison.margin_ratio,
        is_beyond=is_beyond,
    )


def merge_drift(verdicts: Sequence[Verdict], paired: Sequence[Verdict], since: str) -> tuple[Verdict, ...]:
    """Verdicts in which cases are red that pairs with the anchor's commit showed to have drifted.

    A pair with the anchor reddens and never clears: whatever else it says changes nothing. A case that is red, failed
    or different already keeps its verdict. `paired` are verdicts on some cases against the anchor, after confirmation.
    """
    drifted = {v.case_id: v for v in paired if v.outcome is Outcome.REGRESSED and v.gating is Gating.GATING}
    return tuple(_merged(verdict, drifted.get(verdict.case_id), since) for verdict in verdicts)


def _merged(verdict: Verdict, drifted: Verdict | None, since: str) -> Verdict:
    estimate = drifted.comparison.estimate if drifted else None
    if drifted is None or estimate is None or verdict.outcome not in (*_SMALL_STEP, Outcome.INCONCLUSIVE):
        return verdict
    # Of a step that nobody could measure it cannot be said that it was small.
    values: dict[str, Value] = {"log_ratio": estimate.log_ratio, "since": since}
    drift = fact("drift.since_anchor", values, in_small_steps=verdict.outcome in _SMALL_STEP)
    return replace(drifted, reasons=(drift, *drifted.reasons))
