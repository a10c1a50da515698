"""`perfguard profile` and what gates need of it: profiled steps of one or two arms, pinned like any other run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfguard.errors import InterruptedRunError, MeasurementError, UsageError
from perfguard.host.identity import machine_line
from perfguard.host.parsers.software import decode_software
from perfguard.profile.advice.trials import Program
from perfguard.profile.changes.diff import is_settled
from perfguard.profile.op_times.breakdown import break_down
from perfguard.profile.op_times.typical_steps import middle_steps
from perfguard.profile.runs.findings import findings_for
from perfguard.profile.runs.profiles import ArmFindings, read_arm, read_joined
from perfguard.profile.runs.projection import project_cases
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.records.plan import ArmSpec
from perfguard.records.protocol import Message
from perfguard.records.run import Arm
from perfguard.records.spec import Case
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import OpCounts
from perfguard.records.steps.profile import ProfiledCase, ProfileReport
from perfguard.records.steps.projection import CaseProjection
from perfguard.runner.measuring import aside, start_arms
from perfguard.runner.process.starter import ProcessStarter
from perfguard.runner.profiling.cases import Profiled, ProfiledProcess, Profiling, profile_cases
from perfguard.runner.profiling.scripts import Script, ScriptProfiling, profile_script
from perfguard.runner.session import Request, Session, open_session
from perfguard.units import as_text

PROFILES = "profiles"
"""Folder of a run that holds its traces and logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSize:
    """How much is profiled."""

    processes: int = 4
    """Fresh processes of each arm; intervals need two."""
    most_processes: int = 0
    """As many of both arms where those do not settle how much the steps differ; of no account where it is not more."""
    steps: int = 6
    """Profiled steps, and as many bare ones or more, in each process."""
    most_steps: int = 0
    """As many where they are short; of no account where it is less than `steps`."""
    where: bool = True
    """Whether source lines are looked for."""
    replays: bool = False
    """Whether ops are replayed alone, and what the machine can do at best is measured."""
    seed: int | None = None
    """Seed of data and hashes; None takes the run's."""


def profile_arm(request: Request, spec: ArmSpec, size: ProfileSize) -> ProfileReport:
    """Profile cases of one arm.

    Raises:
        PerfguardError: The arm cannot be started, or not one case can be profiled.
    """
    with open_session(request, mode="profile") as session:
        starter, _ = start_arms(session, {Arm.CANDIDATE: spec})
        found = run_profiles(session, starter, request.cases, (Arm.CANDIDATE,), size)
        projections = _projections(session, starter, found, size)
        isa_class = isa_of(request.fingerprint)
        cases = []
        for case in request.cases:
            if (case.id, Arm.CANDIDATE) in found.processes and case.id not in found.problems:
                session.request.progress(fact("step.reading_traces", case_id=case.id))
                arm = findings_of(found, case, Arm.CANDIDATE, isa_class)
                advice = _advice(
                    session,
                    Program(case_id=case.id, arm=spec),
                    arm,
                    found.processes[case.id, Arm.CANDIDATE],
                    ready=found.ready[Arm.CANDIDATE],
                    isa_class=isa_class,
                )
                cases.append(profiled_case(case.id, arm, projections.get(case.id), advice))
        if not cases:
            raise MeasurementError(_nothing(found, interrupted=session.interrupts.asked))
        problems = {case_id: problem.found for case_id, problem in found.problems.items()}
        return _report(session, found.ready[Arm.CANDIDATE], cases, problems)


def profile_user_script(
    request: Request, spec: ArmSpec, size: ProfileSize, script: Path, arguments: Sequence[str], *, skip: int
) -> ProfileReport:
    """Profile steps of a training script.

    Raises:
        UsageError: There is no such file.
        PerfguardError: It cannot be started, or fails.
    """
    path = script if script.is_absolute() else Path.cwd() / script
    if not path.is_file():
        raise UsageError(f"{script} is neither a case nor a file; see `perfguard list`, or give a script's path")
    with open_session(request, mode="profile") as session:
        starter, _ = start_arms(session, {Arm.CANDIDATE: spec})
        folder = (session.folder.path / PROFILES / path.stem).absolute()
        profiling = ScriptProfiling(
            starter=starter,
            settings=session.settings,
            cpus=session.selection.cpus,
            folder=folder,
            processes=size.processes,
            should_stop=lambda: session.interrupts.asked,
            progress=session.request.progress,
        )
        wanted = Script(path=path, arguments=tuple(arguments), skip=skip, steps=size.steps, timeout_s=request.budget_s)
        with aside(session.selection):
            found = profile_script(wanted, profiling)
        if not found.processes:
            raise InterruptedRunError("interrupted before a step of the script was profiled")
        if found.is_whole:
            session.note(fact("profile.whole_script", severity=Severity.NOTABLE))
        for note in found.notes:
            session.note(fact("profile.script_ended", severity=Severity.NOTABLE, why=as_text(note)))
        name = as_text(str(script))
        problems = {} if found.failure is None else {name: _script_failed(as_text(found.failure))}
        isa_class = isa_of(request.fingerprint)
        arm = read_arm(name, found.processes, isa_class=isa_class, torch=_torch_of(found.ready))
        steps = Profiled(processes={(name, Arm.CANDIDATE): found.processes})
        projection = _projections(session, starter, steps, size).get(name)
        target = Program(script=(name, *map(as_text, arguments)), arm=spec)
        advice = _advice(session, target, arm, found.processes, ready=found.ready, isa_class=isa_class)
        return _report(session, found.ready, [profiled_case(name, arm, projection, advice)], problems)


def _script_failed(text: str) -> Fact:
    error, _, detail = text.partition("\n")
    return fact("profile.script_failed", severity=Severity.GRAVE, error=error, detail=detail or None)


def run_profiles(
    session: Session, starter: ProcessStarter, cases: Sequence[Case], arms: tuple[Arm, ...], size: ProfileSize
) -> Profiled:
    """Take the profiled steps of cases, on the run's CPUs, into the run's folder.

    Raises:
        MeasurementError: Workers cannot be started.
    """
    profiling = Profiling(
        starter=starter,
        settings=session.settings if size.seed is None else replace(session.settings, seed=size.seed),
        cpus=session.selection.cpus,
        folder=(session.folder.path / PROFILES).absolute(),
        arms=arms,
        processes=size.processes,
        most_processes=size.most_processes,
        is_settled=_is_settled,
        steps=size.steps,
        most_steps=size.most_steps,
        where=size.where,
        should_stop=lambda: session.interrupts.asked,
        progress=session.request.progress,
    )
    with aside(session.selection):
        return profile_cases(cases, profiling)


def _is_settled(baseline: Sequence[ProfiledProcess], candidate: Sequence[ProfiledProcess]) -> bool:
    """By the steps without a profiler, on which the difference rests, and by those with one, on which its parts do."""
    bare = ([[step.wall_s for step in process.bare] for process in arm] for arm in (baseline, candidate))
    traced = ([[files.step.wall_s for files in process.traced] for process in arm] for arm in (baseline, candidate))
    return is_settled(*bare) and is_settled(*traced)


def _projections(
    session: Session, starter: ProcessStarter, found: Profiled, size: ProfileSize
) -> dict[str, CaseProjection]:
    """By case id; empty where nothing is to be replayed."""
    if not size.replays:
        return {}
    return {projection.case_id: projection for projection in project_cases(session, starter, found, Arm.CANDIDATE)}


def _advice(
    session: Session,
    target: Program,
    arm: ArmFindings,
    processes: Sequence[ProfiledProcess],
    *,
    ready: Message,
    isa_class: str,
) -> tuple[Finding, ...]:
    """Advice on what was profiled on the run's machine and CPUs."""
    return findings_for(
        target,
        arm,
        processes,
        fingerprint=session.fingerprint,
        ready=ready,
        isa_class=isa_class,
        cpus=len(session.selection.cpus),
    )


def profiled_case(
    case_id: str, findings: ArmFindings, projection: CaseProjection | None, advice: tuple[Finding, ...]
) -> ProfiledCase:
    """What is reported of one case and arm."""
    joined, profile = findings.joined, findings.profile
    primitives = joined.primitives if joined is not None else ()
    bare, traced = (
        wall_s[middle_steps(wall_s, process)]
        for wall_s, process in (
            (profile.bare_s, profile.bare_process),
            (profile.profile.wall_s, profile.profile.process),
        )
    )
    return ProfiledCase(
        case_id=case_id,
        step_s=float(bare.mean()) if bare.size else None,
        profiled_step_s=float(traced.mean()),
        processes=len(set(profile.profile.process.tolist())),
        steps=int(profile.profile.wall_s.size),
        breakdown=break_down(findings.totals, primitives),
        ops=findings.totals,
        primitives=primitives,
        op_counts=joined.op_counts if joined is not None else None,
        projection=projection,
        findings=advice,
        notes=findings.notes,
    )


def findings_of(found: Profiled, case: Case, arm: Arm, isa_class: str) -> ArmFindings:
    """What the files of one profiled case and arm say.

    Raises:
        StoreError: A file cannot be read.
        MeasurementError: No process of it completed.
    """
    return read_arm(
        case.id,
        found.processes.get((case.id, arm), ()),
        isa_class=isa_class,
        torch=_torch_of(found.ready[arm]),
        compile_events=found.compile_events.get((case.id, arm)),
    )


def op_counts_of_case(found: Profiled, case: Case, arm: Arm, isa_class: str) -> OpCounts:
    """What one case and arm executes.

    Raises:
        StoreError: A file cannot be read.
        MeasurementError: No process of it completed.
    """
    joined = next((p.joined for p in found.processes.get((case.id, arm), ()) if p.joined is not None), None)
    if joined is None:
        problem = found.problems.get(case.id)
        raise MeasurementError(problem.reason if problem is not None else "the run ended before it was counted")
    return read_joined(
        case.id,
        joined,
        isa_class=isa_class,
        torch=_torch_of(found.ready[arm]),
        compile_events=found.compile_events.get((case.id, arm)),
    ).op_counts


def isa_of(fingerprint: Fingerprint) -> str:
    """The widest instruction set of a machine in oneDNN's words.

    Args:
        fingerprint: Without software: a variable may cap what oneDNN uses.
    """
    found = fingerprint.isa.onednn
    return found.level if found is not None else "unknown"


def _torch_of(ready: Message) -> str:
    return decode_software(ready.get("software") or {}).torch_version or "unknown"


def _report(
    session: Session, ready: Message, cases: Sequence[ProfiledCase], problems: Mapping[str, Fact]
) -> ProfileReport:
    report = ProfileReport(
        folder=str(session.folder.path),
        machine_id=session.fingerprint.machine_id,
        machine=machine_line(session.fingerprint),
        torch=_torch_of(ready),
        cpus=session.selection.cpus,
        cases=tuple(cases),
        problems=problems,
        notes=tuple(session.notes),
        interrupted=session.interrupts.asked,
    )
    session.folder.write_json("profile.json", report)
    return report


def _nothing(found: Profiled, *, interrupted: bool) -> str:
    if interrupted:
        return "interrupted before a case was profiled"
    case_id, problem = next(iter(found.problems.items()))
    return f"{case_id} cannot be profiled: {problem.reason}\n{problem.detail}".strip()
