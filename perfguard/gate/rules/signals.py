"""Signals beside wall time: what a change costs that no clock shows.

An op that burns twice the cores for the same wall time passes every timing test, and costs twice as much to train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.run import Arm, Signal, SignalSamples
from perfguard.records.spec import Gating
from perfguard.records.verdict import Outcome, SignalFinding, Verdict
from perfguard.stats.p_values import holm
from perfguard.stats.signals import (
    LEAST_BLOCK_SD,
    LEAST_SHARE_SD,
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


class Scale(str, Enum):
    """What values are, and so how they are compared."""

    AMOUNT = "amount"  # Above zero: by their ratio
    COUNT = "count"  # Perhaps zero: by their difference, which scatters at least as counts do
    SHARE = "share"  # From 0 to 1: by their difference


class SignalRule(Struct, frozen=True, kw_only=True):
    """When a signal has changed."""

    signal: str
    unit: str  # Unit of the values, as in SignalFinding
    margin_ratio: float = 0.0  # Smallest relative change worth a word
    margin: float = 0.0  # Smallest change in the signal's own unit; a change must clear both
    scale: Scale = Scale.AMOUNT
    follows_time: bool = False
    """Whether a slower step has more of it anyway: then nothing below the margin of the case's time is worth a word."""
    is_own: bool = False  # Whether the benchmark itself gives the values; then the signal gates where the case does


RULES = (
    SignalRule(signal=Signal.CPU.value, unit="s", margin_ratio=0.05, follows_time=True),
    SignalRule(signal=Signal.MEMORY.value, unit="B", margin_ratio=0.05, margin=8 * _MIB),
    SignalRule(signal=Signal.FAULTS.value, unit="", margin_ratio=0.5, margin=10.0, scale=Scale.COUNT),
    SignalRule(signal=Signal.SWITCHES.value, unit="", margin_ratio=0.5, margin=2.0, scale=Scale.COUNT),
    SignalRule(signal=Signal.ENERGY.value, unit="J", margin_ratio=0.05, follows_time=True),
    SignalRule(signal=Signal.INSTRUCTIONS.value, unit="", margin_ratio=0.02, follows_time=True),
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
_KNOWN = {rule.signal: rule for rule in RULES}


def rule_of(name: str) -> SignalRule:
    """The rule of a signal; of one that a benchmark gives itself, by the suffix of its name's first word.

    Seconds (`train_s of cpu-0`) must grow by 10 %, shares of a whole (`update_share of cpu`) by 0.1, and anything else,
    a count, by a half of one and by 10 %.
    """
    if name in _KNOWN:
        return _KNOWN[name]
    kind = name.partition(" ")[0]
    if kind.endswith("_s"):
        return SignalRule(signal=name, unit="s", margin_ratio=0.1, follows_time=True, is_own=True)
    if kind.endswith("_share"):
        return SignalRule(signal=name, unit="", margin=0.1, scale=Scale.SHARE, is_own=True)
    return SignalRule(signal=name, unit="", margin=0.5, margin_ratio=0.1, scale=Scale.COUNT, is_own=True)


def zero_bar(rule: SignalRule, blocks: Sequence[BlockPairs]) -> Bar | None:
    """What any change at all has to clear; None where no pair can be compared."""
    if rule.scale is not Scale.AMOUNT:
        return difference_bar(blocks, 0.0, least_sd=_least_sd(rule, blocks))
    usable = [pairs for block in blocks if (pairs := positive_pairs(block)).baseline.size]
    return ratio_bar(usable, 0.0) if usable else None


class SignalPolicy(Struct, frozen=True, kw_only=True):
    """How signals are judged."""

    alpha: float = 0.001
    """Error rate over all gating cases and gating signals of one gate: its own part of the gate's 1 %."""
    gating: tuple[Signal, ...] = (Signal.CPU,)
    """Signals whose regression fails a gate, beside those that benchmarks give themselves; others are reported."""
    min_blocks: int = 5  # Fewer usable blocks than this say nothing
    interval_level: float = 0.95  # Level of the intervals that `unchanged` is judged by

    def is_gating(self, rule: SignalRule) -> bool:
        """Whether a regression of the signal fails the gate, where the case is gating."""
        return rule.is_own or rule.signal in self.gating


class _Measured(Struct, frozen=True):
    """One signal of one case, with its tests; without bars it cannot be tested, and the fact says why."""

    rule: SignalRule
    baseline: float
    candidate: float
    fact: Fact
    bars: tuple[Bar, ...] = ()

    def p_values(self, analyses: int) -> tuple[float, float]:
        """Of a regression and of an improvement: each the largest over the bars (Berger 1982).

        Valid whichever look was the last: the k-th spends 1 / (k (k + 1)) of the level.
        """
        looks = analyses * (analyses + 1)
        worse, better = max(bar.p_up() for bar in self.bars), max(bar.p_down() for bar in self.bars)
        return min(1.0, worse * looks), min(1.0, better * looks)


def judge_signals(
    data: Sequence[SignalSamples],
    verdicts: Sequence[Verdict],
    policy: SignalPolicy,
    *,
    voided: frozenset[int] = frozenset(),
) -> tuple[Verdict, ...]:
    """Attach what each signal says to the verdicts; a gating signal that regressed fails a gating case.

    Gating signals of gating cases are one family, corrected by Holm at `policy.alpha`; a case whose times are too noisy
    to gate is in it, too. Every other finding is tested on its own: it is read, and decides nothing. A case that became
    faster stays improved whatever it costs; its sentence says so.

    The data are as `RunData.signals` gives them; voided blocks are left out, and a signal that an arm could not read
    has no finding.

    Source: Holm (1979); Berger (1982), doi:10.1080/00401706.1982.10487790: where a change must clear several bars, the
        largest p counts.
    """
    samples: dict[str, list[SignalSamples]] = {}
    for entry in data:
        if entry.block not in voided:
            samples.setdefault(entry.case_id, []).append(entry)
    measured = [(verdict, _measure(samples.get(verdict.case_id, ()), verdict, policy)) for verdict in verdicts]
    family, tests = [], {}
    for verdict, found in measured:
        for one in found:
            if one.bars:
                key = (verdict.case_id, one.rule.signal)
                tests[key] = one.p_values(verdict.comparison.analyses)
                if verdict.comparison.gating is Gating.GATING and policy.is_gating(one.rule):
                    family.append(key)
    worse, better = holm([tests[key][0] for key in family]), holm([tests[key][1] for key in family])
    tests.update(zip(family, zip(worse, better, strict=True), strict=True))
    ruled = []
    for verdict, found in measured:
        tested = [tests.get((verdict.case_id, one.rule.signal)) for one in found]
        findings = [_finding(verdict, one, p_values, policy) for one, p_values in zip(found, tested, strict=True)]
        ruled.append(_ruled(verdict, tuple(findings)))
    return tuple(ruled)


def missing_signals(missing: Mapping[Arm, Mapping[str, str]]) -> tuple[Fact, ...]:
    """Signals that could not be read, by arm and signal with the reason, once where both arms say the same."""
    found: dict[tuple[str, str], list[Arm]] = {}
    for arm, reasons in missing.items():
        for signal, reason in reasons.items():
            found.setdefault((signal, reason), []).append(arm)
    return tuple(
        fact("signal.missing", arm=None if len(arms) == len(missing) else arms[0].value, signal=signal, why=reason)
        for (signal, reason), arms in sorted(found.items())
    )


def block_pairs(entries: Sequence[SignalSamples], signal: str) -> list[BlockPairs]:
    """The samples of a signal in each block where both arms could be read."""
    pairs = [readable_pairs(entry.baseline, entry.candidate) for entry in entries if entry.signal == signal]
    return [block for block in pairs if block.baseline.size]


def _measure(entries: Sequence[SignalSamples], verdict: Verdict, policy: SignalPolicy) -> tuple[_Measured, ...]:
    """Each signal of a case that could be read."""
    found = []
    own = dict.fromkeys(entry.signal for entry in entries if entry.signal not in _KNOWN)
    for rule in (*RULES, *map(rule_of, own)):
        least = verdict.comparison.margin_ratio if rule.follows_time else 0.0
        if readable := block_pairs(entries, rule.signal):
            of_case = replace(rule, margin_ratio=max(rule.margin_ratio, least))
            found.append(_measure_signal(of_case, readable, policy))
    return tuple(found)


def _measure_signal(rule: SignalRule, readable: Sequence[BlockPairs], policy: SignalPolicy) -> _Measured:
    baseline = median(float(median(block.baseline)) for block in readable)
    candidate = median(float(median(block.candidate)) for block in readable)
    measured = partial(_Measured, rule, baseline, candidate)
    name = rule.signal
    usable = readable
    if rule.scale is Scale.AMOUNT:
        usable = [pairs for block in readable if (pairs := positive_pairs(block)).baseline.size]
        if not usable:
            return measured(fact("signal.zero", signal=name))
    if len(usable) < policy.min_blocks:
        return measured(fact("signal.too_few_blocks", signal=name, blocks=len(usable), needed=policy.min_blocks))
    unit = {"s": "_s", "B": "_bytes", "J": "_j"}.get(rule.unit, "")
    values: dict[str, Value] = {"signal": name, f"baseline{unit}": baseline, f"candidate{unit}": candidate}
    return measured(fact("signal.measured", values, blocks=len(usable)), _bars(rule, usable, baseline))


def _bars(rule: SignalRule, blocks: Sequence[BlockPairs], baseline: float) -> tuple[Bar, ...]:
    if rule.scale is Scale.AMOUNT:
        relative = ratio_bar(blocks, rule.margin_ratio)
        if not rule.margin:
            return (relative,)
        return relative, difference_bar(blocks, rule.margin, least_sd=LEAST_BLOCK_SD * baseline)
    least_sd = _least_sd(rule, blocks)
    difference = difference_bar(blocks, rule.margin, least_sd=least_sd)
    if not rule.margin_ratio:
        return (difference,)
    return difference, share_bar(blocks, rule.margin_ratio, least_sd=least_sd)


def _least_sd(rule: SignalRule, blocks: Sequence[BlockPairs]) -> float:
    return least_sd_of_counts(blocks) if rule.scale is Scale.COUNT else LEAST_SHARE_SD


def _finding(
    verdict: Verdict, found: _Measured, tested: tuple[float, float] | None, policy: SignalPolicy
) -> SignalFinding:
    """What a signal says of a case; `tested` are the adjusted p-values of a regression and of an improvement."""
    outcome = Outcome.INCONCLUSIVE
    if tested and tested[0] <= policy.alpha:
        outcome = Outcome.REGRESSED
    elif tested and tested[1] <= policy.alpha:
        outcome = Outcome.IMPROVED
    elif any(bar.is_under(policy.interval_level) for bar in found.bars):
        outcome = Outcome.UNCHANGED
    return SignalFinding(
        signal=found.rule.signal,
        outcome=outcome,
        gating=policy.is_gating(found.rule) and verdict.comparison.gating is Gating.GATING,
        unit=found.rule.unit,
        baseline=found.baseline,
        candidate=found.candidate,
        p_adjusted=tested[0] if tested else None,
        fact=found.fact,
    )


def _ruled(verdict: Verdict, findings: tuple[SignalFinding, ...]) -> Verdict:
    """The verdict with its findings, changed where a gating signal regressed."""
    ruled, outcome = replace(verdict, signals=findings), verdict.outcome
    costly = next((found for found in findings if found.gating and found.outcome is Outcome.REGRESSED), None)
    if costly is None or outcome not in (Outcome.UNCHANGED, Outcome.INCONCLUSIVE, Outcome.IMPROVED):
        return ruled
    in_same_time = outcome is Outcome.UNCHANGED
    more = fact("signal.regressed", costly.fact.values, severity=Severity.GRAVE, in_same_time=in_same_time)
    if outcome is Outcome.IMPROVED:
        return replace(ruled, reasons=(*verdict.reasons, more))
    # The noise of a case's times says nothing of its signals (decision 0010).
    reasons = [reason for reason in verdict.reasons if reason.code != "verdict.demoted"]
    return replace(ruled, outcome=Outcome.REGRESSED, gating=verdict.comparison.gating, reasons=(more, *reasons))
