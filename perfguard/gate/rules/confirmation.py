"""A flag must come back with both arms moved elsewhere before it is red.

Where code and data happen to lie can make identical work several per cent slower, and does so for as long as paths and
environments stay the same. An independent run with other paths and another environment size tells such luck from a
slowdown.

Source: Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously Wrong!", ASPLOS 2009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfguard.gate.rules.compare import compare_paired
from perfguard.gate.rules.reasons import effect_values
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.run import PairedData
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import Confirmation, Outcome, Policy, Verdict
from perfguard.stats.p_values import p_slower

CONFIRMATION_ANALYSES = (5, 10)
"""Blocks after which a confirmation is looked at; the second look only where the first did not confirm and time is
left. Each spends half of the level."""


def flagged_cases(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Cases that would make the gate red."""
    return tuple(v.case_id for v in verdicts if v.outcome is Outcome.REGRESSED and v.gating is Gating.GATING)


def confirm(data: PairedData, cases: Sequence[Case], policy: Policy) -> dict[str, Confirmation]:
    """What the blocks of the confirmation say of each flagged case.

    Confirmed is what is slower *at all* there, one-sided at half of the policy's confirmation level, so that two
    analyses keep the level. The size of the effect was shown before; this only rules out luck of the layout.

    Args:
        data: Blocks of the confirmation alone.
        cases: The flagged cases.
        policy: Its `confirm_level` and `interval_level`.
    """
    found = {}
    for comparison in compare_paired(data, cases, policy):
        estimate = comparison.estimate
        if estimate is None or estimate.blocks < 2:
            found[comparison.case_id] = Confirmation(
                confirmed=False, estimate=None, p_slower=None, problem=comparison.problem
            )
            continue
        p_value = min(1.0, len(CONFIRMATION_ANALYSES) * p_slower(estimate, 0.0))
        confirmed = p_value <= policy.confirm_level
        found[comparison.case_id] = Confirmation(confirmed=confirmed, estimate=estimate, p_slower=p_value)
    return found


def apply_confirmations(verdicts: Sequence[Verdict], confirmations: Mapping[str, Confirmation]) -> tuple[Verdict, ...]:
    """Verdicts in which only confirmed flags are red; a flag that did not come back is inconclusive.

    Args:
        verdicts: In the order of the suite.
        confirmations: By case id; flagged cases without one were never confirmed.
    """
    return tuple(_ruled(verdict, confirmations.get(verdict.case_id)) for verdict in verdicts)


def _ruled(verdict: Verdict, confirmation: Confirmation | None) -> Verdict:
    if verdict.outcome is not Outcome.REGRESSED or verdict.gating is not Gating.GATING:
        return verdict
    if confirmation is None:
        return replace(
            verdict,
            outcome=Outcome.INCONCLUSIVE,
            reasons=(fact("confirmation.not_measured", severity=Severity.NOTABLE), *verdict.reasons),
        )
    outcome = Outcome.REGRESSED if confirmation.confirmed else Outcome.INCONCLUSIVE
    return replace(
        verdict, outcome=outcome, reasons=(*verdict.reasons, *_reasons(confirmation)), confirmation=confirmation
    )


def _reasons(confirmation: Confirmation) -> tuple[Fact, ...]:
    estimate = confirmation.estimate
    if estimate is None:
        impossible = fact("confirmation.impossible", severity=Severity.NOTABLE)
        return (impossible,) if confirmation.problem is None else (impossible, confirmation.problem)
    return (
        fact(
            "confirmation.done",
            effect_values(estimate.log_ratio, estimate.interval),
            confirmed=confirmation.confirmed,
            blocks=estimate.blocks,
        ),
    )
