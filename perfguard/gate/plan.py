"""`plan`: what a suite can find within its budget on this machine, from its calibration or its latest recorded gate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfguard.errors import StoreError, UsageError
from perfguard.gate.calibrate import Calibrated, known_error_rate
from perfguard.gate.calibration.aa_gates import case_samples, full_block_s
from perfguard.gate.calibration.error_rate import false_alarm_values
from perfguard.gate.calibration.machine_rates import baselines_of, utc_now
from perfguard.gate.calibration.plan_cases import CaseNoise, Target, plan_cases, suite_minutes
from perfguard.gate.calibration.summary import block_variances
from perfguard.gate.paired.judging import policy_of
from perfguard.gate.rules.sequential import ANALYSES
from perfguard.gate.show import recorded_duration_s
from perfguard.records.calibration import TIME_FORMAT, CalibrationSummary, Pace, SuitePlan
from perfguard.records.events import RunStarted
from perfguard.records.facts import Fact, fact
from perfguard.records.run_data import RunData
from perfguard.records.spec import Gating
from perfguard.runner.run_folder import read_events
from perfguard.runner.session import Request
from perfguard.stats.calibration import pooled_spread
from perfguard.store.calibrations import plan_file, save_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of the suite's noise."""

    noise: dict[str, CaseNoise]
    pace: Pace
    source: Fact


def plan_suite(request: Request, *, detect_ratio: float, power: float) -> SuitePlan:
    """Blocks and minutes that each gating case needs, and which cases the budget leaves out.

    Args:
        request: The suite and the budget of its gates.
        detect_ratio: Slowdown to find.
        power: Chance to find it.

    Raises:
        UsageError: The request is impossible whatever the machine.
        StoreError: Nothing is known of the machine's noise, or the calibration is corrupt.
    """
    config = request.loaded.config
    gating = [case.id for case in request.cases if case.gating is Gating.GATING]
    _require_possible(request, gating, detect_ratio=detect_ratio, power=power)
    calibrated = known_error_rate(request)
    known = _from_calibration(calibrated) or _from_latest_run(request, calibrated)
    target = Target(
        detect_ratio=detect_ratio,
        power=power,
        alpha=config.alpha,
        budget_s=request.budget_s,
        max_blocks=config.max_blocks,
        analyses=ANALYSES,
        min_blocks=policy_of(config).min_blocks,
    )
    cases = plan_cases(gating, known.noise, known.pace, target)
    return SuitePlan(
        suite=request.suite,
        machine_id=calibrated.scope.machine_id,
        cpus=calibrated.scope.cpus,
        env_profile=calibrated.scope.env_profile,
        created_at=utc_now().strftime(TIME_FORMAT),
        source=known.source,
        detect_ratio=detect_ratio,
        power=power,
        alpha=config.alpha,
        budget_s=request.budget_s,
        blocks_within=min(known.pace.blocks_within(request.budget_s), config.max_blocks),
        minutes=suite_minutes(cases),
        cases=cases,
    )


def write_plan(request: Request, plan: SuitePlan) -> Path:
    """Store a plan beside the calibration; gates on this machine then honour it.

    Raises:
        StoreError: It cannot be written.
    """
    path = plan_file(baselines_of(request.loaded), plan.machine_id, plan.suite)
    save_plan(path, plan)
    return path


def _require_possible(request: Request, gating: list[str], *, detect_ratio: float, power: float) -> None:
    config = request.loaded.config
    if not gating:
        raise UsageError(f"suite {request.suite!r} has no gating case to plan for; list some in its `gating`")
    if detect_ratio <= config.margin:
        raise UsageError(
            f"--detect {detect_ratio:.2%} is not above the margin of {config.margin:.2%}, within which nothing is red; "
            "ask for more, or lower the margin"
        )
    if detect_ratio >= 10:
        raise UsageError(f"--detect {detect_ratio:.0%} needs no plan; ask for a slowdown below 1000%, such as 2%")
    if not 0.5 <= power <= 0.999:
        raise UsageError(f"--power {100 * power:g}% cannot be planned for; use one from 50% to 99.9%")


def _from_calibration(calibrated: Calibrated) -> _Known | None:
    summary: CalibrationSummary | None = calibrated.summary
    if summary is None or calibrated.calibration is None or not calibrated.state.is_valid:
        return None
    return _Known(
        noise={c.case_id: CaseNoise(block_sd=c.block_sd, margin_ratio=c.margin_ratio) for c in summary.cases},
        pace=summary.pace,
        source=fact("plan.from_calibration", false_alarm_values(summary.false_alarms)),
    )


def _from_latest_run(request: Request, calibrated: Calibrated) -> _Known:
    """The latest paired run of the suite on this machine."""
    margin = request.loaded.config.margin
    void_fraction = policy_of(request.loaded.config).max_void_fraction
    for folder, data in _paired_runs(request, calibrated.scope.machine_id):
        paired = data.paired()
        samples = case_samples(paired, (), max_void_fraction=void_fraction)
        if not any(len(sample.block_log_ratios) > 1 for sample in samples.values()):
            continue
        return _Known(
            noise={
                case_id: CaseNoise(
                    block_sd=pooled_spread([sample.block_log_ratios], variances=[block_variances(sample)]).sd,
                    margin_ratio=margin,
                )
                for case_id, sample in samples.items()
            },
            pace=Pace(
                block_s=full_block_s(paired), overhead_s=max(0.0, recorded_duration_s(folder, data) - data.measured_s)
            ),
            source=fact("plan.from_run", run_id=folder.name, status=calibrated.state.status.value),
        )
    raise StoreError(
        f"nothing is known of the noise of suite {request.suite!r} on this machine: its calibration is "
        f"{calibrated.state.status.value}, and no paired run of it is recorded here"
    )


def _paired_runs(request: Request, machine_id: str) -> Iterator[tuple[Path, RunData]]:
    """Recorded paired runs of the suite on this machine, the latest first."""
    runs = request.loaded.project / ".perfguard" / "runs"
    for events in sorted(runs.glob("*/events.jsonl"), reverse=True):
        with contextlib.suppress(StoreError):
            start = next(iter(read_events(events)), None)
            if isinstance(start, RunStarted) and (start.mode, start.suite, start.machine_id) == (
                "paired",
                request.suite,
                machine_id,
            ):
                yield events.parent, RunData.of(read_events(events))
