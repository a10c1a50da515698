"""`perfguard profile` and what gates need of it: profiled steps of one or two arms, pinned like any other run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from perfguard.benchmarks.catalog import BENCHMARKS
from perfguard.benchmarks.options import values_of
from perfguard.codec import from_builtins
from perfguard.errors import InterruptedRunError, MeasurementError, StoreError, UsageError
from perfguard.host.identity import machine_line
from perfguard.host.parsers.software import decode_software
from perfguard.profile.advice.advise import advise
from perfguard.profile.advice.evidence import Evidence, shortest_calls
from perfguard.profile.advice.trials import Program
from perfguard.profile.changes.diff import is_settled
from perfguard.profile.op_times.breakdown import break_down
from perfguard.profile.op_times.typical_steps import middle_steps
from perfguard.profile.runs.profiles import ArmFindings, read_arm, read_joined
from perfguard.profile.runs.projection import project_cases
from perfguard.records.changed_lines import ChangedLines
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.machine.fingerprint import Fingerprint
from perfguard.records.plan import ArmSpec
from perfguard.records.protocol import Message
from perfguard.records.run import Arm
from perfguard.records.script_settings import SCRIPT_SETTINGS
from perfguard.records.spec import Case
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import Attribution, OpCounts
from perfguard.records.steps.profile import ProfiledCase, ProfileReport
from perfguard.records.steps.program import ProgramFacts
from perfguard.records.steps.projection import CaseProjection
from perfguard.runner.measuring import aside, start_arms
from perfguard.runner.process.starting import ProcessStarter
from perfguard.runner.profiling.cases import Profiled, ProfiledProcess, Profiling, profile_cases
from perfguard.runner.profiling.scripts import Script, ScriptProfiling, profile_script
from perfguard.runner.session import Request, Session, open_session
from perfguard.units import as_text

PROFILES = "profiles"  # Folder of a run that holds its traces and logs


class ProfileSize(Struct, frozen=True, kw_only=True):
    """How much is profiled."""

    processes: int = 4  # Fresh processes of each arm; intervals need two
    most_processes: int = 0
    """As many of both arms where those do not settle how much the steps differ; ignored where it is not more."""
    steps: int = 6  # Profiled steps, and as many bare ones or more, in each process
    most_steps: int = 0  # As many where they are short; ignored where it is less than `steps`
    where: bool = True  # Whether source lines are looked for
    replays: bool = False  # Whether ops are replayed alone, and what the machine can do at best is measured
    seed: int | None = None  # Seed of data and hashes; None takes the run's


def profile_arm(request: Request, spec: ArmSpec, size: ProfileSize) -> ProfileReport:
    """Profile cases of one arm.

    Raises:
        PerfguardError: The arm cannot be started, or not one case can be profiled.
    """
    with open_session(request, mode="profile") as session:
        starter, _ = start_arms(session, {Arm.CANDIDATE: spec})
        found = run_profiles(session, starter, request.cases, (Arm.CANDIDATE,), size)
        projections = project_cases(session, starter, found) if size.replays else {}
        cases = []
        for case in request.cases:
            processes = found.processes.get((case.id, Arm.CANDIDATE))
            if processes is not None and case.id not in found.problems:
                session.request.progress(fact("step.reading_traces", case_id=case.id))
                arm = findings_of(found, case, Arm.CANDIDATE, isa_of(request.fingerprint))
                target = Program(case_id=case.id, arm=spec, settings=values_of(case, BENCHMARKS))
                advice = findings_for(session, target, arm, processes, found.ready[Arm.CANDIDATE])
                cases.append(_profiled_case(case.id, arm, projections.get(case.id), advice))
        if not cases and session.interrupts.asked:
            raise MeasurementError("interrupted before a case was profiled")
        if not cases:
            case_id, problem = next(iter(found.problems.items()))
            raise MeasurementError(f"{case_id} cannot be profiled: {problem.reason}\n{problem.detail}".strip())
        problems = {case_id: problem.found for case_id, problem in found.problems.items()}
        return _report(session, found.ready[Arm.CANDIDATE], cases, problems)


def profile_user_script(
    request: Request, spec: ArmSpec, size: ProfileSize, script: Path, arguments: Sequence[str], *, skip: int
) -> ProfileReport:
    """Profile steps of a training script.

    Raises:
        UsageError: There is no such file, or it ignores a setting of the arm.
        PerfguardError: It cannot be started, or fails.
    """
    path = script if script.is_absolute() else Path.cwd() / script
    if not path.is_file():
        raise UsageError(f"{script} is neither a case nor a file; see `perfguard list`, or give a script's path")
    with open_session(replace(request, cases=(), script=str(path)), mode="profile") as session:
        starter, _ = start_arms(session, {Arm.CANDIDATE: spec})
        profiling = ScriptProfiling(
            starter=starter,
            settings=session.settings,
            cpus=session.selection.cpus,
            folder=(session.folder.path / PROFILES / path.stem).absolute(),
            processes=size.processes,
            should_stop=lambda: session.interrupts.asked,
            progress=session.request.progress,
        )
        wanted = Script(path=path, arguments=tuple(arguments), skip=skip, steps=size.steps, timeout_s=request.budget_s)
        with aside(session.selection):
            found = profile_script(wanted, profiling)
        if not found.processes:
            raise InterruptedRunError("interrupted before a step of the script was profiled")
        for use in found.settings:
            session.note(use.as_fact())
        if found.is_whole:
            session.note(fact("profile.whole_script", severity=Severity.NOTABLE))
        for note in found.notes:
            session.note(fact("profile.script_ended", severity=Severity.NOTABLE, why=as_text(note)))
        name, problems = as_text(str(script)), {}
        if found.failure is not None:
            error, _, rest = as_text(found.failure).partition("\n")
            problems[name] = fact("profile.script_failed", severity=Severity.GRAVE, error=error, detail=rest or None)
        isa_class = isa_of(request.fingerprint)
        arm = read_arm(name, found.processes, isa_class=isa_class, torch=torch_of(found.ready))
        steps = Profiled(processes={(name, Arm.CANDIDATE): found.processes})
        projections = project_cases(session, starter, steps) if size.replays else {}
        target = Program(script=(name, *map(as_text, arguments)), arm=spec, settings=SCRIPT_SETTINGS)
        advice = findings_for(session, target, arm, found.processes, found.ready)
        return _report(session, found.ready, [_profiled_case(name, arm, projections.get(name), advice)], problems)


def run_profiles(
    session: Session,
    starter: ProcessStarter,
    cases: Sequence[Case],
    arms: tuple[Arm, ...],
    size: ProfileSize,
    *,
    changed: Mapping[Arm, ChangedLines] | None = None,
) -> Profiled:
    """Take the profiled steps of cases, on the run's CPUs, into the run's folder.

    Of the lines that led to an op, one of the `changed` ones comes first.

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
        changed=changed or {},
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


def findings_for(
    session: Session,
    target: Program,
    found: ArmFindings,
    processes: Sequence[ProfiledProcess],
    ready: Message,
    *,
    comparison: Attribution | None = None,
) -> tuple[Finding, ...]:
    """Advice on one profiled arm and case, the worst first; `comparison` is None where no baseline was profiled."""
    joined = found.joined
    faults = [step.minor_faults for process in processes for step in process.bare]
    return advise(
        Evidence(
            target=target,
            totals=found.totals,
            primitives=joined.primitives if joined is not None else (),
            op_counts=joined.op_counts if joined is not None else None,
            event_s=found.profile.event_cost.event_s,
            fingerprint=session.fingerprint,
            software=decode_software(ready.get("software") or {}),
            isa_class=isa_of(session.request.fingerprint),
            threads=ready.get("torch_threads"),
            cpus=len(session.selection.cpus),
            faults=median(faults) if faults else None,
            program=_program(processes),
            shortest_call_s=shortest_calls(found.profile.profile),
            comparison=comparison,
        )
    )


def _program(processes: Sequence[ProfiledProcess]) -> ProgramFacts | None:
    """What the first process that was asked said; None where that makes no sense: advice must not end a run."""
    said = next((process.program for process in processes if process.program is not None), None)
    if said is None:
        return None
    try:
        return from_builtins(said, ProgramFacts, source="what the worker says of its program")
    except StoreError:
        return None


def _profiled_case(
    case_id: str, findings: ArmFindings, projection: CaseProjection | None, advice: tuple[Finding, ...]
) -> ProfiledCase:
    """What is reported of one case and arm."""
    joined, profile = findings.joined, findings.profile
    primitives = joined.primitives if joined is not None else ()
    steps = profile.profile
    bare = profile.bare_s[middle_steps(profile.bare_s, profile.bare_process)]
    traced = steps.wall_s[middle_steps(steps.wall_s, steps.process)]
    return ProfiledCase(
        case_id=case_id,
        step_s=float(bare.mean()) if bare.size else None,
        profiled_step_s=float(traced.mean()),
        processes=len(set(steps.process.tolist())),
        steps=int(steps.wall_s.size),
        breakdown=break_down(findings.totals, primitives),
        ops=findings.totals,
        primitives=primitives,
        op_counts=joined.op_counts if joined is not None else None,
        projection=projection,
        findings=advice,
        notes=joined.notes if joined is not None else (),
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
        torch=torch_of(found.ready[arm]),
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
        torch=torch_of(found.ready[arm]),
        compile_events=found.compile_events.get((case.id, arm)),
    ).op_counts


def isa_of(fingerprint: Fingerprint) -> str:
    """A machine's widest instruction set in oneDNN's words, by a fingerprint without software: variables may cap it."""
    return fingerprint.isa.onednn.level if fingerprint.isa.onednn is not None else "unknown"


def torch_of(ready: Message) -> str:
    """Version of torch by what a worker said of itself; `unknown` where it did not."""
    return decode_software(ready.get("software") or {}).torch_version or "unknown"


def _report(
    session: Session, ready: Message, cases: Sequence[ProfiledCase], problems: Mapping[str, Fact]
) -> ProfileReport:
    report = ProfileReport(
        folder=str(session.folder.path),
        machine_id=session.fingerprint.machine_id,
        machine=machine_line(session.fingerprint),
        torch=torch_of(ready),
        cpus=session.selection.cpus,
        cases=tuple(cases),
        problems=problems,
        notes=tuple(session.notes),
        interrupted=session.interrupts.asked,
    )
    session.folder.write_json("profile.json", report)
    return report
