"""Parts that come from profiled steps: donuts of four models, and phases with few and with many classes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from perfguard.errors import InterruptedRunError, MeasurementError
from perfguard.profile.op_times.breakdown import MKL_GEMM
from perfguard.profile.runs.profiles import read_arm
from perfguard.profile.runs.profiling import ProfileSize, isa_of, profile_arm, run_profiles, torch_of
from perfguard.records.run import Arm
from perfguard.records.steps.ops import OpTotal, PrimitiveTotal, StepPhase
from perfguard.records.steps.profile import ProfiledCase
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.measuring import start_arms
from perfguard.runner.session import Request, open_session
from perfguard.stats.paired import estimate_paired
from perfguard.study.evidence import ClassesCompared, LibraryShare, ModelDonut, PhaseTimes
from perfguard.study.items import FEW_CLASSES, MANY_CLASSES
from perfguard.study.measured import LEVEL, Measured

_DONUT_SIZE = ProfileSize(processes=2, steps=3, where=False)
_PHASES_SIZE = ProfileSize(processes=6, steps=3, where=False)  # Pairs of fresh processes; three gave too wide intervals
_LOSS = "loss"
_ROOT = "RetinaNet"  # What runs in no child of it is the loss: matching, focal loss, L1 loss
_DIRECTIONS = {StepPhase.FORWARD: "forward", StepPhase.LOSS: "forward", StepPhase.BACKWARD: "backward"}


def measure_donut(request: Request, model: str) -> Measured:
    """Profile the training step of one model.

    Raises:
        InterruptedRunError: The user ended it.
        PerfguardError: It cannot be profiled.
    """
    report = profile_arm(request, parse_arm("dir:."), _DONUT_SIZE)
    if report.interrupted:
        raise InterruptedRunError(f"interrupted while {model} was profiled")
    return Measured(value=donut_of(model, report.cases[0]), torch=report.torch, cpus=report.cpus)


def donut_of(model: str, profiled: ProfiledCase) -> ModelDonut:
    """What a donut shows of a profiled step."""
    return ModelDonut(
        model=model,
        case_id=profiled.case_id,
        step_s=profiled.step_s,
        slices=library_shares(profiled.primitives),
        breakdown=profiled.breakdown,
    )


def library_shares(primitives: Iterable[PrimitiveTotal]) -> tuple[LibraryShare, ...]:
    """The libraries' time by primitive and direction, largest first; all of MKL's matrix products are one."""
    kinds: dict[tuple[str, str], list[PrimitiveTotal]] = defaultdict(list)
    for each in primitives:
        gemm = each.library == "mkl" and "gemm" in each.primitive
        direction = each.direction or (_DIRECTIONS.get(each.phase, "") if each.phase is not None else "")
        if each.primitive == "reorder":  # the paper does not split copies by direction
            direction = ""
        kinds[MKL_GEMM if gemm else each.primitive, direction].append(each)
    times_s = {kind: math.fsum(each.time_s for each in members) for kind, members in kinds.items()}
    whole_s = math.fsum(times_s.values())
    return tuple(
        LibraryShare(
            name=kind[0],
            direction=kind[1],
            calls=math.fsum(each.calls for each in kinds[kind]),
            time_s=times_s[kind],
            share=times_s[kind] / whole_s if whole_s else 0.0,
        )
        for kind in sorted(kinds, key=lambda kind: (-times_s[kind], kind))
    )


def measure_classes(request: Request) -> Measured:
    """Profile RetinaNet with few and with many classes, in pairs of fresh processes whose steps alternate.

    Raises:
        InterruptedRunError: The user ended it.
        PerfguardError: It cannot be profiled.
    """
    (case,) = request.cases
    specs = {Arm.BASELINE: parse_arm("dir:."), Arm.CANDIDATE: parse_arm(f"set:classes={MANY_CLASSES}")}
    with open_session(request, mode="profile") as session:
        starter, _ = start_arms(session, specs)
        found = run_profiles(session, starter, request.cases, tuple(specs), _PHASES_SIZE)
        if session.interrupts.asked:
            raise InterruptedRunError("interrupted while the phases were profiled")
        if problem := found.problems.get(case.id):
            raise MeasurementError(f"{case.id} cannot be profiled: {problem.reason}")
        torch, isa = torch_of(found.ready[Arm.CANDIDATE]), isa_of(request.fingerprint)

        def phases(arm: Arm) -> list[Mapping[str, float]]:
            read = (
                read_arm(case.id, [process], isa_class=isa, torch=torch) for process in found.processes[case.id, arm]
            )
            return [phases_of(each.totals) for each in read]

        value = compare_classes(case.id, phases(Arm.BASELINE), phases(Arm.CANDIDATE))
        return Measured(value=value, torch=torch, cpus=session.selection.cpus)


def phases_of(totals: Iterable[OpTotal]) -> Mapping[str, float]:
    """Seconds of RetinaNet's step by the paper's phases, and `loss backward`, a part of `backward`."""
    parts: Mapping[str, Callable[[OpTotal], bool]] = {
        "backbone": lambda total: _is_forward(total) and total.key.module.startswith(f"{_ROOT}.backbone"),
        "head": lambda total: _is_forward(total) and total.key.module.startswith(f"{_ROOT}.head"),
        _LOSS: lambda total: _is_forward(total) and total.key.module == _ROOT,
        "forward": _is_forward,
        "backward": lambda total: total.key.phase is StepPhase.BACKWARD,
        "loss backward": lambda total: total.key.phase is StepPhase.BACKWARD and total.key.module == _ROOT,
    }
    ops = tuple(totals)
    return {name: math.fsum(total.self_s for total in ops if is_in(total)) for name, is_in in parts.items()}


def _is_forward(total: OpTotal) -> bool:
    return total.key.phase in (StepPhase.FORWARD, StepPhase.LOSS)


def compare_classes(
    case_id: str, few: Sequence[Mapping[str, float]], many: Sequence[Mapping[str, float]]
) -> ClassesCompared:
    """Ratios by phase over pairs of processes.

    Raises:
        MeasurementError: A phase has no time, so the step is not RetinaNet's.
    """
    shown = [name for name in few[0] if name != "loss backward"]
    if missing := [name for name in shown for process in (*few, *many) if process[name] <= 0]:
        raise MeasurementError(f"{case_id} spends no time in {missing[0]}; its modules have other names than expected")
    return ClassesCompared(
        case_id=case_id,
        few=FEW_CLASSES,
        many=MANY_CLASSES,
        phases=tuple(
            PhaseTimes(
                phase=name,
                few_s=fmean(process[name] for process in few),
                many_s=fmean(process[name] for process in many),
                ratio=estimate_paired([math.log(b[name] / a[name]) for a, b in zip(few, many, strict=True)], LEVEL),
            )
            for name in shown
        ),
        loss_backward_share=fmean(process["loss backward"] / process["backward"] for process in many),
    )
