"""Rulings on verdicts after the decision: same results, modes, and the allow-list.

A benchmark that skips work is fast, and no faster. On the same seeds the arms must agree on what the benchmark is
recognised by: its loss or result, the norm of its gradients, and whatever it names itself. These are numbers of a
set-up, and of one timed call on other inputs, since work may be skipped once it is timed.

A bimodal case whose slow mode is met more often is reported as that, not as a shift of the mean. An entry of the
allow-list covers the time of a case up to its limit, against whatever the gate compares with. It does not cover other
signals that grew beyond the limit, nor a case that computes something else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from statistics import median

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfguard.benchmarks.selection import names_case
from perfguard.errors import MeasurementError
from perfguard.gate.rules.confirmation import is_flagged
from perfguard.gate.rules.policy import effect_values, is_equivalent
from perfguard.records.allowance import Allowance
from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.run import CaseChecks, CaseSamples, PairedData, Round
from perfguard.records.verdict import Comparison, Design, ModeReport, Outcome, Policy, SignalFinding, Verdict
from perfguard.stats.modes import Modes, find_modes
from perfguard.stats.p_values import p_slower
from perfguard.stats.paired import block_effect, estimate_paired, positive_times, trimmed_mean


class Tolerance(Struct, frozen=True, kw_only=True):
    """Largest relative differences between arms that compute the same thing."""

    result: float  # Of a loss, a result, its norm, and whatever else a benchmark names
    gradient: float
    """Of numbers whose name begins with `gradient`: batch norm over a few values amplifies rounding in them."""


TOLERANCES: Mapping[str, Tolerance] = {
    "fp32": Tolerance(result=0.001, gradient=0.01),
    "bf16": Tolerance(result=0.05, gradient=0.3),
    "fp16": Tolerance(result=0.01, gradient=0.1),
}
"""By the case's `dtype`.

Other instruction sets, thread counts and optimizer implementations were seen to move fp32 by 0.0006 % and 0.14 %, bf16
by 1.6 % and 12 %, all of it in ResNet-50 on tiny images; other cases a tenth of that and less
(docs/decisions/0004-numerics-tolerances.md). fp16, which no built-in case has, lies between by its precision.
"""


MODES_MIXED = "modes.mixed"  # Code of `mode_fact`

MIX_LEVEL = 0.01
"""Two-sided level at which the mix of modes has changed. The times' own test has controlled false alarms before; this
only decides whether a flag that the modes explain is theirs or luck."""

_DTYPE = re.compile(r"[\[,]dtype=(\w+)")
REASSURING = (Outcome.IMPROVED, Outcome.UNCHANGED, Outcome.INCONCLUSIVE)  # Verdicts that find nothing wrong


def guard_numerics(verdicts: Sequence[Verdict], checks: Sequence[CaseChecks]) -> tuple[Verdict, ...]:
    """Verdicts on cases whose arms do not compute the same thing become `different`.

    A number differs where its median relative difference over the blocks is beyond the tolerance, which puts at least
    half of the blocks beyond it. What regressed stays so, with the difference in its sentence; failures and missing
    baselines are left alone.

    There is a check for each case and block, as `RunData.checks` or `paired_with_stored` give them. Blocks and names
    that only one side has are not compared.
    """
    different = different_results(checks)
    guarded = []
    for verdict in verdicts:
        differences, reasons = different.get(verdict.case_id, ()), verdict.reasons
        if differences and verdict.outcome in REASSURING:
            guarded.append(replace(verdict, outcome=Outcome.DIFFERENT, reasons=(*differences, *reasons)))
        elif differences and verdict.outcome is Outcome.REGRESSED:
            guarded.append(replace(verdict, reasons=(*reasons, *differences)))
        else:
            guarded.append(verdict)
    return tuple(guarded)


def different_results(checks: Sequence[CaseChecks]) -> dict[str, tuple[Fact, ...]]:
    """Cases whose sides do not compute the same, each with the numbers that differ; checks as for `guard_numerics`."""
    pairs: dict[str, dict[str, list[tuple[float, float]]]] = {}
    dtypes = {dtype for entry in checks for dtype in entry.dtypes}
    for entry in checks:
        of_case = pairs.setdefault(entry.case_id, {})
        for name, before in entry.baseline.items():
            if name in entry.candidate:
                of_case.setdefault(name, []).append((before, entry.candidate[name]))
    found: dict[str, tuple[Fact, ...]] = {}
    for case_id, named in pairs.items():
        tolerance = tolerance_of(case_id, dtypes)
        for name, values in named.items():
            allowed = tolerance.gradient if name.startswith("gradient") else tolerance.result
            if median(_relative(before, after) for before, after in values) > allowed:
                found[case_id] = (*found.get(case_id, ()), _difference(name, values, allowed))
    return {case_id: _first_differences(each) for case_id, each in found.items()}


def _first_differences(found: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """Without those of timed calls, where set-up shows the same."""
    at_setup = tuple(each for each in found if not str(each.values["name"]).startswith("timed_"))
    return at_setup or found


def blind_looks(checks: Sequence[CaseChecks]) -> tuple[str, ...]:
    """Cases whose timed result on other inputs is that of set-up within the tolerance, so that it shows nothing."""
    moved: dict[str, list[float]] = {}
    dtypes = {dtype for entry in checks for dtype in entry.dtypes}
    for entry in checks:
        known = next((entry.baseline[name] for name in ("loss", "result") if name in entry.baseline), None)
        if known is not None and "timed_result" in entry.baseline:
            moved.setdefault(entry.case_id, []).append(_relative(known, entry.baseline["timed_result"]))
    return tuple(case_id for case_id, each in moved.items() if median(each) <= tolerance_of(case_id, dtypes).result)


def tolerance_of(case_id: str, dtypes: Iterable[str] = ()) -> Tolerance:
    """Largest relative differences of a case's numbers, by the `dtype` in its id; `fp32` without one that is known.

    Where an arm computes in one of `dtypes` instead, the widest of them.
    """
    found = _DTYPE.search(case_id)
    used = (found.group(1) if found else "fp32", *dtypes)
    return max((TOLERANCES.get(dtype, TOLERANCES["fp32"]) for dtype in used), key=lambda each: each.result)


def paired_with_stored(
    stored: Mapping[str, Sequence[Round]], fresh: Mapping[str, Sequence[Round]]
) -> tuple[CaseChecks, ...]:
    """Numbers of stored and fresh rounds, both by case id, that had the same data: one entry for each such round."""
    found: list[CaseChecks] = []
    for case_id, rounds in fresh.items():
        known = {entry.data_seed: entry.checks for entry in stored.get(case_id, ()) if entry.checks}
        found.extend(
            CaseChecks(
                case_id=case_id, data_seed=entry.data_seed, baseline=known[entry.data_seed], candidate=entry.checks
            )
            for entry in rounds
            if entry.data_seed is not None and entry.data_seed in known
        )
    return tuple(found)


def unchecked_note(
    verdicts: Sequence[Verdict], checks: Sequence[CaseChecks], *, why: Mapping[str, Value]
) -> tuple[Fact, ...]:
    """What could not be compared, as a note; none where every judged case was.

    The values `why` say the reason: its `cause`, and the seeds where they differ.
    """
    known = {entry.case_id for entry in checks if entry.baseline.keys() & entry.candidate.keys()}
    judged = [v.case_id for v in verdicts if v.outcome in (*REASSURING, Outcome.REGRESSED)]
    missing = tuple(case_id for case_id in judged if case_id not in known)
    return (fact("result.unchecked", why, severity=Severity.NOTABLE, case_ids=missing),) if missing else ()


def _relative(before: float, after: float) -> float:
    """Difference over the larger magnitude, so that exchanging the arms changes nothing; in [0, 2]."""
    return abs(after - before) / max(abs(before), abs(after)) if before != after else 0.0


def _difference(name: str, values: Sequence[tuple[float, float]], tolerance: float) -> Fact:
    before, after = median(before for before, _ in values), median(after for _, after in values)
    # Where blocks differ up and down, their medians look alike.
    is_scattered = _relative(before, after) <= tolerance
    return fact(
        "result.different",
        severity=Severity.GRAVE,
        name=name,
        baseline=before,
        candidate=after,
        change_percent=None if is_scattered or not before else (after / before - 1) * 100,
        is_scattered=is_scattered,
        tolerance_percent=tolerance * 100,
    )


def report_modes(
    verdicts: Sequence[Verdict], data: PairedData, policy: Policy, *, voided: frozenset[int] = frozenset()
) -> tuple[Verdict, ...]:
    """Attach a report where a case's blocks fall into a fast and a slow mode.

    Where no shift beyond the margin is left within the modes, a regression or improvement is a matter of their mix: it
    stays where the mix itself changed significantly, and is `inconclusive` otherwise.
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
    if modes is None:
        return verdict
    return _explained(verdict, _report(modes, log_ratios, verdict.comparison, policy))


def _level(values_s: Sequence[float]) -> float:
    """Log of an arm's typical time in a block: the trimmed mean of the log samples."""
    return trimmed_mean(np.log(positive_times(values_s)))[0]


def _report(modes: Modes, log_ratios: Sequence[float], comparison: Comparison, policy: Policy) -> ModeReport:
    same = [ratio for ratio, is_same in zip(log_ratios, modes.same, strict=True) if is_same]
    within = estimate_paired(same, policy.interval_level)
    limit = math.log1p(comparison.margin_ratio)
    is_shift = within.interval.lower > limit or within.interval.upper < -limit
    blocks = len(modes.baseline_slow)
    p_mix = modes.p_mix()
    return ModeReport(
        slow_over_fast=math.expm1(modes.separation),
        baseline_slow_share=sum(modes.baseline_slow) / blocks,
        candidate_slow_share=sum(modes.candidate_slow) / blocks,
        p_mix=p_mix,
        mix_changed=p_mix <= MIX_LEVEL,
        explains_effect=is_equivalent(within.interval, policy) and not is_shift,
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


def _explained(verdict: Verdict, report: ModeReport) -> Verdict:
    seen, outcome, reasons = mode_fact(report), verdict.outcome, verdict.reasons
    if outcome is Outcome.INCONCLUSIVE:
        reasons = (*reasons, seen)
    elif outcome in (Outcome.REGRESSED, Outcome.IMPROVED) and report.explains_effect:
        reasons = (seen, *reasons)
        if not report.mix_changed:
            outcome, reasons = Outcome.INCONCLUSIVE, (seen, fact("modes.luck"), *verdict.reasons)
    return replace(verdict, modes=report, outcome=outcome, reasons=reasons)


def apply_allowances(
    verdicts: Sequence[Verdict],
    allowances: Sequence[Allowance],
    today: date,
    policy: Policy,
    *,
    tags: Mapping[str, Sequence[str]] | None = None,
    different: Collection[str] = (),
) -> tuple[Verdict, ...]:
    """Verdicts in which regressions within an allowance are `allowed`.

    Covered is a gating case whose *time* regressed, whose estimate is at most the allowed slowdown, and which is not
    shown to be beyond it (one-sided, at the policy's level). Where several entries name a case, the strictest applies.
    What is beyond it, or not covered for another reason, stays regressed and says why.

    The verdicts are those after every other ruling. An entry applies up to and including its last day, in UTC. Tags by
    case id are for patterns such as `tag:step`; different are cases whose arms do not compute the same thing.
    """
    return tuple(
        _allowed(verdict, named, policy, is_different=verdict.case_id in different)
        if is_flagged(verdict) and (named := _naming(verdict.case_id, allowances, today, tags or {}))
        else verdict
        for verdict in verdicts
    )


def allowance_notes(
    allowances: Sequence[Allowance],
    verdicts: Sequence[Verdict],
    today: date,
    *,
    tags: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Fact, ...]:
    """One note for each entry of the allow-list: whether `apply_allowances` used it, or it has expired."""
    used: dict[Allowance, list[str]] = {}
    for verdict in verdicts:
        if verdict.outcome is Outcome.ALLOWED:
            for entry in _naming(verdict.case_id, allowances, today, tags or {})[:1]:
                used.setdefault(entry, []).append(verdict.case_id)
    return tuple(_note(entry, used.get(entry, ()), today) for entry in allowances)


def _note(entry: Allowance, used: Sequence[str], today: date) -> Fact:
    until = entry.until.isoformat()
    if entry.has_expired(today):
        return fact("allowance.expired", severity=Severity.NOTABLE, pattern=entry.case, until=until)
    severity = Severity.NOTABLE if used else Severity.INFO
    values: dict[str, Value] = {"pattern": entry.case, "why": entry.reason, "case_ids": tuple(used)}
    return fact("allowance.used" if used else "allowance.unused", {**_limits(entry), **values}, severity=severity)


def _naming(
    case_id: str, allowances: Sequence[Allowance], today: date, tags: Mapping[str, Sequence[str]]
) -> list[Allowance]:
    """The entries that apply today and name a case, the strictest first."""
    active = [entry for entry in allowances if not entry.has_expired(today)]
    found = [entry for entry in active if names_case(entry.case, case_id, tags.get(case_id, ()))]
    return sorted(found, key=lambda entry: (entry.max_ratio, entry.until))


def _allowed(verdict: Verdict, named: Sequence[Allowance], policy: Policy, *, is_different: bool) -> Verdict:
    """A regressed verdict, allowed or with the reason why not, by the first of the entries that name it."""
    estimate, entry = verdict.comparison.estimate, named[0]
    limits = _limits(entry)
    beyond = tuple(finding.signal for finding in verdict.signals if _is_beyond(finding, entry))
    if estimate is None or not _is_slow_in_time(verdict, policy):
        obstacle = fact("allowance.only_for_time", limits)
    elif is_different:
        obstacle = fact("allowance.only_for_same_results", limits)
    # The estimate alone would wave through a case of which nothing is known; the test alone a slow but noisy one.
    elif estimate.log_ratio > math.log1p(entry.max_ratio) or p_slower(estimate, entry.max_ratio) <= policy.alpha:
        obstacle = fact("allowance.exceeded", limits)
    elif beyond:
        obstacle = fact("allowance.exceeded_by_signals", limits, signals=beyond)
    else:
        allowed = fact("allowance.applied", limits, why=entry.reason, entries=len(named) if len(named) > 1 else None)
        seen = fact("verdict.allowed_effect", effect_values(estimate.log_ratio, estimate.interval))
        return replace(verdict, outcome=Outcome.ALLOWED, allowance=allowed, reasons=(seen, allowed))
    return replace(verdict, reasons=(*verdict.reasons, obstacle))


def _limits(entry: Allowance) -> Mapping[str, Value]:
    return {"limit_ratio": entry.max_ratio, "until": entry.until.isoformat()}


def _is_slow_in_time(verdict: Verdict, policy: Policy) -> bool:
    """Whether the times alone made the case red; a signal may also redden one whose flag was not confirmed."""
    if verdict.p_adjusted is None or verdict.p_adjusted > policy.alpha:
        return False
    if verdict.modes is not None and verdict.modes.explains_effect and not verdict.modes.mix_changed:
        return False
    is_confirmed = verdict.confirmation is not None and verdict.confirmation.confirmed
    return is_confirmed or verdict.comparison.design is Design.ROUNDS


def _is_beyond(finding: SignalFinding, entry: Allowance) -> bool:
    if not finding.gating or finding.outcome is not Outcome.REGRESSED:
        return False
    return finding.baseline <= 0 or finding.candidate / finding.baseline - 1 > entry.max_ratio
