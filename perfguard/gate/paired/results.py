"""The end of a run: verdict events, pyperf files, `result.json`, exit code."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Sequence

from perfguard.errors import ExitCode, StoreError
from perfguard.gate.paired.scaling import scaling_of
from perfguard.gate.rules.longer_budget import longer_budget
from perfguard.gate.rules.policy import exit_code
from perfguard.host.identity import machine_line
from perfguard.records.events import RunFinished, VerdictReached
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.machine.cpuset import format_cpu_list
from perfguard.records.result import CaseMeasured, RunResult
from perfguard.records.run import Round, Stage
from perfguard.records.run_data import RunData
from perfguard.records.verdict import GateResult, Verdict
from perfguard.runner.session import Session
from perfguard.store.pyperf_files import join_suites, write_suite

_MUCH_WAITING = 0.05  # Part of the time, or of the CPUs, from which a host is called busy: ten times a gate's margin


def verdict_event(judged: Verdict) -> VerdictReached:
    """What the recording keeps of a verdict."""
    comparison = judged.comparison
    estimate = comparison.estimate
    return VerdictReached(
        case_id=judged.case_id,
        outcome=judged.outcome.value,
        log_ratio=estimate.log_ratio if estimate else None,
        lower=estimate.interval.lower if estimate else None,
        upper=estimate.interval.upper if estimate else None,
        reasons=judged.reasons,
        baseline_s=comparison.baseline_median_s,
        candidate_s=comparison.candidate_median_s,
    )


def finish(
    session: Session, gate: GateResult | None, *, measured: Sequence[CaseMeasured] = (), error_rate: Fact | None = None
) -> RunResult:
    """Write everything that the run adds up to, and give its result."""
    for judged in gate.verdicts if gate else ():
        session.emit(verdict_event(judged))
    _join_raw_files(session)
    ratio = session.data.waited_ratio()
    if ratio is not None and ratio > _MUCH_WAITING:  # the host is at fault, and a larger budget does not help
        cpus = format_cpu_list(session.selection.cpus)
        session.note(fact("host.waited_for_cpu", severity=Severity.NOTABLE, waited_share=ratio, cpus=cpus))
    foreign = session.data.foreign_load()
    if foreign is not None and foreign[0] > _MUCH_WAITING:
        share, program = foreign
        cpus = format_cpu_list(session.selection.cpus)
        session.note(fact("host.foreign_load", severity=Severity.NOTABLE, program=program, cpu_share=share, cpus=cpus))
    budget_s, max_blocks = session.request.budget_s, session.settings.max_blocks
    if gate is not None and (longer := longer_budget(gate, budget_s=budget_s, max_blocks=max_blocks)) is not None:
        enough = {"enough_s": longer.budget_s, "max_blocks": longer.blocks}
        session.note(fact("gate.longer_budget", enough, severity=Severity.NOTABLE))
    if error_rate is not None:
        session.note(error_rate)
    if session.interrupts.asked and session.is_decided:
        session.note(fact("ops.cut_short", severity=Severity.NOTABLE))
    code, verdict, reasons = _conclusion(session, gate, measured)
    result = RunResult(
        command=session.request.command,
        run_id=session.folder.run_id,
        folder=str(session.folder.path),
        suite=session.request.suite,
        machine_id=session.fingerprint.machine_id,
        machine=machine_line(session.fingerprint),
        cpus=session.selection.cpus,
        arms=dict(session.summaries),
        gate=gate,
        measured=tuple(measured),
        scaling=scaling_of(measured, cpus=len(session.selection.cpus)),
        exit_code=int(code),
        verdict=verdict,
        reasons=reasons,
        notes=tuple(session.notes),
        duration_s=time.monotonic() - session.started,
        error_rate=error_rate,
        op_count_changes=dict(session.data.op_count_changes),
        attributions=tuple(session.data.attributions.values()),
        findings=dict(session.data.findings),
        stored_op_count_changes=dict(session.data.stored_op_count_changes),
    )
    session.emit(RunFinished(outcome=verdict, exit_code=int(code), reasons=reasons))
    session.folder.write_json("result.json", result)
    return result


def measured_cases(session: Session) -> tuple[CaseMeasured, ...]:
    """What a one-arm run measured of each case that its own suite does not skip."""
    failures = session.data.failures
    kept = [case.id for case in session.request.cases if case.id not in failures or not failures[case.id].skipped]
    return describe_measured(session.data, kept)


def describe_measured(data: RunData, case_ids: Iterable[str]) -> tuple[CaseMeasured, ...]:
    """What a one-arm run measured of these cases."""
    rounds = data.rounds()
    return tuple(
        describe_rounds(
            case_id,
            rounds.get(case_id, ()),
            inner_loops=data.inner_loops.get(case_id),
            problem=data.failures[case_id].reason if case_id in data.failures else None,
        )
        for case_id in case_ids
    )


def describe_rounds(
    case_id: str, rounds: Sequence[Round], *, inner_loops: int | None, problem: Fact | None
) -> CaseMeasured:
    """Median and spread of a case's rounds; None where there are too few."""
    if any(value <= 0 for entry in rounds for value in entry.values_s):
        problem, rounds = fact("case.zero_time"), ()
    medians = [statistics.median(entry.values_s) for entry in rounds]
    logs = [math.log(value) for value in medians]
    within = [
        statistics.stdev([math.log(value) for value in entry.values_s]) for entry in rounds if len(entry.values_s) > 1
    ]
    return CaseMeasured(
        case_id=case_id,
        rounds=len(rounds),
        median_s=statistics.median(medians) if medians else None,
        between_sd_ratio=statistics.stdev(logs) if len(logs) > 1 else None,
        within_sd_ratio=statistics.median(within) if within else None,
        inner_loops=inner_loops,
        problem=problem or (None if medians else fact("case.no_round")),
    )


def _conclusion(
    session: Session, gate: GateResult | None, measured: Sequence[CaseMeasured]
) -> tuple[ExitCode, str, tuple[Fact, ...]]:
    config = session.request.loaded.config
    if session.interrupts.asked and not session.is_decided:
        blocks = session.data.blocks_finished
        return ExitCode.INTERRUPTED, "interrupted", (fact("run.interrupted", blocks=blocks),)
    if gate is not None:
        return exit_code(gate, fail_on=config.fail_on), gate.outcome.value, gate.reasons
    if failed := sum(case.problem is not None for case in measured):
        return ExitCode.INFRASTRUCTURE, "failed", (fact("run.cases_failed", failed=failed, cases=len(measured)),)
    return ExitCode.PASS, "measured", (fact("run.measured", cases=len(measured)),)


def _join_raw_files(session: Session) -> None:
    """One pyperf suite of the main stage for each arm, beside the raw files of each process."""
    raw = session.folder.path / "raw"

    def incomplete(error: str) -> None:
        session.note(fact("run.raw_files_incomplete", severity=Severity.NOTABLE, error=error))

    for code, name in (("a", "baseline"), ("b", "candidate")):
        files = [
            path
            for path in raw.glob(f"[0-9]*-{code}.json")
            if session.data.stage_of(int(path.name.partition("-")[0])) is Stage.MAIN
        ]
        try:
            suite = join_suites(files, skipped=incomplete)
            if suite is not None:
                write_suite(suite, session.folder.path / f"{name}.json")
        except StoreError as error:
            incomplete(str(error))
