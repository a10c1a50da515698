"""The sentences that give a verdict's reason: short, factual, with the numbers that led to it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import Comparison, Design, GateOutcome, Outcome, Policy, Verdict
from perfguard.stats.power import blocks_needed
from perfguard.units import format_duration, format_effect, format_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfguard.records.estimate import Estimate
    from perfguard.stats.voiding import Voiding

_NAMED_CASES = 3


def effect_sentence(comparison: Comparison, p_value: float, corrected_for: int | None) -> str:
    """`12.3 % slower [+11.8 %, +12.9 %] in 18 paired blocks; p = 2e-09 after correction for 6 cases`.

    Args:
        comparison: With an estimate.
        p_value: Of the test that was passed.
        corrected_for: Cases in the family; None for a test of its own.
    """
    correction = f"after correction for {_cases(corrected_for)}" if corrected_for else "uncorrected"
    return f"{_measured(comparison)}; p = {p_value:.2g} {correction}"


def unchanged_sentence(comparison: Comparison, policy: Policy) -> str:
    """`+0.10 % [-0.2 %, +0.4 %] in 18 paired blocks: all of it inside ±2.00 %`."""
    return f"{_measured(comparison)}: all of it inside ±{format_ratio(policy.equivalence_ratio)}"


def too_few_sentence(comparison: Comparison, needed: int) -> str:
    """Why nothing is said below the policy's minimum."""
    text = f"only {_sample(comparison)}; at least {needed} are needed for a verdict"
    blocks = comparison.estimate.blocks if comparison.estimate else 0
    if comparison.design is Design.ROUNDS or comparison.block_s is None:
        return text
    return f"{text}, {format_duration((needed - blocks) * comparison.block_s)} more on this machine"


def inconclusive_sentence(comparison: Comparison, policy: Policy, *, mde_ratio: float, test_alpha: float) -> str:
    """What could not be seen, and how many blocks and minutes would show it."""
    estimate = _estimate(comparison)
    target = policy.equivalence_ratio
    if mde_ratio > target:
        text = f"could not see effects under {format_ratio(mde_ratio)} in {_sample(comparison)}"
        if _is_beyond(estimate, comparison.margin_ratio):
            level, needed_level = format_ratio(estimate.interval.level), format_ratio(1 - test_alpha)
            text += f"; {_effect(estimate)} is beyond {format_ratio(comparison.margin_ratio)} at {level}, "
            text += f"and a flag needs {needed_level}"
        if comparison.design is Design.ROUNDS:
            return text
        needed = blocks_needed(target, estimate.block_sd, alpha=test_alpha, margin_ratio=comparison.margin_ratio)
        if needed is not None and needed > estimate.blocks:
            text += f"; about {needed} blocks would do for {format_ratio(target)}"
            if comparison.block_s is not None:
                text += f", {format_duration((needed - estimate.blocks) * comparison.block_s)} more on this machine"
        return text
    return (
        f"{_measured(comparison)}: neither shown to be beyond {format_ratio(comparison.margin_ratio)} "
        f"nor to be inside ±{format_ratio(target)}"
    )


def _is_beyond(estimate: Estimate, margin_ratio: float) -> bool:
    """Whether all of the interval is beyond the margin, which is not yet enough at a gate's error rate."""
    margin = math.log1p(margin_ratio)
    return estimate.interval.lower > margin or estimate.interval.upper < -margin


def demotion_sentence(comparison: Comparison, policy: Policy) -> str:
    """Why a case that was asked to gate does not."""
    block_sd = format_ratio(_estimate(comparison).block_sd)
    unit = "block" if comparison.design is Design.PAIRED else "round"
    limit = format_ratio(policy.max_block_sd_ratio)
    return f"advisory only, too noisy to gate ({unit} SD {block_sd}, limit {limit})"


def gate_sentence(
    held: Sequence[GateOutcome], verdicts: Sequence[Verdict], policy: Policy, voiding: Voiding | None
) -> str:
    """Everything that holds of the gate, the deciding one first."""
    gating = [verdict for verdict in verdicts if verdict.gating is Gating.GATING]
    parts = [_gate_part(outcome, gating, policy, voiding) for outcome in held]
    return "; ".join(parts)


def voiding_notes(voiding: Voiding | None) -> tuple[Fact, ...]:
    """Which blocks were disturbed and how, and whether they were voided, in the order of the blocks."""
    if voiding is None:
        return ()
    disturbed = sorted((*voiding.voided, *voiding.spared), key=lambda entry: entry.block)
    return tuple(
        fact(
            "host.block_disturbed",
            severity=Severity.NOTABLE,
            block=entry.block + 1,
            is_voided=entry in voiding.voided,
            **entry.causes,
        )
        for entry in disturbed
    )


def _gate_part(outcome: GateOutcome, gating: Sequence[Verdict], policy: Policy, voiding: Voiding | None) -> str:
    if outcome is GateOutcome.PASS:
        faster = [v for v in gating if v.outcome is Outcome.IMPROVED]
        allowed = [v for v in gating if v.outcome is Outcome.ALLOWED]
        unchanged = len(gating) - len(faster) - len(allowed)
        limit = format_ratio(policy.equivalence_ratio)
        text = f"{unchanged} of {_cases(len(gating))} unchanged within ±{limit}"
        if faster:
            text += f", {len(faster)} faster: {_names(faster)}"
        if allowed:
            text += f", {len(allowed)} slower but allowed: {_names(allowed)}"
        return text
    if outcome is GateOutcome.HOST_UNSTABLE and voiding is not None:
        disturbed = len(voiding.voided) + len(voiding.spared)
        return (
            f"{disturbed} of {voiding.blocks_total} blocks were disturbed, of which {len(voiding.voided)} may be voided"
        )
    if not gating:
        return "no case is left to decide by: none is gating, or all were too noisy"
    concerned = [verdict for verdict in gating if verdict.outcome.value == outcome.value]
    names = _names(concerned, with_effect=outcome is GateOutcome.REGRESSED)
    return f"{len(concerned)} of {_cases(len(gating))} {outcome.value}: {names}"


def _names(verdicts: Sequence[Verdict], *, with_effect: bool = True) -> str:
    shown = []
    for verdict in verdicts[:_NAMED_CASES]:
        estimate = verdict.comparison.estimate
        effect = f" ({format_effect(estimate.log_ratio)})" if with_effect and estimate else ""
        shown.append(f"{verdict.case_id}{effect}")
    more = len(verdicts) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _measured(comparison: Comparison) -> str:
    return f"{_effect(_estimate(comparison))} in {_sample(comparison)}"


def _effect(estimate: Estimate) -> str:
    direction = "slower" if estimate.log_ratio > 0 else "faster"
    lower, upper = format_effect(estimate.interval.lower), format_effect(estimate.interval.upper)
    # Beyond e^50 the ratio has no meaning for a reader, and expm1 overflows soon after.
    effect = format_ratio(abs(math.expm1(min(estimate.log_ratio, 50.0))))
    return f"{effect} {direction} [{lower}, {upper}]"


def _sample(comparison: Comparison) -> str:
    blocks = _estimate(comparison).blocks
    unit = "paired block" if comparison.design is Design.PAIRED else "round"
    return f"{blocks} {unit}{'' if blocks == 1 else 's'}" + ("" if comparison.design is Design.PAIRED else " a side")


def _cases(count: int | None) -> str:
    return f"{count} case" if count == 1 else f"{count} cases"


def _estimate(comparison: Comparison) -> Estimate:
    if comparison.estimate is None:
        raise ValueError(f"{comparison.case_id} has no estimate: {comparison.problem}")
    return comparison.estimate
