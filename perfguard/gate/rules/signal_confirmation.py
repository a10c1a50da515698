"""A signal's flag, too, must come back with both arms moved elsewhere before it is red.

What luck of the layout does to a step's time it does to its CPU seconds, its energy and its cache misses as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfguard.gate.rules.confirmation import CONFIRMATION_ANALYSES
from perfguard.gate.rules.signals import RULES
from perfguard.records.facts import Fact, fact
from perfguard.records.run import SignalSamples
from perfguard.records.spec import Gating
from perfguard.records.verdict import Outcome, Policy, SignalFinding, Verdict
from perfguard.stats.signals import (
    BlockPairs,
    difference_bar,
    least_sd_of_counts,
    positive_pairs,
    ratio_bar,
    readable_pairs,
)


def confirm_signals(
    timed: Sequence[Verdict], judged: Sequence[Verdict], data: Sequence[SignalSamples], policy: Policy
) -> tuple[Verdict, ...]:
    """Verdicts in which a signal alone makes a case red only where relocated arms show more of it *at all*.

    Args:
        timed: Verdicts on the times, with their own confirmation.
        judged: The same after the signals' ruling, in the same order.
        data: Signals in the blocks of the confirmation alone.
        policy: Its `confirm_level`.
    """
    return tuple(_ruled(before, after, data, policy) for before, after in zip(timed, judged, strict=True))


def _ruled(before: Verdict, after: Verdict, data: Sequence[SignalSamples], policy: Policy) -> Verdict:
    if after.gating is not Gating.GATING or after.outcome is not Outcome.REGRESSED:
        return after
    if before.outcome is Outcome.REGRESSED:  # its time is confirmed, whatever else it costs
        return after
    flags = [found for found in after.signals if found.gating and found.outcome is Outcome.REGRESSED]
    found = [_confirmed(flag, [entry for entry in data if entry.case_id == after.case_id], policy) for flag in flags]
    outcome = Outcome.REGRESSED if any(entry.values["confirmed"] for entry in found) else Outcome.INCONCLUSIVE
    return replace(after, outcome=outcome, reasons=(*after.reasons, *found))


def _confirmed(flag: SignalFinding, entries: Sequence[SignalSamples], policy: Policy) -> Fact:
    """Whether a flag came back."""
    rule = next(rule for rule in RULES if rule.signal.value == flag.signal)
    blocks = [
        pairs
        for entry in entries
        if entry.signal is rule.signal and (pairs := readable_pairs(entry.baseline, entry.candidate)).baseline.size
    ]
    if len(blocks) < 2:
        return fact("signal.confirmation", signal=flag.signal, confirmed=False, blocks=None)
    p_value = min(1.0, len(CONFIRMATION_ANALYSES) * _p_more(blocks, is_count=rule.is_count))
    confirmed = p_value <= policy.confirm_level
    return fact("signal.confirmation", signal=flag.signal, confirmed=confirmed, blocks=len(blocks))


def _p_more(blocks: Sequence[BlockPairs], *, is_count: bool) -> float:
    if is_count:
        return difference_bar(blocks, 0.0, least_sd=least_sd_of_counts(blocks)).p_up()
    positive = [pairs for block in blocks if (pairs := positive_pairs(block)).baseline.size]
    return ratio_bar(positive, 0.0).p_up() if positive else 1.0
