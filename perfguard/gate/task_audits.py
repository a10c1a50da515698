"""`perfguard task audit`: measures a package again, and tests its cells for answers that are kept or made up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from perfguard.errors import ExitCode, UsageError
from perfguard.gate.tasks import PACKAGE, measure_one
from perfguard.host.cooling import cool_down, heat_now
from perfguard.host.identity import machine_line
from perfguard.records.events import RunFinished
from perfguard.records.facts import Fact
from perfguard.records.task_audits import Audit, CellAudit
from perfguard.records.task_results import CellOutcome, CellResult, CellRun, MeasuredSpeed, Package
from perfguard.records.tasks import ComplianceTest, Mode, TaskCell, TaskPlan
from perfguard.runner.session import Request, Session, open_session
from perfguard.tasks.auditing import (
    LEAST_OF_CLAIM,
    MOST_TRIES,
    accuses,
    judge_quality,
    judge_same,
    judge_sampled,
    judge_speed,
    share_of_claim,
)
from perfguard.tasks.checking.rules import broken_rules
from perfguard.tasks.checking.tree import read_tree
from perfguard.tasks.judging import score_of
from perfguard.tasks.loadgen_logs import ACCURACY, LoggedAnswer, parse_answers

MODE = "audit"
RESULT = "audit.json"
_SPEEDS = (CellOutcome.VALID, CellOutcome.SPEED_ONLY)


def package_in(folder: Path) -> Package:
    """The package in a folder.

    Raises:
        UsageError: There is none, or none of its cells has a result.
        StoreError: It is corrupt.
    """
    package = read_tree(folder).package
    if package is None:
        raise UsageError(f"{folder} has no package.json; `perfguard task run` leaves a package in its run's folder")
    if not _claims(package):
        raise UsageError(f"{folder}: no cell of the package is valid, so there is nothing to measure again")
    return package


def audit_package(request: Request, folder: Path, package: Package) -> Audit:
    """Measure each cell that is claimed to be valid again: speed at most five times, quality, and the tests.

    Raises:
        PerfguardError: Nothing can be measured on this host.
    """
    with open_session(request, mode=MODE) as session:
        session.folder.write_json("fingerprint.json", session.fingerprint)
        session.emit(package.plan)
        claims, work = _claims(package), _AuditWork(session, package.plan)
        for claim in claims:
            work.measure_speed(claim)
        for claim in claims:
            work.measure_quality(claim.cell)
        audit = Audit(
            run_id=session.folder.run_id,
            machine=machine_line(session.fingerprint),
            machine_id=session.fingerprint.machine_id,
            package_machine_id=package.machine_id,
            task=package.plan.task.name,
            scenario=package.plan.scenario,
            broken=broken_rules(read_tree(folder)),
            cells=tuple(work.audited(claim) for claim in claims),
            exit_code=0,
        )
        audit = replace(audit, exit_code=int(_exit_code(session, audit)))
        session.emit(RunFinished(outcome="audited", exit_code=audit.exit_code, reasons=()))
        session.folder.write_json(RESULT, audit)
        return audit


class _AuditWork:
    """Measurements of an audit, by cell."""

    def __init__(self, session: Session, plan: TaskPlan) -> None:
        self._session, self._plan, self._start = session, plan, heat_now()
        self._runs: list[CellRun] = []

    def measure_speed(self, claim: CellResult) -> None:
        """Until one try reaches the claim; then the tests."""
        for number in range(MOST_TRIES):
            run = self._one(claim.cell, Mode.PERFORMANCE, number)
            if run is None or run.problem is not None or max(self._shares(claim)) >= LEAST_OF_CLAIM:
                break
        for number in range(MOST_TRIES):
            runs = [self._one(claim.cell, Mode.PERFORMANCE, number, test) for test in ComplianceTest]
            if None in runs or any(run.problem for run in runs if run) or not accuses(self._speeds(claim.cell)):
                break

    def _speeds(self, cell: TaskCell) -> dict[ComplianceTest | None, MeasuredSpeed]:
        """The latest measurement by its test; None is the key of plain ones."""
        return {run.test: run.speed for run in self._runs if run.cell == cell and run.speed is not None}

    def measure_quality(self, cell: TaskCell) -> None:
        """All answers."""
        self._one(cell, Mode.ACCURACY, 0)

    def audited(self, claim: CellResult) -> CellAudit:
        """What the measurements say of a claim."""
        own = [run for run in self._runs if run.cell == claim.cell]
        quality = next((run.quality.value for run in own if run.quality is not None), None)
        return CellAudit(
            cell=claim.cell,
            claimed=claim.score or 0.0,
            found=tuple(self._scores(claim.cell)),
            claimed_quality=claim.quality,
            found_quality=quality,
            findings=tuple(self._findings(claim, own, quality)),
            is_finished=not self._session.interrupts.asked,
        )

    def _findings(self, claim: CellResult, own: list[CellRun], quality: float | None) -> Iterator[Fact]:
        problems = (run.problem for run in own if run.problem is not None)
        yield from (problem for problem in problems if problem.code != "task.interrupted")
        if not self._session.interrupts.asked:  # a try that is still to come may reach the claim
            yield from judge_speed(self._shares(claim))
        has_answers = any(run.mode is Mode.ACCURACY and run.problem is None for run in own)
        has_answers |= not self._session.interrupts.asked
        if not has_answers:  # the user ended the audit before
            return
        yield from judge_quality(claim.quality, quality)
        speeds = self._speeds(claim.cell)
        if (plain := speeds.get(None)) and (sampled := speeds.get(ComplianceTest.SAMPLED)):
            judged = {answer.sample: answer.data for answer in self._answers(own, Mode.ACCURACY, None)}
            yield from judge_sampled(
                self._answers(own, Mode.PERFORMANCE, ComplianceTest.SAMPLED), judged, plain, sampled
            )
        if (unique := speeds.get(ComplianceTest.UNIQUE)) and (same := speeds.get(ComplianceTest.SAME)):
            yield from judge_same(unique, same)

    def _one(self, cell: TaskCell, mode: Mode, number: int, test: ComplianceTest | None = None) -> CellRun | None:
        """One measurement; None where the user wants to end."""
        session = self._session
        if session.interrupts.asked:
            return None
        run = measure_one(session, self._plan, cell, mode, number, test=test)
        self._runs.append(run)
        cool_down(self._start, most_s=self._plan.cooling.most_s, wants_stop=lambda: session.interrupts.asked)
        return run

    def _scores(self, cell: TaskCell) -> list[float]:
        speeds = [run.speed for run in self._runs if run.cell == cell and run.speed is not None and run.test is None]
        scores = (score_of(self._plan.scenario, [speed]) for speed in speeds)
        return [score for score in scores if score is not None]

    def _shares(self, claim: CellResult) -> list[float]:
        claimed = claim.score or 0.0
        return [share_of_claim(self._plan.scenario, claimed, score) for score in self._scores(claim.cell)] or [0.0]

    def _answers(self, own: list[CellRun], mode: Mode, test: ComplianceTest | None) -> tuple[LoggedAnswer, ...]:
        for run in own:
            if run.mode is mode and run.test is test and run.problem is None:
                path = self._session.folder.path / PACKAGE / run.logs / ACCURACY
                return parse_answers(path.read_text(encoding="utf-8"), source=str(path))
        return ()


def _claims(package: Package) -> list[CellResult]:
    return [cell for cell in package.cells if cell.outcome in _SPEEDS and cell.score is not None]


def _exit_code(session: Session, audit: Audit) -> ExitCode:
    if session.interrupts.asked:
        return ExitCode.INTERRUPTED
    is_clean = not audit.broken and not any(cell.findings for cell in audit.cells)
    return ExitCode.PASS if is_clean else ExitCode.REGRESSION
