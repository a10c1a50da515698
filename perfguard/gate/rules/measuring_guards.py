"""Guards of how the arms were measured: each left the CPUs to the other, and their clocks are the parent's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import mean, median, stdev

from msgspec.structs import replace

from perfguard.gate.rules.rulings import REASSURING
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.run import Arm, CaseClock, CaseIntrusion
from perfguard.records.verdict import Outcome, Verdict

MAX_INTRUSION_RATIO = 0.05
"""An arm that takes more of the CPUs than this while the other is timed slows both arms alike, and so may hide more
than the smallest slowdown that a gate looks for."""
_CLOCK_BLOCKS = 5  # Fewer say nothing
_OTHER_BLOCKS = 0.1  # Part of the blocks that need not show it
_CLEAR = 8.0  # Standard errors: five blocks of honest clocks on a busy host reach them in 1 of 3,000 gates
_GROSS_RATIO, _GROSS_S = 0.25, 5e-3
"""Where nearly all blocks show it, how much they scatter does not matter. Where the kernel does not tell how long a
worker waited for a CPU, honest clocks beside four busy programs on two CPUs differ by this part of a sample of 20 ms in
one block of twenty; shorter samples wait as long."""
_MAX_HIDDEN_RATIO, _MAX_HIDDEN_S = 0.02, 5e-4
"""Of a sample, or seconds: reading the meters takes 0.3 ms in either arm, and much less differs between them."""
_MAX_HIDDEN_CPU_RATIO, _MAX_HIDDEN_CPU_S = 0.05, 1e-3
"""The same of CPU seconds, which hardly scatter even on a busy host: threads may spin for a moment after a sample."""
ARM_INTRUDED = "arm.intruded"  # Code of what `guard_intrusion` says


def guard_intrusion(verdicts: Sequence[Verdict], intrusions: Sequence[CaseIntrusion]) -> tuple[Verdict, ...]:
    """Verdicts that find nothing wrong become `inconclusive` where an arm did not leave the CPUs to the other.

    An arm intrudes where it does so in the median block. What is slower in spite of that stays `regressed`, and
    failures and missing baselines are left alone. `intrusions` has one entry for each case and block.
    """
    guarded = []
    for verdict in verdicts:
        entries = [entry for entry in intrusions if entry.case_id == verdict.case_id]
        seen = [
            *_intruding(Arm.BASELINE, Arm.CANDIDATE, (entry.baseline_ratio for entry in entries)),
            *_intruding(Arm.CANDIDATE, Arm.BASELINE, (entry.candidate_ratio for entry in entries)),
        ]
        intruded = replace(verdict, outcome=Outcome.INCONCLUSIVE, reasons=(*seen, *verdict.reasons))
        guarded.append(intruded if seen and verdict.outcome in REASSURING else verdict)
    return tuple(guarded)


def guard_clocks(
    verdicts: Sequence[Verdict], clocks: Sequence[CaseClock], *, of_cpu: bool = False
) -> tuple[Verdict, ...]:
    """Verdicts on cases whose candidate claims too little of the wall or CPU time that passed become `failed`.

    Between the baton's hand-over and its return a worker does nothing but timed work and reading its meters. Where, in
    nearly all blocks, the candidate leaves more of that unclaimed than the baseline does, its clock is not the
    parent's: a busy host disturbs either arm. `clocks` has one entry for each case and block.
    """
    guarded = []
    for verdict in verdicts:
        entries = [entry for entry in clocks if entry.case_id == verdict.case_id]
        kept = (Outcome.FAILED, Outcome.NO_BASELINE, Outcome.INCOMPARABLE)
        if verdict.outcome in kept or not _hides(entries, of_cpu=of_cpu):
            guarded.append(verdict)
            continue
        values = {"hidden_ratio": median(map(_hidden_ratio, entries))}
        if of_cpu:
            found = fact("case.cpu_time_hidden", values, severity=Severity.GRAVE)
        else:
            found = fact("case.time_hidden", values, severity=Severity.GRAVE)
        outcome = Outcome.REGRESSED if verdict.outcome is Outcome.REGRESSED else Outcome.FAILED
        guarded.append(replace(verdict, outcome=outcome, reasons=(found, *verdict.reasons)))
    return tuple(guarded)


def _hides(entries: Sequence[CaseClock], *, of_cpu: bool) -> bool:
    """Whether a case's candidate leaves out much of each sample, or a little beyond any doubt."""
    if len(entries) < _CLOCK_BLOCKS:
        return False
    least_ratio, least_s = (_MAX_HIDDEN_CPU_RATIO, _MAX_HIDDEN_CPU_S) if of_cpu else (_MAX_HIDDEN_RATIO, _MAX_HIDDEN_S)
    elapsed_s = median(entry.elapsed_s for entry in entries)
    limit = max(least_ratio, least_s / elapsed_s)
    hidden, others = sorted(map(_hidden_ratio, entries)), int(_OTHER_BLOCKS * len(entries))
    is_clear = mean(hidden) - limit > _CLEAR * stdev(hidden) / math.sqrt(len(hidden))
    gross = max(_GROSS_RATIO, _GROSS_S / elapsed_s, limit)
    return hidden[max(1, others)] > gross or (is_clear and hidden[others] > limit)


def _hidden_ratio(clock: CaseClock) -> float:
    """Part of a sample's time that the candidate does not claim, and the baseline does."""
    return clock.unexplained_s / clock.elapsed_s


def _intruding(arm: Arm, other: Arm, ratios: Iterable[float | None]) -> tuple[Fact, ...]:
    """That an arm takes much of the CPUs while the other is timed; nothing where it does not."""
    known = [ratio for ratio in ratios if ratio is not None]
    if not known or median(known) <= MAX_INTRUSION_RATIO:
        return ()
    values = {"other": other.value, "cpu_share": median(known), "limit_share": MAX_INTRUSION_RATIO}
    return (fact("arm.intruded", values, severity=Severity.GRAVE, arm=arm.value),)
