"""Before anything is compared: start each arm once, look at what it really runs, check and calibrate its cases."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from perfguard.errors import MeasurementError
from perfguard.records.events import CaseCalibrated, Event
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.plan import LEAST_SAMPLES, CasePlan, Injection, MeasureSettings
from perfguard.records.protocol import Message
from perfguard.records.run import Arm, CaseFailed
from perfguard.records.spec import Case
from perfguard.runner.blocks.measure import BLOCKS_OF_A_HASH_SEED, plan_block
from perfguard.runner.process.answers import CodeProof
from perfguard.runner.process.arm_worker import ArmWorker, CaseRefused
from perfguard.runner.process.worker_process import WorkerContext, WorkerFailure

_MAX_INSTANCES = 12
_WANTED_BLOCKS = 10
_LONG_SHARE, _SHORT_SHARE = 0.5, 2.5  # Fewest and most samples of a case over those of the settings
_PROCESS_S = 0.1  # Seconds that a worker takes to be forked and to end
_UNTIMED_CALLS = 3  # Calls of each instance in a block outside any sample: one at set-up, two before the first sample
_INSTANCE_BUDGET_S = 0.25  # Seconds that each arm may spend on further instances of a case, in every block
_ROOM = 1.25  # A recommended budget holds so many times what is needed: what a block takes is an estimate
_LAST_SAMPLES = 3  # Of pyperf's calibration, the longest ones; one alone may have been disturbed
_MOST_CALIBRATING = 200  # Samples: pyperf doubles the iterations of a sample until one is long enough, which takes 30
_MAX_RESTARTS = 8  # Each case that takes its worker down costs one restart


class ArmReport(Struct):
    """What one arm turned out to be."""

    ready: Message = field(default_factory=dict)  # The worker's facts: interpreter, torch, software
    attested: Message = field(default_factory=dict)  # Imported files and distributions
    iteration_s: dict[str, float] = field(default_factory=dict)  # Seconds of one iteration, by case id
    instance_s: dict[str, float] = field(default_factory=dict)  # Seconds of one further set-up, by case id
    failed: dict[str, CaseFailed] = field(default_factory=dict)  # Cases that this arm cannot run
    proofs: dict[str, CodeProof] = field(default_factory=dict)  # What each case runs of the trees, where it was asked


class ArmCalibration(WorkerContext, frozen=True, kw_only=True):
    """What calibrating an arm needs."""

    needs_torch: bool  # Whether workers import torch at `hello`
    progress: Callable[[Fact], None]  # Gets one line for each case
    proves: bool = False  # Whether it is recorded what each case runs of the trees


def calibrate_arm(
    arm: Arm,
    cases: Sequence[Case],
    calibration: ArmCalibration,
    *,
    roots: tuple[str, ...],
    foreign_roots: tuple[str, ...],
) -> ArmReport:
    """Start an arm, set every case up twice, time it with pyperf's own calibration, and attest what was imported.

    Raises:
        MeasurementError: The arm's worker cannot be started.
    """
    report = ArmReport()
    left, proves = list(cases), calibration.proves
    for _ in range(_MAX_RESTARTS):
        worker = _start(arm, calibration, report)
        try:
            if proves:
                proves = False
                if not _follow(arm, left, worker, calibration, report, roots):
                    continue  # with a new worker, without proofs
            _calibrate_cases(arm, left, worker, calibration, report)
            report.attested = worker.attest(roots, foreign_roots)
        except CaseRefused as failure:
            raise MeasurementError(f"the {arm.value} worker cannot say what it imported: {failure.reason}") from failure
        except WorkerFailure as failure:
            # The case that took the worker down is the first that has neither a time nor a failure.
            broken = next((c for c in left if c.id not in {*report.iteration_s, *report.failed}), None)
            if broken is None:
                raise MeasurementError(f"the {arm.value} worker failed after its cases: {failure.reason}") from failure
            report.failed[broken.id] = CaseFailed(
                case_id=broken.id, arm=arm, missing=False, reason=failure.found, detail=failure.detail
            )
        else:
            return report
        finally:
            worker.close()
        left = [c for c in left if c.id not in report.failed]
    raise MeasurementError(f"the {arm.value} worker died {_MAX_RESTARTS} times while its cases were set up")


def _follow(  # noqa: PLR0917 - one caller, here
    arm: Arm,
    cases: Sequence[Case],
    worker: ArmWorker,
    calibration: ArmCalibration,
    report: ArmReport,
    roots: tuple[str, ...],
) -> bool:
    """Record what each case runs of the trees, before anything of them is imported; False where the worker failed."""
    try:
        for case in cases:
            if not calibration.should_stop():
                calibration.progress(fact("step.proving", arm=arm.value, case_id=case.id))
                report.proofs[case.id] = worker.prove(case, seed=calibration.settings.seed, roots=roots)
    except (WorkerFailure, CaseRefused):
        report.proofs.clear()
        return False
    return True


def _start(arm: Arm, calibration: ArmCalibration, report: ArmReport) -> ArmWorker:
    block = plan_block(1, index=0, seed=calibration.settings.seed)
    worker = ArmWorker(arm, calibration.starter.start(arm, block, None), calibration.settings)
    job = {"import_torch": calibration.needs_torch, "collect_software": True, "metadata": {}}
    try:
        report.ready = worker.hello(job, cpus=calibration.cpus)
    except BaseException as failure:
        worker.close()
        if not isinstance(failure, (WorkerFailure, CaseRefused)):
            raise
        tail = "\n".join(failure.detail.strip().splitlines()[-12:])
        raise MeasurementError(
            f"the {arm.value} worker cannot be started: {failure.reason}\n{tail}".strip()
        ) from failure
    return worker


def _calibrate_cases(
    arm: Arm, cases: Sequence[Case], worker: ArmWorker, calibration: ArmCalibration, report: ArmReport
) -> None:
    for case in cases:
        if calibration.should_stop():
            continue
        # After a restart, cases that are known are only set up again: what they import has to be attested.
        known = report.iteration_s.pop(case.id, None)
        calibration.progress(fact("step.checking", arm=arm.value, case_id=case.id))
        try:
            prepared = worker.prepare(case, seed=calibration.settings.seed, check=known is None)
            if prepared.instance_s is not None:
                report.instance_s[case.id] = prepared.instance_s
            if known is None:
                known = _iteration_s(worker, case, calibration.settings)
            if known is not None:
                report.iteration_s[case.id] = known
        except CaseRefused as refused:
            reason, detail, missing, skipped = refused.found, refused.detail, refused.missing, refused.skipped
            report.failed[case.id] = CaseFailed(
                case_id=case.id, arm=arm, missing=missing, reason=reason, detail=detail, skipped=skipped
            )


def _iteration_s(worker: ArmWorker, case: Case, settings: MeasureSettings) -> float | None:
    """Seconds of one iteration, by pyperf's own calibration; None where it timed nothing.

    Raises:
        WorkerFailure: It does not come to an end, as where code of the arm answers instead of pyperf.
    """
    worker.open(case, inner_loops=1, spin_s=0.0, calibrates=True)
    times_s: list[float] = []
    until = time.monotonic() + settings.setup_timeout_s
    while worker.is_waiting:
        if len(times_s) == _MOST_CALIBRATING or time.monotonic() > until:
            raise WorkerFailure(f"the worker is still calibrating {case.id} after {len(times_s)} samples")
        times_s.append(worker.sample(block=0, case_id=case.id).value_s)
    return statistics.median(times_s[-_LAST_SAMPLES:]) if times_s else None


def plan_cases(
    cases: Sequence[Case],
    reports: Sequence[ArmReport],
    *,
    settings: MeasureSettings,
    injections: Sequence[tuple[str, Injection]],
    emit: Callable[[Event], None],
) -> tuple[CasePlan, ...]:
    """Loops for each case that every arm can run, the same in all arms; failures and calibrations are emitted.

    The first report is of the calibrating arm, the baseline. `injections`: case id and slowdown.
    """
    injected = dict(injections)
    plans = []
    for case in cases:
        failed = [r.failed[case.id] for r in reports if case.id in r.failed]
        if failed:
            # What only one arm skips is new in the other, or lost there.
            first = next((entry for entry in failed if entry.is_below_target), failed[0])
            emit(replace(first, skipped=len(failed) == len(reports) and all(entry.skipped for entry in failed)))
            continue
        times = [r.iteration_s[case.id] for r in reports if case.id in r.iteration_s]
        if len(times) < len(reports):
            continue
        iteration_s, inner_loops = times[0], _inner_loops(times, settings.sample_s)
        instances, spin_s = _instances(case.id, reports, settings), _spin(injected.get(case.id), iteration_s)
        plans.append(
            CasePlan(case=case, inner_loops=inner_loops, iteration_s=iteration_s, instances=instances, spin_s=spin_s)
        )
        emit(CaseCalibrated(case_id=case.id, inner_loops=inner_loops, iteration_s=iteration_s))
    return _shared_out(plans, reports)


def _shared_out(plans: Sequence[CasePlan], reports: Sequence[ArmReport]) -> tuple[CasePlan, ...]:
    """More samples for short cases and fewer for long ones, in blocks that take as long as with one number for all.

    Numbers in proportion to length^(-2/3) make the sum of the standard errors least, for one length of a block, where
    noise is that of single samples (docs/decisions/0016-samples-by-case.md).
    """
    lengths_s = [_pair_s(plan, reports) for plan in plans]
    scale = sum(lengths_s) / sum(length_s ** (1 / 3) for length_s in lengths_s) if plans else 1.0
    return tuple(
        replace(plan, sample_share=min(_SHORT_SHARE, max(_LONG_SHARE, scale * length_s ** (-2 / 3))))
        for plan, length_s in zip(plans, lengths_s, strict=True)
    )


def _pair_s(plan: CasePlan, reports: Sequence[ArmReport]) -> float:
    """Seconds of a sample in every arm."""
    return sum(plan.inner_loops * report.iteration_s[plan.case.id] for report in reports)


def _inner_loops(times_s: Sequence[float], sample_s: float) -> int:
    """Iterations of a sample: `sample_s` between the arms, and half of that at least in the first, the baseline.

    Where one arm is forty times slower, the other's loops would make its samples endless. But a candidate that is slow
    only while it is calibrated must not make samples so short that what it hides in them is below any limit.
    """
    between, least = sample_s / statistics.geometric_mean(times_s), 0.5 * sample_s / times_s[0]
    return max(1, math.ceil(max(between, least)))


class BlockCost(Struct, frozen=True, kw_only=True):
    """What a block of some cases takes, as far as that is known before the first one."""

    fixed_s: float  # Processes, imports, instances; seconds
    sample_s: float  # One sample of every case in every arm, by the cases' shares; 0 where there is no case

    def block_s(self, settings: MeasureSettings) -> float:
        """Seconds of a block, its warm-up samples with it."""
        return self.fixed_s + (settings.samples + settings.warmups) * self.sample_s


def block_cost(plans: Sequence[CasePlan], reports: Sequence[ArmReport]) -> BlockCost:
    """What a block of these cases takes in these arms."""
    imports_s = sum(float(report.ready.get("import_s", 0.0)) for report in reports) / BLOCKS_OF_A_HASH_SEED
    fixed_s = imports_s + _PROCESS_S * len(reports)
    pair_s = 0.0
    for plan in plans:
        pair_s += plan.sample_share * _pair_s(plan, reports)
        for report in reports:
            iteration_s = report.iteration_s[plan.case.id]
            further_s = 0.0 if plan.instances == 1 else report.instance_s.get(plan.case.id, 0.0)
            fixed_s += plan.instances * (further_s + _UNTIMED_CALLS * iteration_s)
    return BlockCost(fixed_s=fixed_s, sample_s=pair_s)


def fit_samples(cost: BlockCost, settings: MeasureSettings, *, left_s: float) -> int:
    """As many samples as are wanted, or fewer where too few blocks would fit into what is left of the budget.

    The block is the unit of inference: ten blocks of six samples say more than four of twelve.
    """
    if cost.sample_s <= 0:
        return settings.samples
    affordable = int((left_s / _WANTED_BLOCKS - cost.fixed_s) / cost.sample_s) - settings.warmups
    return max(min(LEAST_SAMPLES, settings.samples), min(settings.samples, affordable))


def budget_shortage(
    cost: BlockCost, settings: MeasureSettings, *, least: int, budget_s: float, left_s: float
) -> Fact | None:
    """That too few blocks fit what is left of a budget, and which budget holds enough; None where enough fit.

    The samples of the settings are already as few as the budget makes them; a verdict needs `least` blocks.
    """
    block_s = cost.block_s(settings)
    if cost.sample_s <= 0 or left_s >= _ROOM * least * block_s:
        return None
    return fact(
        "run.budget_short",
        severity=Severity.NOTABLE,
        blocks=max(0, int(left_s / block_s)),
        needed=least,
        block_s=block_s,
        budget_s=budget_s,
        enough_s=math.ceil((budget_s - left_s + _ROOM * least * block_s) / 10) * 10,
    )


def _instances(case_id: str, reports: Sequence[ArmReport], settings: MeasureSettings) -> int:
    """As many instances as cost little to set up and warm in every block; one where that is expensive or unknown."""
    further_s = max(r.instance_s.get(case_id, math.inf) + _UNTIMED_CALLS * r.iteration_s[case_id] for r in reports)
    affordable = int(min(_INSTANCE_BUDGET_S / further_s, _MAX_INSTANCES))
    return max(1, min(1 + affordable, _MAX_INSTANCES, settings.samples))


def _spin(injection: Injection | None, iteration_s: float) -> tuple[float, float]:
    """Seconds that baseline and candidate spin in each iteration; a speed-up is a slower baseline."""
    effect = 0.0 if injection is None else injection.effect_ratio
    if effect >= 0:
        return (0.0, iteration_s * effect)
    return (iteration_s * (1 / (1 + effect) - 1), 0.0)
