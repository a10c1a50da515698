"""From evidence to verdicts: the rule that a gate decides by.

`unchanged` is not corrected for the number of cases, and need not be: a gate passes only when *every* gating
case is shown to be unchanged or faster, so one truly slow case is passed with at most its own error (Berger
1982, an intersection-union test).

`decide_cases` gives each case its verdict from its evidence; `confirmation`, `signals` and `rulings` may then change
it; `conclude` says what follows for the gate.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from perfguard.config import FAIL_ON_CHOICES
from perfguard.errors import ExitCode, UsageError
from perfguard.records.estimate import Estimate, Interval
from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import Comparison, Design, GateOutcome, GateResult, Outcome, Policy, Verdict
from perfguard.stats.p_values import holm
from perfguard.stats.power import blocks_needed, minimum_detectable_effect
from perfguard.stats.voiding import Voiding

_EXITS = {
    GateOutcome.FAILED: ("failed", ExitCode.INFRASTRUCTURE),
    GateOutcome.INVALID: ("regression", ExitCode.REGRESSION),
    GateOutcome.REGRESSED: ("regression", ExitCode.REGRESSION),
    GateOutcome.HOST_UNSTABLE: ("inconclusive", ExitCode.INCONCLUSIVE),
    GateOutcome.INCOMPARABLE: ("missing", ExitCode.INFRASTRUCTURE),
    GateOutcome.NO_BASELINE: ("missing", ExitCode.INFRASTRUCTURE),
    GateOutcome.DIFFERENT: ("different", ExitCode.INCONCLUSIVE),
    GateOutcome.INCONCLUSIVE: ("inconclusive", ExitCode.INCONCLUSIVE),
}
"""The name of each outcome for `--fail-on` and its exit code, in the order of precedence."""


def decide_cases(comparisons: Sequence[Comparison], policy: Policy) -> tuple[Verdict, ...]:
    """A verdict for each case, in the same order.

    Regressions and improvements are each tested over the family of gating cases by Holm. Noise does not change the
    family: a gating case noisier than the policy allows is tested in it like the others, and is demoted to advisory
    only where neither was shown. Cases that the suite calls advisory are tested on their own and never fail the gate.

    Source: docs/statistics.md; Holm (1979).
    Assumes: p-values are valid at their margins; Holm needs no assumption about their dependence.
    """
    family = [
        c
        for c in comparisons
        if c.gating is Gating.GATING and c.estimate and c.estimate.blocks >= _least_blocks(c, policy)
    ]
    slower = holm([p_or_one(c.p_regressed) for c in family])
    faster = holm([p_or_one(c.p_improved) for c in family])
    adjusted = {c.case_id: tested for c, tested in zip(family, zip(slower, faster, strict=True), strict=True)}
    return tuple(_verdict(c, adjusted.get(c.case_id), len(family), policy) for c in comparisons)


def conclude(
    verdicts: Sequence[Verdict], policy: Policy, *, voiding: Voiding | None = None, notes: Sequence[Fact] = ()
) -> GateResult:
    """What the cases' verdicts, in the order of the suite, mean for the gate.

    The outcome is the first that holds of: failed, invalid, regressed, host-unstable, incomparable, no-baseline,
    different, inconclusive, pass; its reason names all that hold. Without a gating case left the gate is inconclusive,
    never a silent pass. There is no voiding against a stored baseline; notes come before those of the gate.
    """
    held = _held(verdicts, host_unstable=voiding is not None and voiding.is_unstable)
    gating = [verdict for verdict in verdicts if verdict.gating is Gating.GATING]
    blocks = [v.comparison.estimate.blocks for v in verdicts if v.comparison.estimate]
    return GateResult(
        outcome=held[0],
        reasons=tuple(_gate_reason(outcome, gating, policy, voiding) for outcome in held),
        verdicts=tuple(verdicts),
        policy=policy,
        blocks_total=voiding.blocks_total if voiding else max(blocks, default=0),
        blocks_voided=len(voiding.voided) if voiding else 0,
        notes=(*notes, *_voiding_notes(voiding)),
    )


def exit_code(result: GateResult, *, fail_on: Collection[str] = FAIL_ON_CHOICES, exit_zero: bool = False) -> ExitCode:
    """The process exit code that a gate's result stands for; always 0 where it only reports (`exit_zero`).

    What is not in `fail_on` is passed over, and whatever else holds of the gate then decides: with
    `--fail-on regression`, a crash of one case does not hide the regression of another.

    Raises:
        UsageError: `fail_on` holds a name that is not in `FAIL_ON_CHOICES`.
    """
    unknown = sorted(set(fail_on) - set(FAIL_ON_CHOICES))
    if unknown:
        raise UsageError(f"--fail-on does not know {', '.join(unknown)}; use {', '.join(FAIL_ON_CHOICES)}")
    if exit_zero or (result.identical and result.outcome is GateOutcome.PASS):
        return ExitCode.PASS
    held = {result.outcome, *_held(result.verdicts, host_unstable=False)}
    return next(
        (code for outcome, (name, code) in _EXITS.items() if outcome in held and name in fail_on), ExitCode.PASS
    )


def p_or_one(p_value: float | None) -> float:
    """A p-value, or 1 where nothing could be tested: what is unknown is never significant."""
    return 1.0 if p_value is None else p_value


def effect_values(log_ratio: float, interval: Interval) -> Mapping[str, Value]:
    """An effect and its interval as values of a fact: log scale, infinite ends left out."""
    ends = {"log_ratio_lower": interval.lower, "log_ratio_upper": interval.upper}
    return {"log_ratio": log_ratio, **{name: end for name, end in ends.items() if math.isfinite(end)}}


def is_equivalent(interval: Interval, policy: Policy) -> bool:
    """Whether all of an interval lies inside the equivalence margin.

    The margin is symmetric on the log scale, so that exchanging the arms cannot change the verdict.
    """
    limit = math.log1p(policy.equivalence_ratio)
    return -limit < interval.lower and interval.upper < limit


def _least_blocks(comparison: Comparison, policy: Policy) -> int:
    # Two is the mathematical minimum, whatever a policy says.
    return max(2, policy.min_blocks if comparison.design is Design.PAIRED else policy.min_rounds)


def _verdict(comparison: Comparison, adjusted: tuple[float, float] | None, family: int, policy: Policy) -> Verdict:
    """The verdict on a case; `adjusted` are the p-values of a case of the family, None for one that is tested alone."""
    estimate = comparison.estimate
    verdict = Verdict(
        case_id=comparison.case_id,
        outcome=comparison.problem_outcome or Outcome.FAILED,
        gating=comparison.gating,
        reasons=(comparison.problem or fact("case.not_measured"),),
        comparison=comparison,
    )
    if estimate is None:
        return verdict
    least = _least_blocks(comparison, policy)
    if estimate.blocks < least:
        more_s = _more_s(comparison, least - estimate.blocks)
        few = fact("verdict.too_few_blocks", _sample(comparison.design, estimate), needed=least, more_s=more_s)
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, reasons=(few,), mde_ratio=math.inf)
    outcome, mde_ratio, reasons = _decided(comparison, estimate, adjusted, family, policy)
    if comparison.inflation > 1:
        wider = fact("verdict.blocks_alike", severity=Severity.NOTABLE, wider_ratio=comparison.inflation - 1)
        reasons = (*reasons, wider)
    verdict = replace(
        verdict, outcome=outcome, reasons=reasons, p_adjusted=adjusted[0] if adjusted else None, mde_ratio=mde_ratio
    )
    is_shown = outcome in (Outcome.REGRESSED, Outcome.IMPROVED)
    if adjusted is None or is_shown or estimate.block_sd <= policy.max_block_sd_ratio:
        return verdict
    # Only the family's test speaks: a test of its own would call a case regressed that passes the gate.
    demoted = fact(
        "verdict.demoted",
        severity=Severity.NOTABLE,
        unit="block" if comparison.design is Design.PAIRED else "round",
        block_sd_ratio=estimate.block_sd,
        limit_ratio=policy.max_block_sd_ratio,
    )
    return replace(verdict, gating=Gating.ADVISORY, reasons=(demoted, *reasons))


def _decided(
    comparison: Comparison, estimate: Estimate, adjusted: tuple[float, float] | None, family: int, policy: Policy
) -> tuple[Outcome, float, tuple[Fact, ...]]:
    """Outcome, minimum detectable effect and reasons of a case with enough blocks."""
    cases = family if adjusted else None
    test_alpha = policy.alpha / (cases or 1)
    mde_ratio = minimum_detectable_effect(
        estimate.standard_error,
        estimate.degrees_of_freedom,
        alpha=test_alpha,
        margin_ratio=comparison.margin_ratio,
        block_sd=estimate.block_sd if comparison.design is Design.PAIRED and adjusted else None,
    )
    sample = _sample(comparison.design, estimate)
    measured = {**effect_values(estimate.log_ratio, estimate.interval), **sample}
    tested = adjusted or (p_or_one(comparison.p_regressed), p_or_one(comparison.p_improved))
    for outcome, p_value in zip((Outcome.REGRESSED, Outcome.IMPROVED), tested, strict=True):
        if p_value <= policy.alpha:
            return outcome, mde_ratio, (fact("verdict.effect", measured, p=p_value, cases=cases),)
    target, margin = policy.equivalence_ratio, comparison.margin_ratio
    if (
        is_equivalent(estimate.interval, policy)
        if comparison.p_outside is None
        else comparison.p_outside <= (1 - policy.interval_level) / 2
    ):
        return Outcome.UNCHANGED, mde_ratio, (fact("verdict.unchanged", measured, equivalence_ratio=target),)
    if mde_ratio <= target:
        undecided = fact("verdict.undecided", measured, margin_ratio=margin, equivalence_ratio=target)
        return Outcome.INCONCLUSIVE, mde_ratio, (undecided,)
    needed: int | None = None
    if comparison.design is Design.PAIRED:
        needed = blocks_needed(target, estimate.block_sd * comparison.inflation, alpha=test_alpha, margin_ratio=margin)
        needed = needed if needed is not None and needed > estimate.blocks else None
    more_s = None if needed is None else _more_s(comparison, needed - estimate.blocks)
    values = {"mde_ratio": mde_ratio, "target_ratio": target, "needed_blocks": needed, "more_s": more_s}
    noisy = fact("verdict.too_noisy", {**sample, **values})
    # All of the interval beyond the margin is not yet enough at a gate's error rate.
    log_margin = math.log1p(margin)
    if not (estimate.interval.lower > log_margin or estimate.interval.upper < -log_margin):
        return Outcome.INCONCLUSIVE, mde_ratio, (noisy,)
    beyond = fact(
        "verdict.beyond_margin",
        effect_values(estimate.log_ratio, estimate.interval),
        margin_ratio=margin,
        level_ratio=estimate.interval.level,
        needed_level_ratio=1 - test_alpha,
    )
    return Outcome.INCONCLUSIVE, mde_ratio, (noisy, beyond)


def _sample(design: Design, estimate: Estimate) -> Mapping[str, Value]:
    """Paired blocks, or rounds a side against a stored baseline."""
    return {"blocks" if design is Design.PAIRED else "rounds": estimate.blocks}


def _more_s(comparison: Comparison, blocks: int) -> float | None:
    """Wall seconds of further paired blocks; None where that is not known."""
    if comparison.block_s is None or comparison.design is not Design.PAIRED:
        return None
    return blocks * comparison.block_s


def _held(verdicts: Sequence[Verdict], *, host_unstable: bool) -> tuple[GateOutcome, ...]:
    """Everything that holds of the gate, in the order of precedence; never empty."""
    outcomes = {verdict.outcome.value for verdict in verdicts if verdict.gating is Gating.GATING}
    if not outcomes:
        outcomes = {GateOutcome.INCONCLUSIVE.value}
    if host_unstable:
        outcomes.add(GateOutcome.HOST_UNSTABLE.value)
    return tuple(outcome for outcome in _EXITS if outcome.value in outcomes) or (GateOutcome.PASS,)


def _gate_reason(outcome: GateOutcome, gating: Sequence[Verdict], policy: Policy, voiding: Voiding | None) -> Fact:
    if outcome is GateOutcome.PASS:
        faster = tuple(v.case_id for v in gating if v.outcome is Outcome.IMPROVED)
        allowed = tuple(v.case_id for v in gating if v.outcome is Outcome.ALLOWED)
        untouched = sum(v.outcome is Outcome.UNTOUCHED for v in gating)
        if untouched == len(gating):
            return fact("gate.untouched", cases=untouched)
        return fact(
            "gate.passed",
            {"untouched": untouched} if untouched else {},
            unchanged=len(gating) - len(faster) - len(allowed) - untouched,
            cases=len(gating),
            equivalence_ratio=policy.equivalence_ratio,
            faster=faster,
            allowed=allowed,
        )
    if outcome is GateOutcome.HOST_UNSTABLE and voiding is not None:
        disturbed = len(voiding.voided) + len(voiding.spared)
        values = {"disturbed": disturbed, "blocks": voiding.blocks_total, "voided": voiding.allowed}
        return fact("gate.host_unstable", values, severity=Severity.GRAVE)
    if not gating:
        return fact("gate.no_gating_case", severity=Severity.NOTABLE)
    concerned = [verdict for verdict in gating if verdict.outcome.value == outcome.value]
    effects = [verdict.comparison.estimate.log_ratio for verdict in concerned if verdict.comparison.estimate]
    is_known = outcome is GateOutcome.REGRESSED and len(effects) == len(concerned)  # a recording holds no nan
    return fact(
        "gate.cases",
        severity=Severity.GRAVE,
        outcome=outcome.value,
        cases=len(gating),
        case_ids=tuple(verdict.case_id for verdict in concerned),
        log_ratios=tuple(effects) if is_known else (),
    )


def _voiding_notes(voiding: Voiding | None) -> tuple[Fact, ...]:
    """Which blocks were disturbed and how, and whether they were voided, in the order of the blocks."""
    disturbed = sorted((*voiding.voided, *voiding.spared), key=lambda entry: entry.block) if voiding else ()
    return tuple(
        fact(
            "host.block_disturbed",
            entry.causes,
            severity=Severity.NOTABLE,
            block=entry.block + 1,
            is_voided=voiding is not None and entry in voiding.voided,
        )
        for entry in disturbed
    )
