"""How fast a profiled step could be: its ops replayed alone on the same CPUs, against what these can do at best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from perfguard.errors import MeasurementError, StoreError
from perfguard.profile.projection.problems import Problem, StepProblems, read_problems, untold, without_profiler
from perfguard.profile.projection.projection import project, projected_op, roofline_point
from perfguard.profile.projection.work import work_of
from perfguard.profile.runs.primitive_projection import installed_benchdnn, project_primitives
from perfguard.profile.runs.profiles import event_cost
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.run import Arm
from perfguard.records.steps.projection import CaseProjection, Projected, RooflineCeilings, RooflinePoint
from perfguard.runner.measuring import aside
from perfguard.runner.process.profiling_worker import CEILING_DTYPES, Ceilings, RecordedOp, ReplayedOp
from perfguard.runner.process.starter import ProcessStarter
from perfguard.runner.profiling.benchdnn import Benchdnn
from perfguard.runner.profiling.cases import Profiled, ProfiledProcess
from perfguard.runner.profiling.replays import OUT_OF_TIME, Replaying, replay_ops
from perfguard.runner.session import Session

DEFAULT_BUDGET_S = 30.0
"""Seconds for the replays of one case; as long again for benchdnn where it is installed."""
_SLOWER = 1.5
"""Times as long alone as in the step: beyond what scatter explains, so the reader is told."""
_MOST_TRACES = 12
"""So many say what a step is made of; more only take longer to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projecting:
    """What a projection needs from outside."""

    replaying: Replaying
    """How ops are replayed."""
    benchdnn: Benchdnn | None
    """How primitives are; None where benchdnn is not installed."""


def project_cases(
    session: Session, starter: ProcessStarter, found: Profiled, arm: Arm, *, budget_s: float = DEFAULT_BUDGET_S
) -> tuple[CaseProjection, ...]:
    """Project every profiled case of an arm; one that cannot be projected is noted.

    Args:
        session: The run.
        starter: Starts workers of the arm.
        found: What profiling left.
        arm: The arm.
        budget_s: Seconds for the replays of each case.
    """
    replaying = Replaying(
        starter=starter,
        settings=session.settings,
        cpus=session.selection.cpus,
        arm=arm,
        budget_s=budget_s,
        should_stop=lambda: session.interrupts.asked,
    )
    projecting = Projecting(replaying=replaying, benchdnn=installed_benchdnn(starter, arm))
    projections: list[CaseProjection] = []
    known: RooflineCeilings | None = None
    with aside(session.selection):
        for (case_id, role), processes in found.processes.items():
            if role is not arm or session.interrupts.asked:
                continue
            session.request.progress(fact("step.replaying", case_id=case_id))
            try:
                projections.append(project_case(case_id, processes, projecting, known=known))
                known = projections[-1].ceilings
            except (StoreError, MeasurementError) as error:
                values = {"error": str(error)}
                session.note(fact("profile.not_projected", values, severity=Severity.NOTABLE, case_id=case_id))
    return tuple(projections)


def project_case(
    case_id: str, processes: Sequence[ProfiledProcess], projecting: Projecting, *, known: RooflineCeilings | None = None
) -> CaseProjection:
    """Replay the problems of one case's step, those first that take longest, and add them up.

    Args:
        case_id: The case.
        processes: What was profiled of it in the arm, at least one traced step.
        projecting: What is needed from outside.
        known: Ceilings of the same CPUs and threads; only those that are missing are measured.

    Raises:
        StoreError: A trace or a log cannot be read.
        MeasurementError: There is no traced step, or the worker cannot be started.
    """
    step, step_s = observed_step(processes)
    works = [work_of(problem) for problem in step.problems]
    asked = [index for index, problem in enumerate(step.problems) if untold(problem) is None]
    missing = {work.dtype for work in works if work is not None} - set(known.flops_per_s if known else ())
    replays = replay_ops(
        [_recorded(step.problems[index]) for index in asked],
        [dtype for dtype in CEILING_DTYPES if dtype in missing],
        projecting.replaying,
    )
    times = dict(zip(asked, replays.ops, strict=True))
    rows = [_row(problem, times.get(index)) for index, problem in enumerate(step.problems)]
    ceilings = _highest(known, replays.ceilings)
    points = (
        roofline_point(problem, work, ceilings, alone_s=times[index].call_s if index in times else None)
        for index, (problem, work) in enumerate(zip(step.problems, works, strict=True))
        if work is not None and ceilings is not None
    )
    log = next((p.joined.log for p in processes if p.joined is not None), None)
    primitives = project_primitives(log, projecting.benchdnn, projecting.replaying, step_s=step_s)
    return CaseProjection(
        case_id=case_id,
        arm=projecting.replaying.arm,
        ops=project(rows, step_s=step_s),
        primitives=primitives.projection,
        ceilings=ceilings,
        roofline=_longest_first(point for point in points if point is not None),
        notes=(*replays.notes, *_notes(ceilings, rows), *primitives.notes),
    )


def observed_step(processes: Sequence[ProfiledProcess]) -> tuple[StepProblems, float]:
    """The problems of a step, without the profiler's cost, and the seconds of a step that was not profiled.

    Raises:
        StoreError: A trace cannot be read.
        MeasurementError: There is no traced step.
    """
    traced = [files for process in processes for files in process.traced]
    if not traced:
        raise MeasurementError("no step was profiled")
    chosen = traced[:: math.ceil(len(traced) / _MOST_TRACES)]
    step = read_problems([files.trace for files in chosen])
    walls_s = [each.wall_s for process in processes for each in process.bare]
    bare_s = median(walls_s) if walls_s else None
    cost = event_cost([files.step for files in traced])
    adjusted = without_profiler(step, bare_s=bare_s, event_s=cost.event_s, own_share=cost.own_share)
    return adjusted, step.wall_s if bare_s is None else bare_s


def _recorded(problem: Problem) -> RecordedOp:
    return RecordedOp(
        op=problem.op, dims=problem.dims, types=problem.types, strides=problem.strides, concrete=problem.concrete
    )


def _row(problem: Problem, replayed: ReplayedOp | None) -> Projected:
    if replayed is None:
        return projected_op(problem, call_s=None, reason=untold(problem))
    return projected_op(
        problem,
        call_s=replayed.call_s,
        reason=replayed.reason,
        overload=replayed.overload or "",
        assumed=replayed.assumed,
    )


def _highest(known: RooflineCeilings | None, measured: Ceilings | None) -> RooflineCeilings | None:
    """The highest ceiling of each kind; None where there is no stream to bound anything."""
    if measured is None or not measured.streams:
        return known
    peaks = dict(known.flops_per_s) if known else {}
    for gemm in measured.gemms:
        peaks[gemm.dtype] = max(gemm.flops_per_s, peaks.get(gemm.dtype, 0.0))
    return RooflineCeilings(
        flops_per_s=peaks,
        bytes_per_s=max(known.bytes_per_s if known else 0.0, *(stream.bytes_per_s for stream in measured.streams)),
        threads=measured.threads,
        is_beyond_caches=measured.is_beyond_caches,
    )


def _notes(ceilings: RooflineCeilings | None, rows: Sequence[Projected]) -> list[Fact]:
    notes = []
    if ceilings is not None and not ceilings.is_beyond_caches:
        notes.append(fact("projection.bandwidth_of_caches"))
    slower = [row for row in rows if row.projected_s is not None and row.projected_s > _SLOWER * row.observed_s]
    if slower:
        notes.append(
            fact(
                "projection.slower_alone",
                op=min(slower, key=lambda row: row.gap_s or 0.0).name,
                others=len(slower) - 1 or None,
                alone_s=sum(row.projected_s or 0.0 for row in slower),
                observed_s=sum(row.observed_s for row in slower),
            )
        )
    late = [row for row in rows if row.reason is not None and row.reason.code == OUT_OF_TIME.code]
    if late:
        time_s = sum(row.observed_s for row in late)
        notes.append(fact("projection.out_of_time", problems=len(late), time_s=time_s))
    return notes


def _longest_first(points: Iterable[RooflinePoint]) -> tuple[RooflinePoint, ...]:
    return tuple(sorted(points, key=lambda point: (-point.calls * point.call_s, point.name, point.detail)))
