"""From a recorded paired run to a line of a calibration, and calibrations put together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from perfguard.gate.calibration.error_rate import scope_difference
from perfguard.records.calibration import AAGate, Calibration, CaseSample, Scope
from perfguard.records.run import CaseSamples, PairedData
from perfguard.records.spec import Gating
from perfguard.records.verdict import GateResult, Outcome
from perfguard.stats.paired import block_effect
from perfguard.stats.voiding import void_blocks

_DIGITS = 6
"""Decimals of a stored log-ratio: a ten-thousandth of a per cent."""


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
    """What a calibration keeps of a gate whose arms were the same.

    Args:
        gate: As judged; where it passed by construction, what the times alone said counts.
        data: Its blocks, without those of a confirmation.
        run_id: The run.
        finished_at: UTC time, ISO 8601.
        duration_s: Wall seconds of the whole run.
        measured_s: Wall seconds of all its blocks, confirmation included.
        placebo: Whether the arms were relocated apart.
        banked: Whether it was a gate of somebody's work.
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
        cases=case_samples(data, gating, max_void_fraction=gate.policy.max_void_fraction),
    )


def case_samples(data: PairedData, gating: Collection[str], *, max_void_fraction: float) -> dict[str, CaseSample]:
    """The block values of each case that did not fail, from the blocks that the arm-blind rule leaves."""
    voided = void_blocks(data.conditions, max_void_fraction).blocks
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
    cases: dict[int, int] = {}
    for entry in data.samples:
        cases[entry.block] = cases.get(entry.block, 0) + 1
    most = max(cases.values(), default=0)
    full = [condition.duration_s for condition in data.conditions if cases.get(condition.block, 0) == most]
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


def with_gates(
    calibration: Calibration | None, gates: Iterable[AAGate], *, scope: Scope, suite: str, perfguard: str
) -> Calibration:
    """A calibration with further gates: in the order they finished, each run once.

    Gates of another scope say nothing about this one, so a calibration of another scope is left behind.
    """
    same = calibration is not None and scope_difference(calibration.scope, scope) is None
    known = calibration.gates if calibration is not None and same else ()
    by_run = {gate.run_id: gate for gate in (*gates, *known)}  # what is stored already wins
    ordered = sorted(by_run.values(), key=lambda gate: (gate.finished_at, gate.run_id))
    return Calibration(perfguard=perfguard, suite=suite, scope=scope, gates=tuple(ordered))


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
