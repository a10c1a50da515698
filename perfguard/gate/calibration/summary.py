"""What a calibration adds up to: everything is worked out from its raw values, for each case and for the gate."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfguard.records.calibration import (
    AAGate,
    CalibratedCase,
    Calibration,
    CalibrationSummary,
    CasePace,
    CaseSample,
    FalseAlarms,
    Pace,
)
from perfguard.stats.calibration import CONFIDENCE, autocorrelation, intraclass_correlation, pooled_spread, upper_bound
from perfguard.stats.paired import estimate_paired
from perfguard.stats.placebo import PlaceboSpread, placebo_spread
from perfguard.stats.planning import sequential_mde
from perfguard.stats.survival import survival

MDE_MINUTES = (2, 5, 10, 20, 60)
"""Lengths of a gate that the table of detectable effects is given for."""


def false_alarms(calibration: Calibration) -> FalseAlarms:
    """Red A/A gates out of those that reached a verdict, with the exact bound of their rate."""
    counted = [gate for gate in calibration.gates if gate.is_counted]
    red = sum(gate.is_false_alarm for gate in counted)
    return FalseAlarms(count=red, gates=len(counted), bound=upper_bound(red, len(counted)))


def summarize(calibration: Calibration, *, analyses: int, max_blocks: int) -> CalibrationSummary:
    """Everything that a calibration says.

    Args:
        calibration: With any number of gates, also none.
        analyses: Times that a gate looks at its data, for the detectable effects.
        max_blocks: Blocks after which a gate ends, however many minutes it has.
    """
    gates = evidence(calibration)
    family = gating_cases(calibration)
    level = calibration.scope.alpha / max(1, len(family))
    times = [gate.finished_at for gate in calibration.gates]
    pace = pace_of(gates)
    seen = {case_id for gate in gates for case_id in gate.cases}
    cases = [_case(calibration, case_id, gating=case_id in family) for case_id in sorted(seen)]
    return CalibrationSummary(
        suite=calibration.suite,
        first_at=min(times, default=None),
        latest_at=max(times, default=None),
        gates=len(calibration.gates),
        placebo_gates=sum(gate.placebo for gate in calibration.gates),
        pace=pace,
        false_alarms=false_alarms(calibration),
        cases=tuple(
            replace(case, mde=_mde(case, level=level, analyses=analyses, pace=pace, max_blocks=max_blocks))
            for case in sorted(cases, key=lambda case: not case.gating)
        ),
    )


def detectable_effects(
    summary: CalibrationSummary, *, alpha: float, budget_s: float, max_blocks: int, analyses: int
) -> tuple[float, float] | None:
    """Smallest and largest slowdown of a single gating case that a gate of this length finds with 80 % power.

    The confirmation is left out.

    Args:
        summary: Of the calibration.
        alpha: Family-wise level of the gate.
        budget_s: Wall seconds of the gate.
        max_blocks: Upper bound on its blocks.
        analyses: Times that it looks at its data.

    Returns:
        None where no case's noise is known, or a gate is too short.
    """
    gating = [case for case in summary.cases if case.gating]
    level = alpha / max(1, len(gating))
    found = [
        sequential_mde(
            case.block_sd,
            min(summary.pace.blocks_within(budget_s, case.case_id), max_blocks),
            level=level,
            margin_ratio=case.margin_ratio,
            analyses=analyses,
        )
        for case in gating
    ]
    known = [mde for mde in found if math.isfinite(mde)]
    return (min(known), max(known)) if known else None


def evidence(calibration: Calibration) -> tuple[AAGate, ...]:
    """The gates that noise is learned from: those that reached a verdict, all of them where none did."""
    return tuple(gate for gate in calibration.gates if gate.is_counted) or calibration.gates


def calibrated_margins(calibration: Calibration | None, margin_ratio: float) -> dict[str, float]:
    """The margin of each case that has a placebo floor above the configured margin; the others are left out."""
    if calibration is None:
        return {}
    floors = {
        case_id: placebo_of(calibration, case_id).floor_ratio
        for case_id in sorted({case_id for gate in evidence(calibration) for case_id in gate.cases})
    }
    return {case_id: floor for case_id, floor in floors.items() if floor > margin_ratio}


def placebo_of(calibration: Calibration, case_id: str) -> PlaceboSpread:
    """How much the case differed between gates whose arms were relocated but identical."""
    placebos = [gate for gate in evidence(calibration) if gate.placebo]
    samples = _samples(placebos, case_id)
    return placebo_spread([estimate_paired(s.block_log_ratios, CONFIDENCE, block_variances(s)) for s in samples])


def block_variances(sample: CaseSample) -> list[float] | None:
    """What weights the blocks of a sample; None where it was recorded without."""
    if len(sample.block_variances) != len(sample.block_log_ratios):
        return None
    return [math.nan if variance is None else variance for variance in sample.block_variances]


def gating_cases(calibration: Calibration) -> frozenset[str]:
    """Cases that could fail the latest gate."""
    latest: Mapping[str, CaseSample] = calibration.gates[-1].cases if calibration.gates else {}
    return frozenset(case_id for case_id, sample in latest.items() if sample.gating)


def _samples(gates: Sequence[AAGate], case_id: str) -> list[CaseSample]:
    return [gate.cases[case_id] for gate in gates if case_id in gate.cases]


def _case(calibration: Calibration, case_id: str, *, gating: bool) -> CalibratedCase:
    samples = _samples(evidence(calibration), case_id)
    values = [sample.block_log_ratios for sample in samples]
    spread = pooled_spread(values, variances=[block_variances(sample) for sample in samples])
    order = autocorrelation(values)
    placebo = placebo_of(calibration, case_id)
    within = [s.sample_variance for s in samples if s.sample_variance is not None]
    per_block = round(statistics.median(sample.samples for sample in samples))
    return CalibratedCase(
        case_id=case_id,
        gating=gating,
        gates=len(samples),
        blocks=sum(map(len, values)),
        block_sd=spread.sd,
        block_sd_interval=spread.interval,
        intraclass_correlation=(
            intraclass_correlation(pooled_spread(values).sd ** 2, statistics.fmean(within), per_block)
            if within
            else math.nan
        ),
        autocorrelation=order.value,
        autocorrelation_band=order.band,
        placebo_gates=placebo.gates,
        placebo_spread=placebo.spread,
        placebo_floor_ratio=placebo.floor_ratio,
        margin_ratio=max(calibration.scope.margin_ratio, placebo.floor_ratio),
        mde=(),
    )


def _mde(
    case: CalibratedCase, *, level: float, analyses: int, pace: Pace, max_blocks: int
) -> tuple[tuple[int, float], ...]:
    found = []
    for minutes in MDE_MINUTES:
        blocks = min(pace.blocks_within(60.0 * minutes, case.case_id), max_blocks)
        mde = sequential_mde(case.block_sd, blocks, level=level, margin_ratio=case.margin_ratio, analyses=analyses)
        found.append((minutes, mde))
    return tuple(found)


def pace_of(gates: Sequence[AAGate]) -> Pace:
    """The typical pace of gates whose arms were the same.

    What single cases take is known where any gate tells; gates that were recorded before that was kept tell only when
    cases left.
    """
    if not gates:
        return Pace(block_s=math.nan, overhead_s=math.nan)
    starts_s = [gate.startup_s for gate in gates if gate.startup_s is not None]
    case_ids = sorted({case_id for gate in gates for case_id in gate.cases})
    cases = {case_id: _case_pace(case_id, gates) for case_id in case_ids}
    is_known = bool(starts_s) and all(case is not None for case in cases.values())
    startup_s = statistics.median(starts_s) if is_known else math.nan
    # A median of sums is no sum of medians: where single cases are known, a block is what they add up to.
    whole_s = startup_s + sum(case.wall_s for case in cases.values() if case is not None)
    return Pace(
        block_s=whole_s if is_known else statistics.median(gate.block_s for gate in gates),
        overhead_s=statistics.median(gate.overhead_s for gate in gates),
        startup_s=startup_s,
        cases={case_id: case for case_id, case in cases.items() if case is not None} if is_known else {},
    )


def _case_pace(case_id: str, gates: Sequence[AAGate]) -> CasePace | None:
    """None where no gate tells what the case takes."""
    known = [(gate, gate.cases[case_id]) for gate in gates if case_id in gate.cases]
    walls_s = [sample.wall_s for _, sample in known if sample.wall_s is not None]
    if not walls_s:
        return None
    blocks = [(sample.blocks or len(sample.block_log_ratios), gate.blocks) for gate, sample in known]
    # What was measured in the last block may have been about to leave or not: its gate does not tell.
    stays = survival([(measured, measured < of_gate) for measured, of_gate in blocks])
    return CasePace(wall_s=statistics.median(walls_s), stays=stays)
