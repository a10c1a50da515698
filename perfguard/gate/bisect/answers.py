"""From the gate of the good commit against another to an answer for the search, and what a culprit explains. Pure."""

from __future__ import annotations

import math

from perfguard.config import Config
from perfguard.records.bisection import Answer, CaseEffect, MeasuredTree
from perfguard.records.facts import Fact, fact
from perfguard.records.result import RunResult
from perfguard.records.verdict import GateOutcome, GateResult, Outcome, Verdict

NOT_SLOWER = (Outcome.SAME_CODE, Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.ALLOWED)
"""Outcomes of a commit that does not hold the culprit."""


def measured_tree(tree: str, result: RunResult) -> MeasuredTree:
    """What a finished gate of the good commit says of a tree."""
    answer, reasons = _answer(result.gate)
    verdicts = result.gate.verdicts if result.gate else ()
    return MeasuredTree(
        tree=tree,
        answer=answer,
        gate=result.verdict,
        reasons=reasons,
        cases=tuple(_effect(verdict) for verdict in verdicts),
        run_id=result.run_id,
        duration_s=result.duration_s,
    )


def regressed_cases(total: MeasuredTree) -> tuple[CaseEffect, ...]:
    """The cases that are worth a search."""
    return tuple(effect for effect in total.cases if effect.outcome == Outcome.REGRESSED.value)


def equivalence_for(total: MeasuredTree, config: Config) -> float:
    """Largest effect of a commit that still counts as none: half of the smallest that is searched for.

    So a commit is good only where it is shown to be nearer to the good end than to the bad one, however small or large
    the slowdown is. Cases that regressed in another signal than time have no effect to halve.

    Args:
        total: The good revision against the bad one.
        config: With the margin, below which effects count as none, and the equivalence for cases without an effect.
    """
    effects = [math.expm1(effect.log_ratio) for effect in regressed_cases(total) if effect.log_ratio is not None]
    slower = [effect for effect in effects if effect > config.margin]
    return max(min(slower) / 2, config.margin) if slower else config.equivalence


def unexplained(total: MeasuredTree, culprit: MeasuredTree) -> tuple[Fact, ...]:
    """What the culprit leaves unexplained of each case, where the two effects differ by more than their intervals."""
    found = []
    at_culprit = {effect.case_id: effect for effect in culprit.cases}
    for whole in regressed_cases(total):
        part = at_culprit.get(whole.case_id)
        if part is None or whole.log_ratio is None or part.log_ratio is None:
            continue
        rest = whole.log_ratio - part.log_ratio
        if abs(rest) <= math.hypot(_half_width(whole), _half_width(part)):
            continue
        found.append(
            fact(
                "bisect.unexplained",
                case_id=whole.case_id,
                culprit_log_ratio=part.log_ratio,
                total_log_ratio=whole.log_ratio,
                slower_later=rest > 0,
            )
        )
    return tuple(found)


def _answer(gate: GateResult | None) -> tuple[Answer, tuple[Fact, ...]]:
    if gate is None:
        return Answer.SKIP, (fact("bisect.nothing_judged"),)
    if gate.identical and gate.outcome is GateOutcome.PASS:
        return Answer.GOOD, (fact("bisect.same_files"),)
    if any(verdict.outcome is Outcome.REGRESSED for verdict in gate.verdicts):
        return Answer.BAD, gate.reasons
    is_clear = all(verdict.outcome in NOT_SLOWER for verdict in gate.verdicts)
    return Answer.GOOD if is_clear and gate.outcome is not GateOutcome.HOST_UNSTABLE else Answer.SKIP, gate.reasons


def _effect(verdict: Verdict) -> CaseEffect:
    estimate = verdict.comparison.estimate
    return CaseEffect(
        case_id=verdict.case_id,
        outcome=verdict.outcome.value,
        log_ratio=_finite(estimate.log_ratio) if estimate else None,
        lower=_finite(estimate.interval.lower) if estimate else None,
        upper=_finite(estimate.interval.upper) if estimate else None,
        blocks=estimate.blocks if estimate else 0,
        reasons=verdict.reasons,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _half_width(effect: CaseEffect) -> float:
    if effect.lower is None or effect.upper is None:
        return math.inf
    return (effect.upper - effect.lower) / 2
