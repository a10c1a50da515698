"""The facts that give a verdict's reason: what was seen, with the numbers that led to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfguard.records.estimate import Estimate, Interval
from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import Comparison, Design, GateOutcome, Outcome, Policy, Verdict
from perfguard.stats.power import blocks_needed
from perfguard.stats.voiding import Voiding


def effect_values(log_ratio: float, interval: Interval) -> Mapping[str, Value]:
    """An effect and its interval as values of a fact: log scale, infinite ends left out."""
    ends = {"log_ratio_lower": interval.lower, "log_ratio_upper": interval.upper}
    return {"log_ratio": log_ratio, **{name: end for name, end in ends.items() if math.isfinite(end)}}


def effect(comparison: Comparison, p_value: float, corrected_for: int | None) -> Fact:
    """A slowdown or an improvement that was shown.

    Args:
        comparison: With an estimate.
        p_value: Of the test that was passed.
        corrected_for: Cases in the family; None for a test of its own.
    """
    return fact("verdict.effect", _measured(comparison), p=p_value, cases=corrected_for)


def unchanged(comparison: Comparison, policy: Policy) -> Fact:
    """The whole interval lies inside the equivalence margin."""
    return fact("verdict.unchanged", _measured(comparison), equivalence_ratio=policy.equivalence_ratio)


def too_few_blocks(comparison: Comparison, needed: int) -> Fact:
    """Fewer blocks or rounds than the policy's minimum."""
    blocks = _estimate(comparison).blocks
    more_s = None
    if comparison.design is Design.PAIRED and comparison.block_s is not None:
        more_s = (needed - blocks) * comparison.block_s
    return fact("verdict.too_few_blocks", _sample(comparison), needed=needed, more_s=more_s)


def inconclusive(comparison: Comparison, policy: Policy, *, mde_ratio: float, test_alpha: float) -> tuple[Fact, ...]:
    """What could not be seen, and how many blocks and minutes would show it."""
    estimate, target, margin = _estimate(comparison), policy.equivalence_ratio, comparison.margin_ratio
    if mde_ratio <= target:
        return (fact("verdict.undecided", _measured(comparison), margin_ratio=margin, equivalence_ratio=target),)
    needed: int | None = None
    if comparison.design is Design.PAIRED:
        needed = blocks_needed(target, estimate.block_sd, alpha=test_alpha, margin_ratio=margin)
        needed = needed if needed is not None and needed > estimate.blocks else None
    more_s = None
    if needed is not None and comparison.block_s is not None:
        more_s = (needed - estimate.blocks) * comparison.block_s
    noisy = fact(
        "verdict.too_noisy",
        _sample(comparison),
        mde_ratio=mde_ratio,
        target_ratio=target,
        needed_blocks=needed,
        more_s=more_s,
    )
    if not _is_beyond(estimate, margin):
        return (noisy,)
    beyond = fact(
        "verdict.beyond_margin",
        effect_values(estimate.log_ratio, estimate.interval),
        margin_ratio=margin,
        level_ratio=estimate.interval.level,
        needed_level_ratio=1 - test_alpha,
    )
    return noisy, beyond


def demoted(comparison: Comparison, policy: Policy) -> Fact:
    """A case that was asked to gate is too noisy for that."""
    return fact(
        "verdict.demoted",
        severity=Severity.NOTABLE,
        unit="block" if comparison.design is Design.PAIRED else "round",
        block_sd_ratio=_estimate(comparison).block_sd,
        limit_ratio=policy.max_block_sd_ratio,
    )


def gate_reasons(
    held: Sequence[GateOutcome], verdicts: Sequence[Verdict], policy: Policy, voiding: Voiding | None
) -> tuple[Fact, ...]:
    """Everything that holds of the gate, the deciding fact first."""
    gating = [verdict for verdict in verdicts if verdict.gating is Gating.GATING]
    return tuple(_gate_reason(outcome, gating, policy, voiding) for outcome in held)


def voiding_notes(voiding: Voiding | None) -> tuple[Fact, ...]:
    """Which blocks were disturbed and how, and whether they were voided, in the order of the blocks."""
    if voiding is None:
        return ()
    return tuple(
        fact(
            "host.block_disturbed",
            entry.causes,
            severity=Severity.NOTABLE,
            block=entry.block + 1,
            is_voided=entry in voiding.voided,
        )
        for entry in sorted((*voiding.voided, *voiding.spared), key=lambda entry: entry.block)
    )


def _gate_reason(outcome: GateOutcome, gating: Sequence[Verdict], policy: Policy, voiding: Voiding | None) -> Fact:
    if outcome is GateOutcome.PASS:
        faster = tuple(v.case_id for v in gating if v.outcome is Outcome.IMPROVED)
        allowed = tuple(v.case_id for v in gating if v.outcome is Outcome.ALLOWED)
        return fact(
            "gate.passed",
            unchanged=len(gating) - len(faster) - len(allowed),
            cases=len(gating),
            equivalence_ratio=policy.equivalence_ratio,
            faster=faster,
            allowed=allowed,
        )
    if outcome is GateOutcome.HOST_UNSTABLE and voiding is not None:
        disturbed, voided = len(voiding.voided) + len(voiding.spared), len(voiding.voided)
        return fact(
            "gate.host_unstable",
            severity=Severity.GRAVE,
            disturbed=disturbed,
            blocks=voiding.blocks_total,
            voided=voided,
        )
    if not gating:
        return fact("gate.no_gating_case", severity=Severity.NOTABLE)
    concerned = [verdict for verdict in gating if verdict.outcome.value == outcome.value]
    return fact(
        "gate.cases",
        severity=Severity.GRAVE,
        outcome=outcome.value,
        cases=len(gating),
        case_ids=tuple(verdict.case_id for verdict in concerned),
        log_ratios=_effects(concerned) if outcome is GateOutcome.REGRESSED else (),
    )


def _effects(verdicts: Sequence[Verdict]) -> tuple[float, ...]:
    """Effects of verdicts; empty where one has none, as a recording holds no nan."""
    estimates = [verdict.comparison.estimate for verdict in verdicts]
    return () if None in estimates else tuple(estimate.log_ratio for estimate in estimates if estimate is not None)


def _is_beyond(estimate: Estimate, margin_ratio: float) -> bool:
    """Whether all of the interval is beyond the margin, which is not yet enough at a gate's error rate."""
    margin = math.log1p(margin_ratio)
    return estimate.interval.lower > margin or estimate.interval.upper < -margin


def _measured(comparison: Comparison) -> Mapping[str, Value]:
    estimate = _estimate(comparison)
    return {**effect_values(estimate.log_ratio, estimate.interval), **_sample(comparison)}


def _sample(comparison: Comparison) -> Mapping[str, Value]:
    """Paired blocks, or rounds a side against a stored baseline."""
    name = "blocks" if comparison.design is Design.PAIRED else "rounds"
    return {name: _estimate(comparison).blocks}


def _estimate(comparison: Comparison) -> Estimate:
    if comparison.estimate is None:
        raise ValueError(f"{comparison.case_id} has no estimate")
    return comparison.estimate
