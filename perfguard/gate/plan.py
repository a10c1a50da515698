"""`plan`: which cases of a suite can find a slowdown within its budget on this machine; the others are only reported.

What is known of the noise comes from the machine's calibration or from its latest recorded gate.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from perfguard.errors import StoreError, UsageError
from perfguard.gate.calibrate import Calibrated, known_error_rate
from perfguard.gate.calibration.aa_gates import block_variances, case_samples, full_block_s
from perfguard.gate.calibration.error_rate import false_alarm_values
from perfguard.gate.calibration.machine_rates import baselines_of, utc_now
from perfguard.gate.paired.judging import policy_of
from perfguard.gate.rejudge import recorded_duration_s
from perfguard.records.calibration import TIME_FORMAT, GatePace, PlannedCase, SuitePlan
from perfguard.records.events import RunStarted
from perfguard.records.facts import Fact, Value, fact
from perfguard.records.run_data import RunData
from perfguard.records.spec import Gating
from perfguard.runner.run_folder import read_events
from perfguard.runner.session import Request
from perfguard.stats.calibration import pooled_spread
from perfguard.stats.power import sequential_blocks
from perfguard.store.calibrations import plan_file, save_plan


class EffectTarget(Struct, frozen=True, kw_only=True):
    """What a suite is asked to find."""

    detect_ratio: float
    power: float
    alpha: float  # Family-wise level of a gate
    budget_s: float
    max_blocks: int
    min_blocks: int  # Blocks below which a gate decides nothing


class KnownNoise(Struct, frozen=True, kw_only=True):
    """What is known of one case on the machine."""

    block_sd: float
    margin_ratio: float  # Its margin, placebo floor included


def plan_suite(request: Request, *, detect_ratio: float, power: float) -> SuitePlan:
    """Blocks and minutes that each gating case needs to find this slowdown with this chance, within a gate's budget.

    Raises:
        UsageError: The request is impossible whatever the machine.
        StoreError: Nothing is known of the machine's noise, or the calibration is corrupt.
    """
    config = request.loaded.config
    gating = [case.id for case in request.cases if case.gating is Gating.GATING]
    _require_possible(request, gating, detect_ratio=detect_ratio, power=power)
    calibrated = known_error_rate(request)
    noise, pace, source = _from_calibration(calibrated) or _from_latest_run(request, calibrated)
    target = EffectTarget(
        detect_ratio=detect_ratio,
        power=power,
        alpha=config.alpha,
        budget_s=request.budget_s,
        max_blocks=config.max_blocks,
        min_blocks=policy_of(config).min_blocks,
    )
    cases = plan_cases(gating, noise, pace, target)
    return SuitePlan(
        suite=request.suite,
        machine_id=calibrated.scope.machine_id,
        cpus=calibrated.scope.cpus,
        env_profile=calibrated.scope.env_profile,
        created_at=utc_now().strftime(TIME_FORMAT),
        source=source,
        detect_ratio=detect_ratio,
        power=power,
        alpha=config.alpha,
        budget_s=request.budget_s,
        blocks_within=min(pace.blocks_within(request.budget_s), config.max_blocks),
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
    margin = config.wide_margin
    if detect_ratio <= margin:
        raise UsageError(
            f"--detect {detect_ratio:.2%} is not above the margin of {margin:.2%}, within which nothing is red; "
            "ask for more, or lower the margin"
        )
    if detect_ratio >= 10:
        raise UsageError(f"--detect {detect_ratio:.0%} needs no plan; ask for a slowdown below 1000%, such as 2%")
    if not 0.5 <= power <= 0.999:
        raise UsageError(f"--power {100 * power:g}% cannot be planned for; use one from 50% to 99.9%")


_Known = tuple[dict[str, KnownNoise], GatePace, Fact]  # Noise by case id, pace, and where both come from


def _from_calibration(calibrated: Calibrated) -> _Known | None:
    summary = calibrated.summary
    if summary is None or not calibrated.state.is_valid:
        return None
    noise = {c.case_id: KnownNoise(block_sd=c.block_sd, margin_ratio=c.margin_ratio) for c in summary.cases}
    return noise, summary.pace, fact("plan.from_calibration", false_alarm_values(summary.false_alarms))


def _from_latest_run(request: Request, calibrated: Calibrated) -> _Known:
    """From the latest paired run of the suite on this machine, which must be there."""
    margin = request.loaded.config.wide_margin
    policy = policy_of(request.loaded.config)
    for folder, data in _paired_runs(request, calibrated.scope.machine_id):
        paired = data.paired()
        samples = case_samples(paired, (), policy)
        if not any(len(sample.block_log_ratios) > 1 for sample in samples.values()):
            continue
        noise = {}
        for case_id, sample in samples.items():
            spread = pooled_spread([sample.block_log_ratios], variances=[block_variances(sample)])
            noise[case_id] = KnownNoise(block_sd=spread.sd, margin_ratio=margin)
        overhead_s = max(0.0, recorded_duration_s(folder, data) - data.measured_s)
        pace = GatePace(block_s=full_block_s(paired), overhead_s=overhead_s)
        return noise, pace, fact("plan.from_run", run_id=folder.name, status=calibrated.state.status.value)
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
            wanted = ("paired", request.suite, machine_id)
            if isinstance(start, RunStarted) and (start.mode, start.suite, start.machine_id) == wanted:
                yield events.parent, RunData.of(read_events(events))


def plan_cases(
    case_ids: Sequence[str], noise: Mapping[str, KnownNoise], pace: GatePace, target: EffectTarget
) -> tuple[PlannedCase, ...]:
    """Blocks and minutes of each case, and whether it may gate.

    The level of a case depends on how many gate, so the neediest case is demoted first and the rest is planned again:
    the largest family in which every case reaches its power stays. The ids are those of the gating cases, in the order
    of the suite; a case that has no noise was never measured.
    """
    limits = {id_: min(pace.blocks_within(target.budget_s, id_), target.max_blocks) for id_ in case_ids}
    family = list(case_ids)

    def need(case_id: str) -> float:
        """Blocks that a case needs over those that it can have; inf where none would do."""
        blocks, limit = _blocks(noise.get(case_id), target, len(family)), limits[case_id]
        return math.inf if blocks is None or not limit else blocks / limit

    while family and need(neediest := max(family, key=need)) > 1:
        family.remove(neediest)
    return tuple(_planned(case_id, noise.get(case_id), family, pace, target) for case_id in case_ids)


def suite_minutes(cases: Sequence[PlannedCase]) -> float | None:
    """Minutes until every case that gates has its power; they are measured side by side."""
    minutes = [case.minutes for case in cases if case.gating and case.minutes is not None]
    return max(minutes, default=None)


def _blocks(noise: KnownNoise | None, target: EffectTarget, family: int) -> int | None:
    if noise is None:
        return None
    level = target.alpha / max(1, family)
    found = sequential_blocks(
        target.detect_ratio, noise.block_sd, level=level, margin_ratio=noise.margin_ratio, power=target.power
    )
    return None if found is None else max(found, target.min_blocks)


def _planned(
    case_id: str, noise: KnownNoise | None, family: Sequence[str], pace: GatePace, target: EffectTarget
) -> PlannedCase:
    is_gating = case_id in family
    # A demoted case is planned as the family's next member, which is what it would have to be.
    blocks = _blocks(noise, target, len(family) if is_gating else len(family) + 1)
    return PlannedCase(
        case_id=case_id,
        block_sd=None if noise is None or math.isnan(noise.block_sd) else noise.block_sd,
        margin_ratio=noise.margin_ratio if noise else 0.0,
        blocks=blocks,
        minutes=None if blocks is None else round(pace.minutes_for(blocks, case_id), 1),
        gating=is_gating,
        reason=_reason(case_id, noise, blocks, pace, target, is_gating=is_gating),
    )


def _reason(
    case_id: str, noise: KnownNoise | None, blocks: int | None, pace: GatePace, target: EffectTarget, *, is_gating: bool
) -> Fact:
    """What a case needs, and why it may not gate where that is so."""
    effect: dict[str, Value] = {"detect_ratio": target.detect_ratio, "power_share": target.power}
    within = pace.blocks_within(target.budget_s, case_id)
    if noise is None:
        found = fact("plan.never_measured")
    elif math.isnan(noise.block_sd):
        found = fact("plan.noise_unknown")
    elif noise.margin_ratio >= target.detect_ratio:
        found = fact("plan.below_floor", effect, floor_ratio=noise.margin_ratio)
    elif blocks is None:
        found = fact("plan.too_noisy", effect, block_sd_ratio=noise.block_sd)
    elif is_gating:
        found = fact("plan.enough", effect, blocks=blocks)
    elif within > target.max_blocks:
        found = fact("plan.beyond_max_blocks", effect, blocks=blocks, max_blocks=target.max_blocks)
    else:
        found = fact("plan.beyond_budget", effect, within=within, budget_s=target.budget_s, blocks=blocks)
    return found
