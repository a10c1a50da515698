"""Parts that come from two arms in interleaved blocks: variants of the focal loss, and toggles of training steps."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from msgspec.structs import replace

from perfguard.errors import ExitCode, InterruptedRunError, MeasurementError
from perfguard.gate.paired.compare_arms import compare_arms
from perfguard.records.events import Event
from perfguard.records.plan import FOR_TRIALS
from perfguard.records.result import RunResult
from perfguard.records.run import CaseSamples
from perfguard.records.run_data import RunData
from perfguard.records.spec import Case, Phase
from perfguard.records.verdict import Outcome, Verdict
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.session import Request
from perfguard.study.evidence import DTYPES, KernelBlock, KernelPair, ToggleCompared
from perfguard.study.items import KERNEL_ANCHORS, MANY_CLASSES, CaseStudy
from perfguard.study.measured import Measured

_LEAST_BLOCKS = 2  # Without two there is no interval


def measure_kernel(request: Request, variant: str) -> Measured:
    """Compare a variant of the focal loss with the default: both dtypes, forward, and forward with backward.

    Raises:
        InterruptedRunError: The user ended it.
        PerfguardError: It could not be measured.
    """
    result, data = _compare(request, "dir:.", f"set:variant={variant}")
    different = any(verdict.outcome is Outcome.DIFFERENT for verdict in _verdicts(result))
    value = KernelPair(
        variant=variant,
        anchors=KERNEL_ANCHORS,
        classes=MANY_CLASSES,
        blocks=kernel_blocks(request.cases, data.paired().samples),
        is_different=different,
    )
    counts = [sum(block.dtype == dtype for block in value.blocks) for dtype in DTYPES]
    if not different and min(counts) < _LEAST_BLOCKS:
        raise _too_few(variant, result)
    return _measured(value, result)


def kernel_blocks(cases: Iterable[Case], samples: Iterable[CaseSamples]) -> tuple[KernelBlock, ...]:
    """Medians by dtype and block, of the blocks that hold forward, and forward with backward."""
    places = {case.id: (str(dict(case.parameters)["dtype"]), case.phase) for case in cases}
    found = {(*places[each.case_id], each.block): each for each in samples}
    blocks = []
    for dtype in DTYPES:
        for number in sorted({block for known, _, block in found if known == dtype}):
            forward = found.get((dtype, Phase.FORWARD, number))
            both = found.get((dtype, Phase.FORWARD_BACKWARD, number))
            if forward is not None and both is not None:
                blocks.append(
                    KernelBlock(
                        dtype=dtype,
                        block=number,
                        reference_forward_s=median(forward.baseline_s),
                        reference_both_s=median(both.baseline_s),
                        variant_forward_s=median(forward.candidate_s),
                        variant_both_s=median(both.candidate_s),
                    )
                )
    return tuple(blocks)


def measure_case_study(request: Request, study: CaseStudy) -> Measured:
    """Compare an optimization of the paper with the reference.

    Raises:
        InterruptedRunError: The user ended it.
        PerfguardError: It could not be measured.
    """
    result, _ = _compare(request, study.baseline, study.candidate)
    (verdict,) = _verdicts(result)
    compared, is_different = verdict.comparison, verdict.outcome is Outcome.DIFFERENT
    if not is_different and (compared.estimate is None or compared.estimate.blocks < _LEAST_BLOCKS):
        raise _too_few(study.name, result)
    value = ToggleCompared(
        name=study.name,
        case_id=verdict.case_id,
        baseline=study.baseline,
        candidate=study.candidate,
        baseline_s=compared.baseline_median_s,
        candidate_s=compared.candidate_median_s,
        effect=compared.estimate,
        is_different=is_different,
        reasons=verdict.reasons,
    )
    return _measured(value, result)


def _compare(request: Request, baseline: str, candidate: str) -> tuple[RunResult, RunData]:
    """Both arms in interleaved blocks, without profiles of what became slower."""
    data = RunData()

    def observe(event: Event) -> None:
        data.add(event)
        request.observe(event)

    asked = replace(request, ops=False, observe=observe, gate=FOR_TRIALS)
    result = compare_arms(asked, parse_arm(baseline), parse_arm(candidate))
    if result.exit_code == ExitCode.INTERRUPTED:
        raise InterruptedRunError(f"interrupted while {candidate} was compared; its blocks are in {result.folder}")
    return result, data


def _verdicts(result: RunResult) -> tuple[Verdict, ...]:
    return result.gate.verdicts if result.gate is not None else ()


def _too_few(name: str, result: RunResult) -> MeasurementError:
    """What the user can do differs: a busy host needs to be quiet, a short budget to be longer."""
    ran, voided = (result.gate.blocks_total, result.gate.blocks_voided) if result.gate is not None else (0, 0)
    lost = f", and {voided} of them were left out because the host was disturbed" if voided else ""
    return MeasurementError(
        f"{name} needs {_LEAST_BLOCKS} undisturbed blocks; {ran} ran{lost}; "
        f"give the study a larger --budget, or see {result.folder}"
    )


def _measured(value: KernelPair | ToggleCompared, result: RunResult) -> Measured:
    torch = next((arm.torch for arm in result.arms.values() if arm.torch), None)
    return Measured(value=value, torch=torch or "unknown", cpus=result.cpus)
