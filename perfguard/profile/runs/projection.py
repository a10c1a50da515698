"""How fast a profiled step could be: its ops replayed alone on the same CPUs, against what these can do at best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from perfguard.errors import MeasurementError, StoreError
from perfguard.profile.libraries.benchdnn import (
    PrimitiveProblem,
    UnsupportedPrimitiveError,
    benchdnn_options,
    parse_benchdnn,
    primitive_problems,
    projected_primitive,
)
from perfguard.profile.libraries.verbose import parse_verbose
from perfguard.profile.projection.problems import StepProblems, read_problems, untold, without_profiler
from perfguard.profile.projection.projection import project, projected_op, roofline_point
from perfguard.profile.projection.work import work_of
from perfguard.profile.runs.profiles import event_cost, logged_lines
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.run import Arm
from perfguard.records.steps.projection import CaseProjection, Projected, Projection, RooflineCeilings
from perfguard.runner.measuring import aside
from perfguard.runner.process.answers import Ceilings, RecordedOp, ReplayedOp
from perfguard.runner.process.arm_worker import CEILING_DTYPES
from perfguard.runner.process.starting import ProcessStarter
from perfguard.runner.profiling.cases import Profiled, ProfiledProcess
from perfguard.runner.profiling.replays import (
    OUT_OF_TIME,
    Benchdnn,
    BenchdnnFailure,
    Replaying,
    find_benchdnn,
    replay_ops,
)
from perfguard.runner.session import Session

DEFAULT_BUDGET_S = 30.0  # Seconds for the replays of one case; as long again for benchdnn where it is installed
_SLOWER = 1.5  # Times as long alone as in the step: beyond what scatter explains, so it becomes a note
_MOST_TRACES = 12  # So many say what a step is made of; more only take longer to read


def project_cases(session: Session, starter: ProcessStarter, found: Profiled) -> dict[str, CaseProjection]:
    """Project every profiled case of the candidate, by its id; one that cannot be projected is noted."""
    arm = Arm.CANDIDATE
    replaying = Replaying(
        starter=starter,
        settings=session.settings,
        cpus=session.selection.cpus,
        arm=arm,
        budget_s=DEFAULT_BUDGET_S,
        should_stop=lambda: session.interrupts.asked,
    )
    environment = starter.environments[arm]
    path = find_benchdnn(environment)
    benchdnn = None
    if path is not None:
        benchdnn = Benchdnn(path=path, environment=environment, cpus=starter.cpus, memory_node=starter.memory_node)
    projections: dict[str, CaseProjection] = {}
    known: RooflineCeilings | None = None
    with aside(session.selection):
        for (case_id, role), processes in found.processes.items():
            if role is not arm or session.interrupts.asked:
                continue
            session.request.progress(fact("step.replaying", case_id=case_id))
            try:
                projections[case_id] = project_case(case_id, processes, replaying, benchdnn, known=known)
                known = projections[case_id].ceilings
            except (StoreError, MeasurementError) as error:
                values = {"error": str(error)}
                session.note(fact("profile.not_projected", values, severity=Severity.NOTABLE, case_id=case_id))
    return projections


def project_case(
    case_id: str,
    processes: Sequence[ProfiledProcess],
    replaying: Replaying,
    benchdnn: Benchdnn | None,
    *,
    known: RooflineCeilings | None = None,
) -> CaseProjection:
    """Replay the problems of one case's step, those first that take longest, and add them up.

    Of ceilings that are `known` of the same CPUs and threads, only those that are missing are measured. `benchdnn` is
    None where it is not installed.

    Raises:
        StoreError: A trace or a log cannot be read.
        MeasurementError: There is no traced step, or the worker cannot be started.
    """
    step, step_s = observed_step(processes)
    works = [work_of(problem) for problem in step.problems]
    missing = {work.dtype for work in works if work is not None} - set(known.flops_per_s if known else ())
    asked = [
        RecordedOp(op=each.op, dims=each.dims, types=each.types, strides=each.strides, concrete=each.concrete)
        for each in step.problems
        if untold(each) is None
    ]
    replays = replay_ops(asked, [dtype for dtype in CEILING_DTYPES if dtype in missing], replaying)
    answers = iter(replays.ops)
    reasons = map(untold, step.problems)
    replayed = [next(answers) if reason is None else ReplayedOp(call_s=None, reason=reason) for reason in reasons]
    rows = [
        projected_op(problem, call_s=op.call_s, reason=op.reason, overload=op.overload or "", assumed=op.assumed)
        for problem, op in zip(step.problems, replayed, strict=True)
    ]
    ceilings = _highest(known, replays.ceilings)
    points = [
        roofline_point(problem, work, ceilings, alone_s=op.call_s)
        for problem, work, op in zip(step.problems, works, replayed, strict=True)
        if work is not None and ceilings is not None
    ]
    log = next((p.joined.log for p in processes if p.joined is not None), None)
    primitives, notes = _project_primitives(log, benchdnn, replaying, step_s=step_s)
    return CaseProjection(
        case_id=case_id,
        arm=replaying.arm,
        ops=project(rows, step_s=step_s),
        primitives=primitives,
        ceilings=ceilings,
        roofline=tuple(
            sorted(filter(None, points), key=lambda point: (-point.calls * point.call_s, point.name, point.detail))
        ),
        notes=(*replays.notes, *_notes(ceilings, rows), *notes),
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
        notes.append(fact("projection.out_of_time", problems=len(late), time_s=sum(row.observed_s for row in late)))
    return notes


def _project_primitives(
    log: Path | None, benchdnn: Benchdnn | None, replaying: Replaying, *, step_s: float
) -> tuple[Projection | None, list[Fact]]:
    """Run the primitives that oneDNN logged alone, the longest first, until the budget is used up; with notes."""
    problems = primitive_problems(parse_verbose(logged_lines(log)).calls)
    if not problems:
        return None, []
    if benchdnn is None:
        return None, [fact("projection.no_benchdnn")]
    ends = replaying.clock() + replaying.budget_s
    rows = []
    for problem in problems:
        in_time = replaying.clock() < ends and not replaying.should_stop()
        row = _alone(problem, benchdnn) if in_time else projected_primitive(problem, call_s=None, reason=OUT_OF_TIME)
        rows.append(row)
    return project(rows, step_s=step_s), []


def _alone(problem: PrimitiveProblem, benchdnn: Benchdnn) -> Projected:
    try:
        found = parse_benchdnn(benchdnn.run(benchdnn_options(problem)))
    except (UnsupportedPrimitiveError, BenchdnnFailure) as failure:
        return projected_primitive(problem, call_s=None, reason=fact("replay.refused", error=str(failure)))
    return projected_primitive(problem, call_s=found.call_s, reason=found.reason, implementation=found.implementation)
