"""Signals beside wall time: what a change costs that no clock shows.

An op that burns twice the cores for the same wall time passes every timing test, and costs twice as much to train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.run import Arm, Signal, SignalSamples
from perfguard.records.spec import Gating
from perfguard.records.verdict import Outcome, SignalFinding, Verdict
from perfguard.stats.p_values import holm
from perfguard.stats.signals import (
    LEAST_BLOCK_SD,
    Bar,
    BlockPairs,
    difference_bar,
    least_sd_of_counts,
    positive_pairs,
    ratio_bar,
    readable_pairs,
    share_bar,
)

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRule:
    """When a signal has changed."""

    signal: Signal
    """The signal."""
    unit: str
    """Unit of the values, as in SignalFinding."""
    margin_ratio: float
    """Smallest relative change worth a word."""
    margin: float = 0.0
    """Smallest change in the signal's own unit; a change must clear both."""
    is_count: bool = False
    """Whether the values are counts, which may be zero and are compared by their difference."""
    follows_time: bool = False
    """Whether a slower step has more of it anyway: then nothing below the margin of the case's time is worth a word."""


RULES = (
    SignalRule(signal=Signal.CPU, unit="s", margin_ratio=0.05, follows_time=True),
    SignalRule(signal=Signal.MEMORY, unit="B", margin_ratio=0.05, margin=8 * _MIB),
    SignalRule(signal=Signal.FAULTS, unit="", margin_ratio=0.5, margin=10.0, is_count=True),
    SignalRule(signal=Signal.SWITCHES, unit="", margin_ratio=0.5, margin=2.0, is_count=True),
    SignalRule(signal=Signal.ENERGY, unit="J", margin_ratio=0.05, follows_time=True),
    SignalRule(signal=Signal.INSTRUCTIONS, unit="", margin_ratio=0.02, follows_time=True),
)
"""The rule of each signal.

- CPU seconds follow wall time where the number of busy threads stays the same, and share its noise: 5 %, ten times the
  margin of the times, leaves what wall time already says to wall time, and finds a further thread at once.
- Peak memory is that of the process: torch, and what earlier cases left, a few hundred MiB. So 5 %, and 8 MiB at least,
  which is more than what layout moves.
- Page faults are 0 in a step that reuses its memory; 10 for each iteration are 40 KiB of fresh memory, 3 to 10 µs.
  Where there are many already, half as many again.
- Context switches come with the host's load and with every wait for a thread: half as many again, and 2 at least.
- Energy counts the whole package, whatever else runs there: 5 %, as for CPU seconds.
- Instructions hardly vary from process to process, so 2 % is far outside their noise.
- A project that accepts slower steps accepts what they cost: CPU seconds, energy and instructions have at least the
  margin of the case's time.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalPolicy:
    """How signals are judged."""

    alpha: float = 0.001
    """Error rate over all gating cases and gating signals of one gate: its own part of the gate's 1 %."""
    gating: tuple[Signal, ...] = (Signal.CPU,)
    """Signals whose regression fails a gate; the others are reported."""
    min_blocks: int = 5
    """Fewer usable blocks than this say nothing."""
    interval_level: float = 0.95
    """Level of the intervals that `unchanged` is judged by."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """One signal of one case, with its tests; without bars it cannot be tested, and `problem` says why."""

    rule: SignalRule
    baseline: float
    candidate: float
    bars: tuple[Bar, ...] = ()
    blocks: int = 0
    problem: Fact | None = None

    def p(self, *, improved: bool, analyses: int) -> float:
        """Largest p over the bars (Berger 1982).

        Valid whichever look was the last: the k-th spends 1 / (k (k + 1)) of the level.
        """
        worst = max(bar.p_down() if improved else bar.p_up() for bar in self.bars)
        return min(1.0, worst * analyses * (analyses + 1))


def judge_signals(
    data: Sequence[SignalSamples],
    verdicts: Sequence[Verdict],
    policy: SignalPolicy,
    *,
    voided: frozenset[int] = frozenset(),
) -> tuple[Verdict, ...]:
    """Attach what each signal says to the verdicts; a gating signal that regressed fails a gating case.

    Gating signals of gating cases are one family, corrected by Holm at `policy.alpha`. Every other finding is tested
    on its own: it is read, and decides nothing. A case that became faster stays improved whatever it costs; its
    sentence says so.

    Args:
        data: Signals by case and block, as `RunData.signals` gives them; a signal that an arm could not read has no
            finding.
        verdicts: In the order of the suite.
        policy: Level, gating signals, least number of blocks.
        voided: Blocks that the arm-blind rule left out.

    Source: Holm (1979); Berger (1982), doi:10.1080/00401706.1982.10487790: where a change must clear several bars, the
        largest p counts.
    """
    samples: dict[str, list[SignalSamples]] = {}
    for entry in data:
        if entry.block not in voided:
            samples.setdefault(entry.case_id, []).append(entry)
    measured = {
        v.case_id: _measure(samples.get(v.case_id, ()), policy, time_margin_ratio=v.comparison.margin_ratio)
        for v in verdicts
    }
    family = [
        (verdict, found)
        for verdict in verdicts
        for found in measured[verdict.case_id]
        if verdict.comparison.gating is Gating.GATING and found.bars and found.rule.signal in policy.gating
    ]
    adjusted: dict[tuple[str, Signal, bool], float] = {}
    for improved in (False, True):
        corrected = holm(
            [found.p(improved=improved, analyses=verdict.comparison.analyses) for verdict, found in family]
        )
        for (verdict, found), p_value in zip(family, corrected, strict=True):
            adjusted[verdict.case_id, found.rule.signal, improved] = p_value
    return tuple(
        _ruled(verdict, tuple(_finding(verdict, found, adjusted, policy) for found in measured[verdict.case_id]))
        for verdict in verdicts
    )


def missing_signals(missing: Mapping[Arm, Mapping[str, str]]) -> tuple[Fact, ...]:
    """Signals that could not be read, each with the reason, once where both arms say the same.

    Args:
        missing: Reasons by arm and signal, as `RunData.missing_signals` holds them.
    """
    found: dict[tuple[str, str], list[Arm]] = {}
    for arm, reasons in missing.items():
        for signal, reason in reasons.items():
            found.setdefault((signal, reason), []).append(arm)
    return tuple(
        fact("signal.missing", arm=None if len(arms) == len(missing) else arms[0].value, signal=signal, why=reason)
        for (signal, reason), arms in sorted(found.items())
    )


def _measure(
    entries: Sequence[SignalSamples], policy: SignalPolicy, *, time_margin_ratio: float
) -> tuple[_Measured, ...]:
    found = []
    for rule in (_with_margin(rule, time_margin_ratio) for rule in RULES):
        readable = [
            pairs
            for entry in entries
            if entry.signal is rule.signal and (pairs := readable_pairs(entry.baseline, entry.candidate)).baseline.size
        ]
        if readable:
            found.append(_measure_signal(rule, readable, policy))
    return tuple(found)


def _with_margin(rule: SignalRule, time_margin_ratio: float) -> SignalRule:
    return replace(rule, margin_ratio=max(rule.margin_ratio, time_margin_ratio)) if rule.follows_time else rule


def _measure_signal(rule: SignalRule, readable: Sequence[BlockPairs], policy: SignalPolicy) -> _Measured:
    baseline = median(float(median(block.baseline)) for block in readable)
    candidate = median(float(median(block.candidate)) for block in readable)
    usable = list(readable)
    if not rule.is_count:
        usable = [pairs for block in readable if (pairs := positive_pairs(block)).baseline.size]
        if not usable:
            return _Measured(rule, baseline, candidate, problem=fact("signal.zero", signal=rule.signal.value))
    if len(usable) < policy.min_blocks:
        few = fact("signal.too_few_blocks", signal=rule.signal.value, blocks=len(usable), needed=policy.min_blocks)
        return _Measured(rule, baseline, candidate, problem=few)
    return _Measured(rule, baseline, candidate, _bars(rule, usable, baseline), len(usable))


def _bars(rule: SignalRule, blocks: Sequence[BlockPairs], baseline: float) -> tuple[Bar, ...]:
    if rule.is_count:
        least_sd = least_sd_of_counts(blocks)
        return (
            difference_bar(blocks, rule.margin, least_sd=least_sd),
            share_bar(blocks, rule.margin_ratio, least_sd=least_sd),
        )
    relative = ratio_bar(blocks, rule.margin_ratio)
    if not rule.margin:
        return (relative,)
    return (relative, difference_bar(blocks, rule.margin, least_sd=LEAST_BLOCK_SD * baseline))


def _finding(
    verdict: Verdict, found: _Measured, adjusted: Mapping[tuple[str, Signal, bool], float], policy: SignalPolicy
) -> SignalFinding:
    rule = found.rule
    p_slower: float | None = None
    outcome = Outcome.INCONCLUSIVE
    if found.bars:
        analyses = verdict.comparison.analyses
        key = (verdict.case_id, rule.signal)
        p_slower = adjusted.get((*key, False), found.p(improved=False, analyses=analyses))
        p_faster = adjusted.get((*key, True), found.p(improved=True, analyses=analyses))
        if p_slower <= policy.alpha:
            outcome = Outcome.REGRESSED
        elif p_faster <= policy.alpha:
            outcome = Outcome.IMPROVED
        elif any(bar.is_under(policy.interval_level) for bar in found.bars):
            outcome = Outcome.UNCHANGED
    return SignalFinding(
        signal=rule.signal.value,
        outcome=outcome,
        gating=rule.signal in policy.gating and verdict.gating is Gating.GATING,
        unit=rule.unit,
        baseline=found.baseline,
        candidate=found.candidate,
        p_adjusted=p_slower,
        fact=found.problem or fact("signal.measured", _values(found), blocks=found.blocks),
    )


def _ruled(verdict: Verdict, findings: tuple[SignalFinding, ...]) -> Verdict:
    """The verdict with its findings, changed where a gating signal regressed."""
    ruled = replace(verdict, signals=findings)
    for finding in findings:
        if not finding.gating or finding.outcome is not Outcome.REGRESSED:
            continue
        more = fact(
            "signal.regressed",
            finding.fact.values,
            severity=Severity.GRAVE,
            in_same_time=verdict.outcome is Outcome.UNCHANGED,
        )
        if verdict.outcome in (Outcome.UNCHANGED, Outcome.INCONCLUSIVE):
            return replace(ruled, outcome=Outcome.REGRESSED, reasons=(more, *verdict.reasons))
        if verdict.outcome is Outcome.IMPROVED:
            return replace(ruled, reasons=(*verdict.reasons, more))
    return ruled


def _values(found: _Measured) -> Mapping[str, Value]:
    unit = {"s": "_s", "B": "_bytes", "J": "_j"}.get(found.rule.unit, "")
    return {"signal": found.rule.signal.value, f"baseline{unit}": found.baseline, f"candidate{unit}": found.candidate}
