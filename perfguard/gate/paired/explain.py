"""Culprits of a slowdown: both arms of flagged cases are profiled, and their ops are counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perfguard.errors import MeasurementError, StoreError
from perfguard.profile.advice.advise import new_findings
from perfguard.profile.advice.trials import Program
from perfguard.profile.changes.attribution import attribute
from perfguard.profile.changes.counted import Change
from perfguard.profile.changes.op_counts import classify, comparable, compare_op_counts, records_of
from perfguard.profile.runs.profiles import ArmFindings
from perfguard.profile.runs.profiling import (
    ProfileSize,
    findings_for,
    findings_of,
    isa_of,
    op_counts_of_case,
    run_profiles,
)
from perfguard.records.changed_lines import ChangedLines
from perfguard.records.events import OpsCompared, StepsCounted
from perfguard.records.facts import Severity, Subject, fact
from perfguard.records.ranks import runs_apart
from perfguard.records.record import StoredOpCounts
from perfguard.records.run import Arm
from perfguard.records.spec import Case
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import Attribution, OpCounts
from perfguard.records.verdict import Outcome, Verdict
from perfguard.runner.arms.changed_lines import changed_lines
from perfguard.runner.process.starting import ProcessStarter
from perfguard.runner.profiling.cases import Profiled
from perfguard.runner.session import Session

BOTH: tuple[Arm, ...] = (Arm.BASELINE, Arm.CANDIDATE)
GATE_SIZE = ProfileSize(processes=4, most_processes=8, steps=4, most_steps=10)
"""Enough for an interval of each op of a flagged case, in half a minute for a step of 30 ms; twice that on a host so
noisy that four pairs of processes do not tell how much the steps differ."""
SHOWN_DELTAS = 40  # Ops of an attribution in events and results; all of them are in the run's folder
_COUNT_ONLY = ProfileSize(processes=1, steps=0, where=False)


def count_arms(
    session: Session, starter: ProcessStarter, cases: Sequence[Case], stored: StoredOpCounts | None = None
) -> None:
    """Count what each arm's step executes, and keep what differs, also from what another machine counted (`stored`).

    A case that cannot be counted is noted. Arms that are identical by their hashes execute the same, so nothing is
    counted there but the candidate, where there is something else to compare it with.
    """
    arms, foreign = BOTH, stored.op_counts if stored else {}
    if session.identical:
        arms = (Arm.CANDIDATE,)
        cases = [case for case in cases if case.id in foreign]
    if session.interrupts.asked:
        return
    seed = stored.info.seed if stored is not None and session.request.loaded.config.seed is None else None
    counted = _counted(session, starter, cases, arms, seed)
    if arms == BOTH:
        for case_id, (before, after) in counted.items():
            session.emit(StepsCounted(case_id=case_id, changes=compare_op_counts(before, after)))
    compared, changed = 0, 0
    for case_id, op_counts in counted.items():
        if stored is not None and case_id in foreign and comparable(foreign[case_id], op_counts[-1]) is None:
            changes = compare_op_counts(foreign[case_id], op_counts[-1])
            compared, changed = compared + 1, changed + bool(changes)
            session.emit(StepsCounted(case_id=case_id, changes=changes, counted_on=stored.info.machine_id))
    if stored is not None and compared:
        info = stored.info
        found = {"machine_id": info.machine_id, "date": info.created_at[:10], "commit": (info.commit or "unknown")[:12]}
        session.note(fact("ops.compared_with_machine", found, changed=changed, cases=compared))


def count_candidate(session: Session, starter: ProcessStarter, cases: Sequence[Case]) -> dict[str, OpCounts]:
    """What the candidate's steps execute, by case id; a case that cannot be counted is noted and missing."""
    return {case_id: counts for case_id, (counts,) in _counted(session, starter, cases, (Arm.CANDIDATE,)).items()}


def count_against(
    session: Session, starter: ProcessStarter, stored: Mapping[str, OpCounts], cases: Sequence[Case]
) -> None:
    """Compare what the candidate executes with stored op counts, exactly, however noisy either machine is."""
    if session.interrupts.asked:
        return
    chosen = [case for case in cases if case.id in stored]
    for case_id, counts in count_candidate(session, starter, chosen).items():
        obstacle = comparable(stored[case_id], counts)
        if obstacle is not None:
            session.note(dataclasses.replace(obstacle, severity=Severity.NOTABLE, subject=Subject(case_id=case_id)))
        else:
            session.emit(StepsCounted(case_id=case_id, changes=compare_op_counts(stored[case_id], counts)))


def _counted(
    session: Session, starter: ProcessStarter, cases: Sequence[Case], arms: tuple[Arm, ...], seed: int | None = None
) -> dict[str, tuple[OpCounts, ...]]:
    """What each arm's steps execute, by case id; a case that an arm could not be counted for is noted and missing."""
    cases = _with_ops(cases)
    if not cases:
        return {}
    session.request.progress(fact("step.counting_ops"))
    found = _profiled(session, starter, cases, replace(_COUNT_ONLY, seed=seed), arms)
    counted = {}
    if found is None:
        return {}
    isa_class = isa_of(session.request.fingerprint)
    for case in cases:
        try:
            counted[case.id] = tuple(op_counts_of_case(found, case, arm, isa_class) for arm in arms)
        except (StoreError, MeasurementError) as error:
            session.note(fact("ops.not_counted", severity=Severity.NOTABLE, case_id=case.id, error=str(error)))
    return counted


def explain(session: Session, starter: ProcessStarter, verdicts: Sequence[Verdict], cases: Sequence[Case]) -> None:
    """Profile both arms of every case that regressed, or of all where the request asks for it, and name the culprits.

    What was profiled for that also gives the advice on what only the candidate does.

    An injected slowdown lies outside the benchmark, where no profiler sees it; such cases are left out.
    """
    wanted = {verdict.case_id for verdict in verdicts if verdict.outcome is Outcome.REGRESSED}
    if session.request.ops is not None:
        wanted = {case.id for case in cases if session.request.ops}
    wanted -= {case_id for case_id, _ in session.request.injections}
    chosen = [case for case in _with_ops(cases) if case.id in wanted]
    if not chosen or session.interrupts.asked:
        return
    project = session.request.loaded.project
    sides = changed_lines(starter.arms[Arm.BASELINE], starter.arms[Arm.CANDIDATE], project)
    changed = dict(zip(BOTH, sides, strict=True))
    found = _profiled(session, starter, chosen, GATE_SIZE, changed=changed)
    if found is None:
        return
    isa_class = isa_of(session.request.fingerprint)
    for case in chosen:
        if case.id in found.problems:
            _note_uncompared(session, found.problems[case.id].reason, case.id)
            continue
        try:
            arms = {arm: findings_of(found, case, arm, isa_class) for arm in BOTH}
            before, after = (arms[arm].joined for arm in BOTH)
            changes: Sequence[Change] = ()
            if before is not None and after is not None:
                changes = classify(before.op_counts, after.op_counts)
                session.emit(StepsCounted(case_id=case.id, changes=records_of(changes)))
            baseline, candidate = (arms[arm].profile for arm in BOTH)
            attribution = attribute(case.id, baseline, candidate, changes, changed=changed[Arm.CANDIDATE])
            advice = _advice(session, starter, found, arms, attribution)
        except (StoreError, MeasurementError) as error:
            _note_uncompared(session, str(error), case.id)
            continue
        path = session.folder.write_json(f"ops-{len(session.data.attributions) + 1}.json", attribution)
        shown = replace(attribution, deltas=attribution.deltas[:SHOWN_DELTAS])
        session.emit(OpsCompared(attribution=shown, file=path.name, findings=advice))


def _advice(
    session: Session,
    starter: ProcessStarter,
    found: Profiled,
    arms: Mapping[Arm, ArmFindings],
    attribution: Attribution,
) -> tuple[Finding, ...]:
    """Advice on what the candidate does and the baseline does not, from what was profiled already."""
    advice = {
        arm: findings_for(
            session,
            Program(case_id=attribution.case_id, arm=starter.arms[arm].spec),
            arms[arm],
            found.processes[attribution.case_id, arm],
            found.ready[arm],
            comparison=attribution if arm is Arm.CANDIDATE else None,
        )
        for arm in BOTH
    }
    return new_findings(advice[Arm.BASELINE], advice[Arm.CANDIDATE], attribution)


def _with_ops(cases: Sequence[Case]) -> list[Case]:
    """Cases whose worker calls torch: without it there are no ops, and no profiler looks at ranks."""
    return [
        case for case in cases if "no-torch" not in case.tags and not runs_apart(case.target, dict(case.parameters))
    ]


def _profiled(
    session: Session,
    starter: ProcessStarter,
    cases: Sequence[Case],
    size: ProfileSize,
    arms: tuple[Arm, ...] = BOTH,
    *,
    changed: Mapping[Arm, ChangedLines] | None = None,
) -> Profiled | None:
    try:
        return run_profiles(session, starter, cases, arms, size, changed=changed)
    except MeasurementError as error:
        _note_uncompared(session, str(error))
        return None


def _note_uncompared(session: Session, error: str, case_id: str | None = None) -> None:
    session.note(fact("ops.not_compared", severity=Severity.NOTABLE, case_id=case_id, error=error))
