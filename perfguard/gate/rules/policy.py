"""From evidence to verdicts: the rule that a gate decides by.

`unchanged` is not corrected for the number of cases, and need not be: a gate passes only when *every* gating
case is shown to be unchanged or faster, so one truly slow case is passed with at most its own error (Berger
1982, an intersection-union test).

`decide_cases` gives each case its verdict from its evidence; rulings in modules of their own may then change it
(confirmation, numerics, modes, signals, allowances); `conclude` says what follows for the gate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfguard.errors import ExitCode, UsageError
from perfguard.gate.rules import reasons
from perfguard.records.facts import Fact, fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import Comparison, Design, GateOutcome, GateResult, Outcome, Policy, Verdict
from perfguard.stats.p_values import holm
from perfguard.stats.power import minimum_detectable_effect

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from perfguard.stats.voiding import Voiding

FAIL_ON_CHOICES = ("regression", "failed", "missing", "different", "inconclusive")
"""What `--fail-on` accepts; all of them by default. `missing` is a case without a comparable baseline, `different` one
whose arms do not compute the same thing."""

_PRECEDENCE = (
    GateOutcome.FAILED,
    GateOutcome.REGRESSED,
    GateOutcome.HOST_UNSTABLE,
    GateOutcome.INCOMPARABLE,
    GateOutcome.NO_BASELINE,
    GateOutcome.DIFFERENT,
    GateOutcome.INCONCLUSIVE,
)

_EXITS = {
    GateOutcome.FAILED: ("failed", ExitCode.INFRASTRUCTURE),
    GateOutcome.REGRESSED: ("regression", ExitCode.REGRESSION),
    GateOutcome.HOST_UNSTABLE: ("inconclusive", ExitCode.INCONCLUSIVE),
    GateOutcome.INCOMPARABLE: ("missing", ExitCode.INFRASTRUCTURE),
    GateOutcome.NO_BASELINE: ("missing", ExitCode.INFRASTRUCTURE),
    GateOutcome.DIFFERENT: ("different", ExitCode.INCONCLUSIVE),
    GateOutcome.INCONCLUSIVE: ("inconclusive", ExitCode.INCONCLUSIVE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tested:
    p_slower: float
    p_faster: float
    family: int | None
    """Cases that the p-values are corrected for; None for a test of its own."""


def judge(
    comparisons: Sequence[Comparison], policy: Policy, *, voiding: Voiding | None = None, notes: Sequence[Fact] = ()
) -> GateResult:
    """Decide every case and the gate.

    Regressions and improvements are each tested over the family of gating cases by Holm. Noise does not change the
    family: a gating case noisier than the policy allows is tested in it like the others, and is demoted to advisory
    only where neither was shown. Cases that the suite calls advisory are tested on their own and never fail the gate.

    Args:
        comparisons: The evidence, in the order of the suite.
        policy: The rule.
        voiding: What the arm-blind rule did; None against a stored baseline.
        notes: Further notes for the reader, kept first.

    Returns:
        `conclude` of what `decide_cases` says.
    """
    return conclude(decide_cases(comparisons, policy), policy, voiding=voiding, notes=notes)


def decide_cases(comparisons: Sequence[Comparison], policy: Policy) -> tuple[Verdict, ...]:
    """A verdict for each case, in the same order.

    Source: docs/statistics.md; Holm (1979).
    Assumes: p-values are valid at their margins; Holm needs no assumption about their dependence.
    """
    family = [c for c in comparisons if c.gating is Gating.GATING and c.estimate and not _too_few(c, policy)]
    slower = holm([p_or_one(c.p_regressed) for c in family])
    faster = holm([p_or_one(c.p_improved) for c in family])
    tested = {
        c.case_id: _Tested(p_slower=s, p_faster=f, family=len(family))
        for c, s, f in zip(family, slower, faster, strict=True)
    }
    return tuple(_verdict(c, tested.get(c.case_id), policy) for c in comparisons)


def conclude(
    verdicts: Sequence[Verdict], policy: Policy, *, voiding: Voiding | None = None, notes: Sequence[Fact] = ()
) -> GateResult:
    """What the cases' verdicts mean for the gate.

    Args:
        verdicts: In the order of the suite.
        policy: The rule.
        voiding: What the arm-blind rule did; None against a stored baseline.
        notes: Further notes for the reader, kept first.

    Returns:
        The gate's outcome is the first that holds of: failed, regressed, host-unstable, incomparable, no-baseline,
        different, inconclusive, pass; its reason names all that hold. Without a gating case left the gate is
        inconclusive, never a silent pass.
    """
    held = _held(verdicts, host_unstable=voiding is not None and bool(voiding.spared))
    blocks = [v.comparison.estimate.blocks for v in verdicts if v.comparison.estimate]
    return GateResult(
        outcome=held[0],
        reasons=reasons.gate_reasons(held, verdicts, policy, voiding),
        verdicts=tuple(verdicts),
        policy=policy,
        blocks_total=voiding.blocks_total if voiding else max(blocks, default=0),
        blocks_voided=len(voiding.voided) if voiding else 0,
        notes=(*notes, *reasons.voiding_notes(voiding)),
    )


def exit_code(result: GateResult, *, fail_on: Collection[str] = FAIL_ON_CHOICES, exit_zero: bool = False) -> ExitCode:
    """The process exit code that a gate's result stands for.

    What is not in `fail_on` is passed over, and whatever else holds of the gate then decides: with
    `--fail-on regression`, a crash of one case does not hide the regression of another.

    Args:
        result: The judged gate.
        fail_on: Names out of `FAIL_ON_CHOICES`.
        exit_zero: Report only; always 0.

    Raises:
        UsageError: `fail_on` holds an unknown name.
    """
    unknown = sorted(set(fail_on) - set(FAIL_ON_CHOICES))
    if unknown:
        raise UsageError(f"--fail-on does not know {', '.join(unknown)}; use {', '.join(FAIL_ON_CHOICES)}")
    if exit_zero or (result.identical and result.outcome is GateOutcome.PASS):
        return ExitCode.PASS
    held = {result.outcome, *_held(result.verdicts, host_unstable=False)}
    for outcome in _PRECEDENCE:
        name, code = _EXITS[outcome]
        if outcome in held and name in fail_on:
            return code
    return ExitCode.PASS


def _verdict(comparison: Comparison, tested: _Tested | None, policy: Policy) -> Verdict:
    if comparison.estimate is None:
        return Verdict(
            case_id=comparison.case_id,
            outcome=comparison.problem_outcome or Outcome.FAILED,
            gating=comparison.gating,
            reasons=(comparison.problem or fact("case.not_measured"),),
            comparison=comparison,
        )
    if _too_few(comparison, policy):
        return Verdict(
            case_id=comparison.case_id,
            outcome=Outcome.INCONCLUSIVE,
            gating=comparison.gating,
            reasons=(reasons.too_few_blocks(comparison, _minimum(comparison, policy)),),
            comparison=comparison,
            mde_ratio=math.inf,
        )
    verdict = _decided(comparison, tested, policy)
    is_shown = verdict.outcome in (Outcome.REGRESSED, Outcome.IMPROVED)
    if tested is None or is_shown or not _too_noisy(comparison, policy):
        return verdict
    # Only the family's test speaks: a test of its own would call a case regressed that passes the gate.
    return replace(verdict, gating=Gating.ADVISORY, reasons=(reasons.demoted(comparison, policy), *verdict.reasons))


def _decided(comparison: Comparison, tested: _Tested | None, policy: Policy) -> Verdict:
    used = tested or _Tested(
        p_slower=p_or_one(comparison.p_regressed), p_faster=p_or_one(comparison.p_improved), family=None
    )
    test_alpha = policy.alpha / (used.family or 1)
    mde_ratio = _mde(comparison, test_alpha)
    if used.p_slower <= policy.alpha:
        outcome = Outcome.REGRESSED
        found: tuple[Fact, ...] = (reasons.effect(comparison, used.p_slower, used.family),)
    elif used.p_faster <= policy.alpha:
        outcome = Outcome.IMPROVED
        found = (reasons.effect(comparison, used.p_faster, used.family),)
    elif _inside_equivalence(comparison, policy):
        outcome = Outcome.UNCHANGED
        found = (reasons.unchanged(comparison, policy),)
    else:
        outcome = Outcome.INCONCLUSIVE
        found = reasons.inconclusive(comparison, policy, mde_ratio=mde_ratio, test_alpha=test_alpha)
    return Verdict(
        case_id=comparison.case_id,
        outcome=outcome,
        gating=comparison.gating,
        reasons=found,
        comparison=comparison,
        p_adjusted=tested.p_slower if tested else None,
        mde_ratio=mde_ratio,
    )


def _held(verdicts: Sequence[Verdict], *, host_unstable: bool) -> tuple[GateOutcome, ...]:
    """Everything that holds of the gate, in the order of precedence; never empty."""
    outcomes = {verdict.outcome.value for verdict in verdicts if verdict.gating is Gating.GATING}
    if not outcomes:
        outcomes = {GateOutcome.INCONCLUSIVE.value}
    if host_unstable:
        outcomes.add(GateOutcome.HOST_UNSTABLE.value)
    return tuple(outcome for outcome in _PRECEDENCE if outcome.value in outcomes) or (GateOutcome.PASS,)


def _inside_equivalence(comparison: Comparison, policy: Policy) -> bool:
    if comparison.p_outside is not None:
        return comparison.p_outside <= (1 - policy.interval_level) / 2
    # Symmetric on the log scale, so that exchanging the arms cannot change the verdict.
    limit = math.log1p(policy.equivalence_ratio)
    interval = comparison.estimate.interval if comparison.estimate else None
    return interval is not None and -limit < interval.lower and interval.upper < limit


def _mde(comparison: Comparison, test_alpha: float) -> float:
    estimate = comparison.estimate
    if estimate is None:
        return math.inf
    return minimum_detectable_effect(
        estimate.standard_error, estimate.degrees_of_freedom, alpha=test_alpha, margin_ratio=comparison.margin_ratio
    )


def _minimum(comparison: Comparison, policy: Policy) -> int:
    # Two is the mathematical minimum, whatever a policy says.
    return max(2, policy.min_blocks if comparison.design is Design.PAIRED else policy.min_rounds)


def _too_few(comparison: Comparison, policy: Policy) -> bool:
    return comparison.estimate is not None and comparison.estimate.blocks < _minimum(comparison, policy)


def _too_noisy(comparison: Comparison, policy: Policy) -> bool:
    return comparison.estimate is not None and comparison.estimate.block_sd > policy.max_block_sd_ratio


def p_or_one(p_value: float | None) -> float:
    """A p-value, or 1 where nothing could be tested: what is unknown is never significant."""
    return 1.0 if p_value is None else p_value
