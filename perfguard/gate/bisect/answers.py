"""From the gate of the good commit against another to an answer for the search, and what a culprit explains. Pure."""

from __future__ import annotations

import math

from perfguard.config import Config
from perfguard.errors import PerfguardError
from perfguard.records.bisection import Answer, CaseEffect, MeasuredTree
from perfguard.records.result import RunResult
from perfguard.records.verdict import GateOutcome, GateResult, Outcome, Verdict
from perfguard.units import format_effect

NOT_SLOWER = (Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.ALLOWED)
"""Outcomes of a commit that does not hold the culprit."""

UNMEASURABLE = "error"
"""Stands for the gate's outcome where no gate could be made."""


def measured_tree(tree: str, result: RunResult) -> MeasuredTree:
    """What a finished gate of the good commit says of a tree."""
    answer, reason = _answer(result.gate)
    verdicts = result.gate.verdicts if result.gate else ()
    return MeasuredTree(
        tree=tree,
        answer=answer,
        gate=result.verdict,
        reason=reason,
        cases=tuple(_effect(verdict) for verdict in verdicts),
        run_id=result.run_id,
        duration_s=result.duration_s,
    )


def unmeasurable_tree(tree: str, error: PerfguardError) -> MeasuredTree:
    """What a gate says that could not be made, for instance because the commit does not install."""
    return MeasuredTree(tree=tree, answer=Answer.SKIP, gate=UNMEASURABLE, reason=str(error).splitlines()[0])


def is_worth_keeping(measured: MeasuredTree) -> bool:
    """Whether a later bisection should believe it: not where the host, rather than the commit, prevented an answer."""
    return measured.gate != GateOutcome.HOST_UNSTABLE.value


def regressed_cases(total: MeasuredTree) -> tuple[CaseEffect, ...]:
    """The cases that are worth a search."""
    return tuple(effect for effect in total.cases if effect.outcome == Outcome.REGRESSED.value)


def equivalence_for(total: MeasuredTree, config: Config) -> float:
    """Largest effect of a commit that still counts as none: half of the smallest that is searched for.

    So a commit is good only where it is shown to be nearer to the good end than to the bad one, however small or large
    the slowdown is. Cases that regressed in another signal than time have no effect to halve.

    Args:
        total: The good revision against the bad one.
        config: With the margin, below which nothing is told apart, and the equivalence for cases without an effect.
    """
    effects = [math.expm1(effect.log_ratio) for effect in regressed_cases(total) if effect.log_ratio is not None]
    slower = [effect for effect in effects if effect > config.margin]
    return max(min(slower) / 2, config.margin) if slower else config.equivalence


def unexplained(total: MeasuredTree, culprit: MeasuredTree) -> tuple[str, ...]:
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
        shown = f"{whole.case_id}: {format_effect(part.log_ratio)} here, {format_effect(whole.log_ratio)} in total"
        found.append(
            f"{shown}: later commits make it slower still; bisect again from this one"
            if rest > 0
            else f"{shown}: later commits win a part of it back"
        )
    return tuple(found)


def _answer(gate: GateResult | None) -> tuple[Answer, str]:
    if gate is None:
        return Answer.SKIP, "nothing was judged"
    if gate.identical and gate.outcome is GateOutcome.PASS:
        return Answer.GOOD, "runs the same files as the good revision"
    regressed = [verdict for verdict in gate.verdicts if verdict.outcome is Outcome.REGRESSED]
    if regressed:
        return Answer.BAD, "; ".join(f"{verdict.case_id}: {verdict.reason}" for verdict in regressed)
    if gate.outcome is GateOutcome.HOST_UNSTABLE:
        return Answer.SKIP, gate.reason
    unclear = [verdict for verdict in gate.verdicts if verdict.outcome not in NOT_SLOWER]
    if unclear:
        return Answer.SKIP, "; ".join(
            f"{verdict.case_id} {verdict.outcome.value}: {verdict.reason}" for verdict in unclear
        )
    return Answer.GOOD, gate.reason


def _effect(verdict: Verdict) -> CaseEffect:
    estimate = verdict.comparison.estimate
    return CaseEffect(
        case_id=verdict.case_id,
        outcome=verdict.outcome.value,
        log_ratio=_finite(estimate.log_ratio) if estimate else None,
        lower=_finite(estimate.interval.lower) if estimate else None,
        upper=_finite(estimate.interval.upper) if estimate else None,
        blocks=estimate.blocks if estimate else 0,
        reason=verdict.reason,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _half_width(effect: CaseEffect) -> float:
    if effect.lower is None or effect.upper is None:
        return math.inf
    return (effect.upper - effect.lower) / 2
