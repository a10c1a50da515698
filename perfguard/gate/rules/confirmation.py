"""A flag must come back with both arms moved elsewhere before it is red.

Where code and data happen to lie can make identical work several per cent slower, and does so for as long as paths and
environments stay the same. An independent run with other paths and another environment size separates such luck from a
slowdown. What luck does to a step's time it does to its CPU seconds, its energy and its cache misses as well, so flags
of signals are confirmed, too.

Source: Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously Wrong!", ASPLOS 2009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perfguard.gate.rules.compare import compare_paired
from perfguard.gate.rules.policy import effect_values
from perfguard.gate.rules.signals import block_pairs, rule_of, zero_bar
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.run import PairedData, SignalSamples
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import Comparison, Confirmation, Outcome, Policy, SignalFinding, Verdict
from perfguard.stats.confirming import analyses_of, p_over_analyses
from perfguard.stats.p_values import p_slower


def is_flagged(verdict: Verdict) -> bool:
    """Whether a verdict makes the gate red."""
    return verdict.outcome is Outcome.REGRESSED and verdict.gating is Gating.GATING


def flagged_cases(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Cases that would make the gate red."""
    return tuple(verdict.case_id for verdict in verdicts if is_flagged(verdict))


def confirm(data: PairedData, cases: Sequence[Case], policy: Policy) -> dict[str, Confirmation]:
    """What the blocks of the confirmation alone say of each flagged case.

    Confirmed is what is slower *at all* there, one-sided at the policy's confirmation level over all analyses. The size
    of the effect was shown before; this only rules out luck of the layout.
    """
    numbers = sorted({entry.block for entry in data.samples})
    parts = [_first(data, numbers[:analysis]) for analysis in analyses_of(len(numbers))]
    compared = [compare_paired(part, cases, policy) for part in parts]
    return {
        comparison.case_id: _confirmation(comparison, analyses, policy)
        for comparison, *analyses in zip(compare_paired(data, cases, policy), *compared, strict=True)
    }


def _confirmation(comparison: Comparison, analyses: Sequence[Comparison], policy: Policy) -> Confirmation:
    estimates = [each.estimate for each in analyses if each.estimate is not None and each.estimate.blocks > 1]
    if comparison.estimate is None or not estimates:
        return Confirmation(confirmed=False, estimate=None, p_slower=None, problem=comparison.problem)
    p_value = p_over_analyses([p_slower(each, 0.0) for each in estimates], [each.blocks for each in estimates])
    return Confirmation(confirmed=p_value <= policy.confirm_level, estimate=comparison.estimate, p_slower=p_value)


def apply_confirmations(verdicts: Sequence[Verdict], confirmations: Mapping[str, Confirmation]) -> tuple[Verdict, ...]:
    """Verdicts in which only confirmed flags are red; a flag that did not come back is inconclusive.

    Flagged cases without a confirmation, by case id, were never confirmed.
    """
    return tuple(
        _timed(verdict, confirmations.get(verdict.case_id)) if is_flagged(verdict) else verdict for verdict in verdicts
    )


def _timed(verdict: Verdict, confirmation: Confirmation | None) -> Verdict:
    if confirmation is None:
        missing = fact("confirmation.not_measured", severity=Severity.NOTABLE)
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, reasons=(missing, *verdict.reasons))
    estimate, seen = confirmation.estimate, []
    if estimate is None:
        seen = [fact("confirmation.impossible", severity=Severity.NOTABLE)]
        seen += [confirmation.problem] if confirmation.problem else []
    else:
        values = effect_values(estimate.log_ratio, estimate.interval)
        seen = [fact("confirmation.done", values, confirmed=confirmation.confirmed, blocks=estimate.blocks)]
    outcome = Outcome.REGRESSED if confirmation.confirmed else Outcome.INCONCLUSIVE
    return replace(verdict, outcome=outcome, reasons=(*verdict.reasons, *seen), confirmation=confirmation)


def confirm_signals(
    timed: Sequence[Verdict], judged: Sequence[Verdict], data: Sequence[SignalSamples], policy: Policy
) -> tuple[Verdict, ...]:
    """Verdicts in which a signal alone makes a case red only where relocated arms show more of it *at all*.

    `timed` are verdicts on the times, with their own confirmation, and `judged` the same after the signals' ruling; the
    data are of the blocks of the confirmation alone.
    """
    ruled = []
    for before, after in zip(timed, judged, strict=True):
        if not is_flagged(after) or before.outcome is Outcome.REGRESSED:  # a time that is confirmed is enough
            ruled.append(after)
            continue
        flags = [found for found in after.signals if found.gating and found.outcome is Outcome.REGRESSED]
        entries = [entry for entry in data if entry.case_id == after.case_id]
        found = [_confirmed(flag, entries, policy) for flag in flags]
        outcome = Outcome.REGRESSED if any(entry.values["confirmed"] for entry in found) else Outcome.INCONCLUSIVE
        ruled.append(replace(after, outcome=outcome, reasons=(*after.reasons, *found)))
    return tuple(ruled)


def _confirmed(flag: SignalFinding, entries: Sequence[SignalSamples], policy: Policy) -> Fact:
    """Whether a signal's flag came back."""
    rule = rule_of(flag.signal)
    blocks = block_pairs(entries, rule.signal)
    if len(blocks) < 2:
        return fact("signal.confirmation", signal=flag.signal, confirmed=False, blocks=None)
    bars = {analysis: zero_bar(rule, blocks[:analysis]) for analysis in analyses_of(len(blocks))}
    p_values = {analysis: bar.p_up() for analysis, bar in bars.items() if bar is not None}
    confirmed = bool(p_values) and p_over_analyses(list(p_values.values()), list(p_values)) <= policy.confirm_level
    return fact("signal.confirmation", signal=flag.signal, confirmed=confirmed, blocks=len(blocks))


def _first(data: PairedData, blocks: Sequence[int]) -> PairedData:
    """The data of some blocks alone."""
    return replace(
        data,
        samples=tuple(entry for entry in data.samples if entry.block in blocks),
        conditions=tuple(entry for entry in data.conditions if entry.block in blocks),
    )
