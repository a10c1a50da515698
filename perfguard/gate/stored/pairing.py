"""What a stored baseline does not clear is measured again, paired with the baseline's own commit.

Numbers from another day cannot tell another machine from other code: on virtual guests with the same fingerprint, all
six cases of `quick` once came out 12 to 16 % slower and once 14 to 22 % faster for identical code
(docs/decisions/0006-stored-baselines.md). To condemn or to praise takes both sides in the same minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfguard.errors import ArmError
from perfguard.gate.calibration.machine_rates import gate_error_rate
from perfguard.gate.paired.compare_arms import confirm_flags, judge_of, measure_paired
from perfguard.gate.paired.explain import count_arms, explain
from perfguard.gate.rules.policy import conclude
from perfguard.gate.rules.screening import cases_to_pair, has_machine_moved, left_open
from perfguard.gate.stored.lookup import commit_of
from perfguard.host.match import match
from perfguard.records.allowance import Allowance
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.machine.fingerprint import CompatibilityLevel, Fingerprint
from perfguard.records.plan import ArmSpec
from perfguard.records.record import StoredBaseline
from perfguard.records.run import Arm, Stage
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import GateOutcome, GateResult, Outcome, Verdict
from perfguard.runner.arms import git
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.measuring import Place, calibrate, start_arms
from perfguard.runner.session import Session

_PLACE = Place(workshop="arms-paired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """What pairing leaves to a later stage."""

    level_share: float = 0.0
    """Part of the gate's level."""
    time_share: float = 0.0
    """Part of what is left of the budget."""


def pair_open_cases(
    session: Session,
    stored: StoredBaseline,
    candidate: ArmSpec,
    result: GateResult,
    level: CompatibilityLevel,
    *,
    allowances: Sequence[Allowance] = (),
    reserve: Reserve | None = None,
) -> GateResult:
    """The gate's result after the cases that are not cleared were paired with the baseline's commit, where that works.

    Args:
        session: The run, with its fresh rounds measured.
        stored: The baseline.
        candidate: What is judged.
        result: What the stored baseline alone says.
        level: How alike the machine and its state are to those of the baseline.
        allowances: Slowdowns that the project accepts.
        reserve: What is left to a later stage; nothing by default.
    """
    reserve = reserve or Reserve()
    chosen = cases_to_pair(session.request.cases, result.verdicts)
    if not chosen or session.interrupts.asked:
        return result
    if has_machine_moved(session.request.cases, result.verdicts):
        session.note(fact("stored.machine_moved", severity=Severity.NOTABLE))
    obstacle = obstacle_to_pairing(session, stored)
    if obstacle is None:
        try:
            return _paired(session, stored, candidate, result, chosen, allowances=allowances, reserve=reserve)
        except ArmError as error:
            obstacle = unusable(error)
    return _unpaired(session, result, chosen, obstacle, level)


def changed_state(stored: StoredBaseline, fingerprint: Fingerprint) -> tuple[Fact, ...]:
    """What has changed on this machine, beside its software, since the baseline was recorded; empty for nothing."""
    compatibility = match(replace(stored.fingerprint, software=None, stack_id=None), fingerprint)
    return compatibility.reasons if compatibility.level is CompatibilityLevel.COMPARABLE else ()


def obstacle_to_pairing(session: Session, stored: StoredBaseline, *, name: str = "baseline") -> Fact | None:
    """Why the commit of a stored baseline, or of its anchor, cannot be paired with the candidate; None where it can."""
    commit, project = stored.info.commit, session.request.loaded.project
    if commit is None or git.top_level(project) is None:
        return fact("pairing.no_commit", severity=Severity.NOTABLE, of=name)
    if stored.info.stack_id is not None and stored.info.stack_id != session.fingerprint.stack_id:
        then, now = stored.info.stack_id, session.fingerprint.stack_id or "unknown"
        return fact("pairing.other_software", severity=Severity.NOTABLE, of=name, then=then, now=now)
    if commit_of(session.request.loaded, stored) is None:
        return fact("pairing.commit_missing", severity=Severity.NOTABLE, of=name, commit=commit[:12])
    return None


def unusable(error: ArmError) -> Fact:
    """A commit that cannot be measured, as an obstacle to pairing."""
    return fact("pairing.unusable", severity=Severity.NOTABLE, error=str(error))


def _paired(
    session: Session,
    stored: StoredBaseline,
    candidate: ArmSpec,
    result: GateResult,
    cases: tuple[Case, ...],
    *,
    allowances: Sequence[Allowance],
    reserve: Reserve,
) -> GateResult:
    session.request.progress(fact("step.pairing", cases=len(cases), of="baseline"))
    commit = commit_of(session.request.loaded, stored)
    specs = {Arm.BASELINE: parse_arm(f"git:{commit}"), Arm.CANDIDATE: candidate}
    starter, arms = start_arms(session, specs, _PLACE)
    plan = calibrate(session, starter, arms, cases, measures_identical=False)
    if session.identical:
        session.note(fact("arms.same_code_as_stored", severity=Severity.NOTABLE, of="baseline"))
        same = [_same_code(v) for v in result.verdicts if v.case_id in {c.id for c in cases}]
        return _told(with_verdicts(result, same), len(same))
    judge = judge_of(session, cases, gate_error_rate(session).margins, Stage.PAIRING, allowances=allowances)
    judge.policy = replace(judge.policy, alpha=judge.policy.alpha * (1 - reserve.level_share))
    chosen = [each.case for each in plan.cases]
    count_arms(session, starter, chosen)
    measure_paired(session, starter, plan, judge, keep_s=session.left_s() * reserve.time_share)
    confirm_flags(session, specs, plan, judge)
    verdicts = judge.verdicts(session.data)
    explain(session, starter, verdicts, chosen)
    return with_verdicts(result, [_repeated(verdict) for verdict in verdicts])


def with_verdicts(result: GateResult, verdicts: Sequence[Verdict]) -> GateResult:
    """The result with some verdicts replaced, and what follows from that for the gate."""
    new = {verdict.case_id: verdict for verdict in verdicts}
    merged = tuple(new.get(verdict.case_id, verdict) for verdict in result.verdicts)
    again = conclude(merged, result.policy)
    return replace(again, blocks_total=result.blocks_total, notes=result.notes)


def _repeated(verdict: Verdict) -> Verdict:
    return replace(verdict, reasons=(fact("stored.paired_with_commit"), *verdict.reasons))


def _told(result: GateResult, same: int) -> GateResult:
    """A pass that does not claim that the times of unchanged code were shown to be equal."""
    if result.outcome is not GateOutcome.PASS:
        return result
    total = len(result.verdicts)
    return replace(result, reasons=(fact("stored.same_code", same=same, cases=total, others=total - same or None),))


def _same_code(verdict: Verdict) -> Verdict:
    return replace(
        verdict,
        outcome=Outcome.SAME_CODE,
        timed_outcome=verdict.outcome,
        gating=Gating.GATING,  # noise between rounds may have demoted it, but hashes have none
        reasons=(fact("verdict.same_code"), *verdict.reasons),
    )


def _unpaired(
    session: Session, result: GateResult, cases: tuple[Case, ...], obstacle: Fact, level: CompatibilityLevel
) -> GateResult:
    """What the stored numbers show and pairs could not check: believed on a physical machine in the same state only."""
    is_guest = session.fingerprint.cpu.hypervisor is not False
    if not is_guest and level is CompatibilityLevel.EQUAL:
        session.note(fact("stored.not_paired", severity=Severity.NOTABLE))
        session.note(obstacle)
        return result
    why = (fact("stored.unchecked", is_guest=is_guest), obstacle)
    chosen = {case.id for case in cases}
    return with_verdicts(result, [left_open(v, why=why) for v in result.verdicts if v.case_id in chosen])
