"""Bimodal cases: a change of how often the slow mode is met is reported as that, not as a shift of the mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from perfguard.errors import MeasurementError
from perfguard.gate.rules.policy import effect_values, is_equivalent
from perfguard.records.facts import Fact, fact
from perfguard.records.run import CaseSamples, PairedData
from perfguard.records.verdict import Design, ModeReport, Outcome, Policy, Verdict
from perfguard.stats.modes import Modes, find_modes
from perfguard.stats.paired import block_effect, estimate_paired, positive_times, trimmed_mean

MODES_MIXED = "modes.mixed"
"""Code of `mode_fact`."""

MIX_LEVEL = 0.01
"""Two-sided level at which the mix of modes has changed. The times' own test has controlled false alarms before; this
only decides whether a flag that the modes explain is theirs or luck."""


def report_modes(
    verdicts: Sequence[Verdict], data: PairedData, policy: Policy, *, voided: frozenset[int] = frozenset()
) -> tuple[Verdict, ...]:
    """Attach a report where a case's blocks fall into a fast and a slow mode.

    Where no shift is left within the modes, a regression or improvement is a matter of their mix: it stays where the
    mix itself changed significantly, and is `inconclusive` otherwise.
    The verdicts rest on the blocks of the data but for the voided ones; `unchanged` within the modes means the same as
    for the whole case.
    """
    samples: dict[str, list[CaseSamples]] = {}
    for entry in data.samples:
        if entry.block not in voided:
            samples.setdefault(entry.case_id, []).append(entry)
    return tuple(_reported(verdict, samples.get(verdict.case_id, ()), policy) for verdict in verdicts)


def _reported(verdict: Verdict, entries: Sequence[CaseSamples], policy: Policy) -> Verdict:
    if verdict.comparison.design is not Design.PAIRED or verdict.comparison.estimate is None:
        return verdict
    log_ratios, levels = [], []
    try:
        for entry in sorted(entries, key=lambda entry: entry.block):
            if entry.baseline_s and entry.candidate_s:
                log_ratios.append(block_effect(entry.baseline_s, entry.candidate_s).log_ratio)
                levels.append((_level(entry.baseline_s) + _level(entry.candidate_s)) / 2)
    except MeasurementError:  # a value that is no time; the comparison itself says so
        return verdict
    modes = find_modes(log_ratios, levels)
    return verdict if modes is None else _ruled(verdict, _report(modes, log_ratios, policy))


def _level(values_s: Sequence[float]) -> float:
    """Log of an arm's typical time in a block: the trimmed mean of the log samples."""
    return trimmed_mean(np.log(positive_times(values_s)))[0]


def _report(modes: Modes, log_ratios: Sequence[float], policy: Policy) -> ModeReport:
    same = [ratio for ratio, is_same in zip(log_ratios, modes.same, strict=True) if is_same]
    within = estimate_paired(same, policy.interval_level)
    blocks = len(modes.baseline_slow)
    p_mix = modes.p_mix()
    return ModeReport(
        slow_over_fast=math.expm1(modes.separation),
        baseline_slow_share=sum(modes.baseline_slow) / blocks,
        candidate_slow_share=sum(modes.candidate_slow) / blocks,
        p_mix=p_mix,
        mix_changed=p_mix <= MIX_LEVEL,
        explains_effect=is_equivalent(within.interval, policy),
        within_log_ratio=within.log_ratio,
        within=within.interval,
    )


def mode_fact(report: ModeReport) -> Fact:
    """How often each arm met the slow mode, and the effect within the modes."""
    within = report.within
    return fact(
        MODES_MIXED,
        effect_values(report.within_log_ratio, within) if within and not report.explains_effect else {},
        slow_ratio=report.slow_over_fast,
        candidate_share=report.candidate_slow_share,
        baseline_share=report.baseline_slow_share,
        p=report.p_mix,
        explains_effect=report.explains_effect,
    )


def _ruled(verdict: Verdict, report: ModeReport) -> Verdict:
    seen, outcome, reasons = mode_fact(report), verdict.outcome, verdict.reasons
    if outcome is Outcome.INCONCLUSIVE:
        reasons = (*reasons, seen)
    elif outcome in (Outcome.REGRESSED, Outcome.IMPROVED) and report.explains_effect:
        reasons = (seen, *reasons)
        if not report.mix_changed:
            outcome, reasons = Outcome.INCONCLUSIVE, (seen, fact("modes.luck"), *verdict.reasons)
    return replace(verdict, modes=report, outcome=outcome, reasons=reasons)
