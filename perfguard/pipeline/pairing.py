"""What a stored baseline leaves flagged or open is measured again, paired with the baseline's own commit.

Numbers from another day cannot tell a slower machine from slower code: on a virtual guest with the same fingerprint,
all six cases of `quick` once came out 12 to 16 % slower for identical code (docs/decisions/0006-stored-baselines.md).
So a stored baseline may clear a case by itself; to condemn one takes both sides in the same minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfguard.errors import ArmError
from perfguard.fingerprint.match import match
from perfguard.fingerprint.probe import probe
from perfguard.gate.policy import conclude
from perfguard.model.allowance import Allowance
from perfguard.model.machine import CompatibilityLevel
from perfguard.model.plan import ArmSpec
from perfguard.model.record import StoredBaseline
from perfguard.model.run import Arm, Stage
from perfguard.model.spec import Case, Gating
from perfguard.model.verdict import GateOutcome, GateResult, Outcome, Verdict
from perfguard.pipeline.attribution import count_arms, explain
from perfguard.pipeline.measuring import Place, calibrate, start_arms
from perfguard.pipeline.paired import confirm_flags, judge_of, measure_paired
from perfguard.pipeline.session import Session
from perfguard.runner import git
from perfguard.runner.arm_spec import parse_arm

_OPEN = (Outcome.REGRESSED, Outcome.INCONCLUSIVE)
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
    """The gate's result after its flagged and open cases were paired with the baseline's commit, where that works.

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
    chosen = tuple(
        case
        for case, verdict in zip(session.request.cases, result.verdicts, strict=True)
        # Noise between rounds demotes a case against stored numbers; pairs may well be quiet enough to decide it.
        if case.gating is Gating.GATING and (verdict.outcome in _OPEN or verdict.gating is Gating.ADVISORY)
    )
    if not chosen or session.interrupts.asked:
        return result
    obstacle = obstacle_to_pairing(session, stored)
    if obstacle is None:
        try:
            return _paired(session, stored, candidate, result, chosen, allowances=allowances, reserve=reserve)
        except ArmError as error:
            obstacle = str(error)
    return _unpaired(session, result, obstacle, level)


def changed_state(stored: StoredBaseline) -> tuple[str, ...]:
    """What has changed on this machine, beside its software, since the baseline was recorded; empty for nothing."""
    compatibility = match(replace(stored.fingerprint, software=None, stack_id=None), probe())
    return compatibility.reasons if compatibility.level is CompatibilityLevel.COMPARABLE else ()


def has_commit(project: Path, stored: StoredBaseline) -> bool:
    """Whether the baseline's commit can be checked out here."""
    repository = git.top_level(project)
    if stored.info.commit is None or repository is None:
        return False
    try:
        git.resolve_commit(repository, stored.info.commit)
    except ArmError:
        return False
    return True


def obstacle_to_pairing(session: Session, stored: StoredBaseline, *, name: str = "baseline") -> str | None:
    """Why the commit of a stored baseline, or of its anchor, cannot be paired with the candidate; None where it can."""
    commit, project = stored.info.commit, session.request.loaded.project
    if commit is None or git.top_level(project) is None:
        return f"the {name} names no commit of this repository"
    if stored.info.stack_id is not None and stored.info.stack_id != session.fingerprint.stack_id:
        return (
            f"the software differs from the {name}'s ({stored.info.stack_id}, now {session.fingerprint.stack_id}); "
            "pair the two environments: --baseline python:OLD --candidate python:NEW"
        )
    if not has_commit(project, stored):
        return f"the {name}'s commit {commit[:12]} is not in this clone; fetch it: git fetch --unshallow"
    return None


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
    session.request.progress(f"{len(cases)} open: pairing the baseline's commit with the candidate")
    specs = {Arm.BASELINE: parse_arm(f"git:{stored.info.commit}"), Arm.CANDIDATE: candidate}
    starter, arms = start_arms(session, specs, _PLACE)
    plans = calibrate(session, starter, arms, cases)
    if session.identical:
        session.note("the candidate imports the very code of the baseline's commit: what differs is the machine")
        same = [_same_code(v) for v in result.verdicts if v.case_id in {c.id for c in cases}]
        return _told(with_verdicts(result, same), len(same))
    config = session.request.loaded.config
    # The rounds before had set their own number as the limit.
    session.settings = replace(session.settings, max_blocks=config.max_blocks)
    judge = judge_of(session, cases, Stage.PAIRING, allowances=allowances)
    judge.policy = replace(judge.policy, alpha=judge.policy.alpha * (1 - reserve.level_share))
    chosen = [plan.case for plan in plans]
    count_arms(session, starter, chosen)
    measure_paired(session, starter, plans, judge, keep_s=session.left_s() * reserve.time_share)
    confirm_flags(session, specs, plans, judge)
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
    return replace(verdict, reason=f"paired with the baseline's commit: {verdict.reason}")


def _told(result: GateResult, same: int) -> GateResult:
    """A pass whose sentence does not claim that the times of unchanged code were shown to be equal."""
    if result.outcome is not GateOutcome.PASS:
        return result
    total = len(result.verdicts)
    subject = "case imports" if same == 1 else "cases import"
    others = f"; {total - same} more unchanged or faster" if same < total else ""
    reason = f"{same} of {total} {subject} the very code of the baseline, so only the machine can have changed{others}"
    return replace(result, reason=reason)


def _same_code(verdict: Verdict) -> Verdict:
    return replace(
        verdict,
        outcome=Outcome.UNCHANGED,
        gating=Gating.GATING,  # noise between rounds may have demoted it, but hashes have none
        reason=f"the code is the baseline's own, so the machine is what changed: {verdict.reason}",
    )


def _unpaired(session: Session, result: GateResult, obstacle: str, level: CompatibilityLevel) -> GateResult:
    """Flags that cannot be checked by pairing: red on a physical machine in the same state, else inconclusive."""
    is_guest = session.fingerprint.cpu.hypervisor is not False
    if not is_guest and level is CompatibilityLevel.EQUAL:
        session.note(f"flags were not confirmed by pairing: {obstacle}", level="warning")
        return result
    why = "a virtual guest may run on another host today" if is_guest else "the machine's state has changed"
    return with_verdicts(
        result,
        [
            replace(v, outcome=Outcome.INCONCLUSIVE, reason=f"flagged, but {why}, and {obstacle}: {v.reason}")
            for v in result.verdicts
            if v.outcome is Outcome.REGRESSED and v.gating is Gating.GATING
        ],
    )
