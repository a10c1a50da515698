"""A/A gates: from recorded runs to lines of a calibration, and what they add up to for each case and for the gate."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from perfguard import __version__
from perfguard.gate.calibration.error_rate import scope_difference
from perfguard.records.calibration import (
    AAGate,
    CalibratedCase,
    Calibration,
    CalibrationSummary,
    CasePace,
    CaseSample,
    FalseAlarms,
    GatePace,
    Scope,
)
from perfguard.records.estimate import Estimate
from perfguard.records.run import CaseSamples, PairedData
from perfguard.records.spec import Gating
from perfguard.records.verdict import GateResult, Margins, Outcome, Policy
from perfguard.stats.calibration import (
    CONFIDENCE,
    PlaceboSpread,
    autocorrelation,
    intraclass_correlation,
    placebo_spread,
    pooled_spread,
    survival,
    upper_bound,
)
from perfguard.stats.paired import block_effect, estimate_paired
from perfguard.stats.power import sequential_mde
from perfguard.stats.voiding import void_blocks

LARGEST_SPREAD = 0.002
"""SD of placebo effects, log scale, up to which gates with the narrow margin are hardly ever red without a change
(docs/decisions/0005-placebo-floor.md)."""
MDE_MINUTES = (2, 5, 10, 20, 60)  # Lengths of a gate that the table of detectable effects is given for
_DIGITS = 6  # Decimals of a stored log-ratio: a ten-thousandth of a per cent


def aa_gate(
    gate: GateResult,
    data: PairedData,
    *,
    run_id: str,
    finished_at: str,
    duration_s: float,
    measured_s: float,
    placebo: bool,
    banked: bool,
) -> AAGate:
    """What a calibration keeps of a gate whose arms were the same, as `AAGate` describes it.

    Where the gate passed by construction, what the times alone said counts. The data are its blocks without those of a
    confirmation, which `measured_s` includes.
    """
    gating = {verdict.case_id for verdict in gate.verdicts if verdict.comparison.gating is Gating.GATING}
    return AAGate(
        run_id=run_id,
        finished_at=finished_at,
        outcome=(gate.measured_outcome or gate.outcome).value,
        flagged=tuple(
            v.case_id
            for v in gate.verdicts
            if (v.timed_outcome or v.outcome) is Outcome.REGRESSED and v.gating is Gating.GATING
        ),
        placebo=placebo,
        banked=banked,
        blocks=len(data.conditions),
        block_s=round(full_block_s(data), 3),
        duration_s=round(duration_s, 1),
        overhead_s=round(max(0.0, duration_s - measured_s), 1),
        startup_s=startup_s(data),
        cases=case_samples(data, gating, gate.policy),
    )


def case_samples(data: PairedData, gating: Collection[str], policy: Policy) -> dict[str, CaseSample]:
    """The block values of each case that did not fail, from the blocks that the arm-blind rule leaves."""
    voided = void_blocks(data.conditions, policy).blocks
    failed = {failure.case_id for failure in data.failures}
    by_case: dict[str, list[CaseSamples]] = {}
    for entry in sorted(data.samples, key=lambda entry: entry.block):
        if entry.case_id not in failed and entry.baseline_s and entry.candidate_s:
            by_case.setdefault(entry.case_id, []).append(entry)
    return {
        case_id: _sample(entries, voided, is_gating=case_id in gating)
        for case_id, entries in by_case.items()
        if any(entry.block not in voided for entry in entries)
    }


def full_block_s(data: PairedData) -> float:
    """Typical wall seconds of a block that held every case; of the longest one where none did."""
    cases = Counter(entry.block for entry in data.samples)
    most = max(cases.values(), default=0)
    full = [condition.duration_s for condition in data.conditions if cases[condition.block] == most]
    return statistics.median(full) if full else 0.0


def startup_s(data: PairedData) -> float | None:
    """Typical wall seconds of a block beside its cases; None where a case's part of none is known."""
    cases_s: dict[int, list[float | None]] = {}
    for entry in data.samples:
        cases_s.setdefault(entry.block, []).append(entry.wall_s)
    found = []
    for condition in data.conditions:
        walls_s = cases_s.get(condition.block, [])
        known_s = [wall_s for wall_s in walls_s if wall_s is not None]
        if known_s and len(known_s) == len(walls_s):
            found.append(max(0.0, condition.duration_s - sum(known_s)))
    return _typical_s(found)


def with_gates(calibration: Calibration | None, gates: Iterable[AAGate], *, scope: Scope, suite: str) -> Calibration:
    """A calibration with further gates: in the order they finished, each run once.

    Gates of another scope say nothing about this one, so a calibration of another scope is left behind.
    """
    same = calibration is not None and scope_difference(calibration.scope, scope) is None
    known = calibration.gates if calibration is not None and same else ()
    by_run = {gate.run_id: gate for gate in (*gates, *known)}  # what is stored already wins
    ordered = sorted(by_run.values(), key=lambda gate: (gate.finished_at, gate.run_id))
    return Calibration(perfguard=__version__, suite=suite, scope=scope, gates=tuple(ordered))


def gates_of_scope(banked: Calibration | None, scope: Scope) -> tuple[AAGate, ...]:
    """Banked gates that belong to a scope; none where they were measured in another one."""
    if banked is None or scope_difference(banked.scope, scope) is not None:
        return ()
    return tuple(replace(gate, banked=True) for gate in banked.gates)


def gates_of_suite(gates: Sequence[AAGate], case_ids: Iterable[str]) -> tuple[AAGate, ...]:
    """Those that measured the cases that a suite has now: a suite with other cases has other errors.

    A case that no gate measured, because its own suite skips it here or because it is new, is no difference yet.
    """
    measured = {case_id for gate in gates for case_id in gate.cases}
    wanted = measured.intersection(case_ids)
    return tuple(gate for gate in gates if gate.cases.keys() == wanted)


def _sample(entries: Sequence[CaseSamples], voided: Collection[int], *, is_gating: bool) -> CaseSample:
    # A voided block says nothing of the noise, but it took its time, and the case was still there.
    kept = [entry for entry in entries if entry.block not in voided]
    effects = [block_effect(entry.baseline_s, entry.candidate_s) for entry in kept]
    pairs = [min(len(entry.baseline_s), len(entry.candidate_s)) for entry in kept]
    # Of one sample, as far as the trimmed mean feels it.
    variances = [effect.variance * count for effect, count in zip(effects, pairs, strict=True)]
    known = [variance for variance in variances if not math.isnan(variance)]
    return CaseSample(
        gating=is_gating,
        block_log_ratios=tuple(round(effect.log_ratio, _DIGITS) for effect in effects),
        samples=round(statistics.median(pairs)),
        sample_variance=_rounded(statistics.fmean(known)) if known else None,
        block_variances=tuple(None if math.isnan(effect.variance) else _rounded(effect.variance) for effect in effects),
        blocks=len({entry.block for entry in entries}),
        wall_s=_typical_s([entry.wall_s for entry in entries]),
    )


def _typical_s(values_s: Sequence[float | None]) -> float | None:
    known_s = [value_s for value_s in values_s if value_s is not None]
    return round(statistics.median(known_s), 3) if known_s else None


def _rounded(variance: float) -> float:
    return float(f"{variance:.4g}")


def false_alarms(calibration: Calibration) -> FalseAlarms:
    """Red A/A gates out of those that reached a verdict, with the exact bound of their rate."""
    counted = [gate for gate in calibration.gates if gate.is_counted]
    red = sum(gate.is_false_alarm for gate in counted)
    return FalseAlarms(count=red, gates=len(counted), bound=upper_bound(red, len(counted)))


def summarize(calibration: Calibration, *, max_blocks: int, margins: Margins) -> CalibrationSummary:
    """Everything that a calibration of any number of gates says.

    A gate has at most `max_blocks`, whatever its budget, and these margins.
    """
    gates = evidence(calibration)
    family = gating_cases(calibration)
    level = calibration.scope.alpha / max(1, len(family))
    times = [gate.finished_at for gate in calibration.gates]
    pace = pace_of(gates)
    cases = [_case(calibration, case_id, margins, gating=case_id in family) for case_id in _cases_of(calibration)]
    cases.sort(key=lambda case: not case.gating)
    found = []
    for case in cases:
        blocks = [min(pace.blocks_within(60.0 * minutes, case.case_id), max_blocks) for minutes in MDE_MINUTES]
        mdes = [sequential_mde(case.block_sd, n, level=level, margin_ratio=case.margin_ratio) for n in blocks]
        found.append(replace(case, mde=tuple(zip(MDE_MINUTES, mdes, strict=True))))
    return CalibrationSummary(
        suite=calibration.suite,
        first_at=min(times, default=None),
        latest_at=max(times, default=None),
        gates=len(calibration.gates),
        placebo_gates=sum(gate.placebo for gate in calibration.gates),
        placebo_limit=placebo_limit(calibration),
        margin_ratio=margins.ratio,
        pace=pace,
        false_alarms=false_alarms(calibration),
        cases=tuple(found),
    )


def detectable_effects(
    summary: CalibrationSummary, *, alpha: float, budget_s: float, max_blocks: int
) -> tuple[float, float] | None:
    """Smallest and largest slowdown of a single gating case that a gate of this length finds with 80 % power.

    Alpha is the family-wise level of the gate. The confirmation is left out. None where no case's noise is known, or a
    gate is too short.
    """
    gating = [case for case in summary.cases if case.gating]
    level = alpha / max(1, len(gating))
    found = [
        sequential_mde(
            case.block_sd,
            min(summary.pace.blocks_within(budget_s, case.case_id), max_blocks),
            level=level,
            margin_ratio=case.margin_ratio,
        )
        for case in gating
    ]
    known = [mde for mde in found if math.isfinite(mde)]
    return (min(known), max(known)) if known else None


def evidence(calibration: Calibration) -> tuple[AAGate, ...]:
    """The gates that noise is learned from: those that reached a verdict, all of them where none did."""
    return tuple(gate for gate in calibration.gates if gate.is_counted) or calibration.gates


def calibrated_margins(calibration: Calibration, *, narrow_ratio: float, wide_ratio: float) -> Margins:
    """The narrow margin where relocated arms are shown to differ by little, else the wide one.

    A case has a larger margin where its placebo floor is larger, and the wide one where its own relocated arms differed
    by more than the narrow one is good for.
    """
    ratio = narrow_ratio if placebo_limit(calibration) <= LARGEST_SPREAD else wide_ratio
    cases = {}
    for case_id in _cases_of(calibration):
        placebo = placebo_of(calibration, case_id)
        margin = max(wide_ratio if placebo.spread > LARGEST_SPREAD else ratio, placebo.floor_ratio)
        if margin > ratio:
            cases[case_id] = margin
    return Margins(ratio=ratio, cases=cases)


def placebo_limit(calibration: Calibration) -> float:
    """Upper 95 % limit of the SD of placebo effects, log scale, over all cases together; inf without a placebo gate."""
    estimates = (_placebo_estimates(calibration, case_id) for case_id in _cases_of(calibration))
    return placebo_spread(list(itertools.chain.from_iterable(estimates)), CONFIDENCE).upper


def _cases_of(calibration: Calibration) -> list[str]:
    return sorted({case_id for gate in evidence(calibration) for case_id in gate.cases})


def placebo_of(calibration: Calibration, case_id: str) -> PlaceboSpread:
    """How much the case differed between gates whose arms were relocated but identical."""
    return placebo_spread(_placebo_estimates(calibration, case_id))


def _placebo_estimates(calibration: Calibration, case_id: str) -> list[Estimate]:
    placebos = [gate for gate in evidence(calibration) if gate.placebo]
    samples = _samples(placebos, case_id)
    return [estimate_paired(s.block_log_ratios, CONFIDENCE, block_variances(s)) for s in samples]


def block_variances(sample: CaseSample) -> list[float] | None:
    """What weights the blocks of a sample; None where it was recorded without."""
    if len(sample.block_variances) != len(sample.block_log_ratios):
        return None
    return [math.nan if variance is None else variance for variance in sample.block_variances]


def gating_cases(calibration: Calibration) -> frozenset[str]:
    """Cases that could fail the latest gate."""
    latest = calibration.gates[-1:]
    return frozenset(case_id for gate in latest for case_id, sample in gate.cases.items() if sample.gating)


def _samples(gates: Sequence[AAGate], case_id: str) -> list[CaseSample]:
    return [gate.cases[case_id] for gate in gates if case_id in gate.cases]


def _case(calibration: Calibration, case_id: str, margins: Margins, *, gating: bool) -> CalibratedCase:
    samples = _samples(evidence(calibration), case_id)
    values = [sample.block_log_ratios for sample in samples]
    spread = pooled_spread(values, variances=[block_variances(sample) for sample in samples])
    in_order, band = autocorrelation(values)
    placebo = placebo_of(calibration, case_id)
    within = [s.sample_variance for s in samples if s.sample_variance is not None]
    per_block, shared = round(statistics.median(sample.samples for sample in samples)), math.nan
    if within:
        shared = intraclass_correlation(pooled_spread(values).sd ** 2, statistics.fmean(within), per_block)
    return CalibratedCase(
        case_id=case_id,
        gating=gating,
        gates=len(samples),
        blocks=sum(map(len, values)),
        block_sd=spread.sd,
        block_sd_interval=spread.interval,
        intraclass_correlation=shared,
        autocorrelation=in_order,
        autocorrelation_band=band,
        placebo_gates=placebo.gates,
        placebo_spread=placebo.spread,
        placebo_floor_ratio=placebo.floor_ratio,
        margin_ratio=margins.cases.get(case_id, margins.ratio),
        mde=(),
    )


def pace_of(gates: Sequence[AAGate]) -> GatePace:
    """The typical pace of gates whose arms were the same.

    The time of single cases is known where any gate recorded it; older gates recorded only when
    cases left.
    """
    if not gates:
        return GatePace(block_s=math.nan, overhead_s=math.nan)
    starts_s = [gate.startup_s for gate in gates if gate.startup_s is not None]
    case_ids = sorted({case_id for gate in gates for case_id in gate.cases})
    cases = {case_id: _case_pace(case_id, gates) for case_id in case_ids}
    is_known = bool(starts_s) and all(case is not None for case in cases.values())
    startup_s = statistics.median(starts_s) if is_known else math.nan
    # A median of sums is no sum of medians: where single cases are known, a block is what they add up to.
    whole_s = startup_s + sum(case.wall_s for case in cases.values() if case is not None)
    return GatePace(
        block_s=whole_s if is_known else statistics.median(gate.block_s for gate in gates),
        overhead_s=statistics.median(gate.overhead_s for gate in gates),
        startup_s=startup_s,
        cases={case_id: case for case_id, case in cases.items() if case is not None} if is_known else {},
    )


def _case_pace(case_id: str, gates: Sequence[AAGate]) -> CasePace | None:
    """None where no gate recorded what the case takes."""
    known = [(gate, gate.cases[case_id]) for gate in gates if case_id in gate.cases]
    walls_s = [sample.wall_s for _, sample in known if sample.wall_s is not None]
    if not walls_s:
        return None
    blocks = [(sample.blocks or len(sample.block_log_ratios), gate.blocks) for gate, sample in known]
    # What was measured in the last block may have been about to leave or not: its gate does not tell.
    stays = survival([(measured, measured < of_gate) for measured, of_gate in blocks])
    return CasePace(wall_s=statistics.median(walls_s), stays=stays)
