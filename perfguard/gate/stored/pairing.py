"""What stored numbers do not decide is measured again, paired with the commit of the baseline, or of its anchor.

Numbers from another day cannot tell another machine from other code: on virtual guests with the same fingerprint, all
six cases of `quick` once came out 12 to 16 % slower and once 14 to 22 % faster for identical code
(docs/decisions/0006-stored-baselines.md). To condemn or to praise takes both sides in the same minutes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from msgspec.structs import replace

from perfguard.errors import ArmError
from perfguard.gate.calibration.machine_rates import gate_error_rate
from perfguard.gate.paired.compare_arms import confirm_flags, judge_of, measure_paired
from perfguard.gate.paired.explain import count_arms, explain
from perfguard.gate.paired.judging import policy_of
from perfguard.gate.rules.compare import compare_rounds
from perfguard.gate.rules.policy import conclude
from perfguard.gate.rules.stored import (
    DRIFT_SHARE,
    cases_to_pair,
    drift_note,
    has_machine_moved,
    left_open,
    merge_drift,
    screen_drift,
)
from perfguard.gate.stored.lookup import commit_of
from perfguard.host.identity import match
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
from perfguard.runner.measuring import ArmLayout, calibrate, start_arms
from perfguard.runner.session import Session


def pair_open_cases(
    session: Session,
    stored: StoredBaseline,
    candidate: ArmSpec,
    result: GateResult,
    level: CompatibilityLevel,
    *,
    allowances: Sequence[Allowance],
    drifted: Sequence[Case] | None,
) -> GateResult:
    """The gate's result after the cases that are not cleared were paired with the baseline's commit, where that works.

    The result is what the stored numbers alone say, `level` how alike the machine and its state are to those of the
    baseline. Drifted cases will be paired with the anchor; there are None without an anchor. An anchor takes its part
    of the level whatever the rounds say of it; only the time follows what is open.
    """
    cases = session.request.cases
    chosen = cases_to_pair(cases, result.verdicts)
    if not chosen or session.interrupts.asked:
        return result
    if has_machine_moved(cases, result.verdicts):
        session.note(fact("stored.machine_moved", severity=Severity.NOTABLE))
    verdicts = _pair(
        session,
        stored,
        candidate,
        chosen,
        allowances=allowances,
        level_share=1.0 if drifted is None else 1 - DRIFT_SHARE,
        kept_share=len(drifted) / (len(drifted) + len(chosen)) if drifted else 0.0,
    )
    ids = {case.id for case in chosen}
    if isinstance(verdicts, Fact):
        # What pairs could not check is believed on a physical machine in the same state only.
        is_guest = session.fingerprint.cpu.hypervisor is not False
        if not is_guest and level is CompatibilityLevel.EQUAL:
            session.note(fact("stored.not_paired", severity=Severity.NOTABLE))
            session.note(verdicts)
            return result
        why = (fact("stored.unchecked", is_guest=is_guest), verdicts)
        return with_verdicts(result, [left_open(v, why=why) for v in result.verdicts if v.case_id in ids])
    if verdicts is not None:
        paired = fact("stored.paired_with_commit")
        return with_verdicts(result, [replace(v, reasons=(paired, *v.reasons)) for v in verdicts])
    result = with_verdicts(result, [_same_code(v) for v in result.verdicts if v.case_id in ids])
    if result.outcome is not GateOutcome.PASS:
        return result
    # The pass must not claim that the times of unchanged code were shown to be equal.
    same, total = len(ids), len(result.verdicts)
    return replace(result, reasons=(fact("stored.same_code", same=same, cases=total, others=total - same or None),))


def screen(session: Session, anchor: StoredBaseline, reasons: Sequence[Fact]) -> tuple[Case, ...]:
    """Compare the session's rounds with the anchor's, and note the drift of each case.

    `reasons` say why the anchor must not be compared; they are empty when it may. Gives the gating cases that are shown
    to be beyond the anchor's margin.
    """
    since = anchor.info.created_at[:10]
    then, now = anchor.info.stack_id, session.fingerprint.stack_id
    obstacles = list(reasons)
    if then is not None and then != now:  # an upgrade since the anchor moves every case: that is no drift of the code
        obstacles.append(fact("host.other_stack", severity=Severity.NOTABLE, then=then, now=now))
    if obstacles:
        for obstacle in (fact("drift.not_compared", severity=Severity.NOTABLE, since=since), *obstacles):
            session.note(obstacle)
        return ()
    config, cases = session.request.loaded.config, session.request.cases
    policy = replace(policy_of(config), margin_ratio=config.anchor_margin)
    failures = session.data.paired().failures
    comparisons = compare_rounds(anchor.rounds, session.data.rounds(), cases, policy, failures)
    beyond = screen_drift(comparisons, alpha=policy.alpha * DRIFT_SHARE)
    for comparison in comparisons:
        session.note(drift_note(comparison, since, is_beyond=comparison.case_id in beyond))
    return tuple(case for case in cases if case.id in beyond)


def pair_drifted(
    session: Session,
    anchor: StoredBaseline,
    drifted: Sequence[Case],
    candidate: ArmSpec,
    result: GateResult,
    *,
    allowances: Sequence[Allowance],
) -> GateResult:
    """The gate's result after drifted cases that are not red already were paired with the anchor's commit.

    Where that is impossible the drift is noted and not red: the rounds are numbers of another day.
    """
    open_ids = {verdict.case_id for verdict in result.verdicts if verdict.outcome is not Outcome.REGRESSED}
    cases = tuple(dataclasses.replace(case, gating=Gating.GATING) for case in drifted if case.id in open_ids)
    if not cases or session.interrupts.asked:
        return result
    since = anchor.info.created_at[:10]
    verdicts = _pair(session, anchor, candidate, cases, allowances=allowances, level_share=DRIFT_SHARE, is_anchor=True)
    if isinstance(verdicts, Fact):
        session.note(fact("drift.not_paired", severity=Severity.NOTABLE, since=since))
        session.note(verdicts)
    if verdicts is None or isinstance(verdicts, Fact):
        return result
    for verdict in verdicts:
        if verdict.outcome is not Outcome.REGRESSED:
            session.note(fact("drift.not_confirmed", case_id=verdict.case_id, outcome=verdict.outcome.value))
    return with_verdicts(result, merge_drift(result.verdicts, verdicts, since))


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


def with_verdicts(result: GateResult, verdicts: Sequence[Verdict]) -> GateResult:
    """The result with some verdicts replaced, and what follows from that for the gate."""
    new = {verdict.case_id: verdict for verdict in verdicts}
    merged = tuple(new.get(verdict.case_id, verdict) for verdict in result.verdicts)
    again = conclude(merged, result.policy)
    return replace(again, blocks_total=result.blocks_total, notes=result.notes)


def _pair(
    session: Session,
    stored: StoredBaseline,
    candidate: ArmSpec,
    cases: tuple[Case, ...],
    *,
    allowances: Sequence[Allowance],
    level_share: float,
    kept_share: float = 0.0,
    is_anchor: bool = False,
) -> tuple[Verdict, ...] | Fact | None:
    """Verdicts on the candidate, paired with the commit of a baseline or an anchor.

    `level_share` is the part of the gate's level that is spent, `kept_share` the part of what is left of the budget
    that is not. A fact says why the two cannot be paired; None that they run the same code.
    """
    name = "anchor" if is_anchor else "baseline"
    if obstacle := obstacle_to_pairing(session, stored, name=name):
        return obstacle
    session.request.progress(fact("step.pairing", cases=len(cases), of=name))
    commit = commit_of(session.request.loaded, stored)
    specs = {Arm.BASELINE: parse_arm(f"git:{commit}"), Arm.CANDIDATE: candidate}
    try:
        place = ArmLayout(workshop="arms-paired-with-anchor" if is_anchor else "arms-paired")
        starter, arms = start_arms(session, specs, place)
        plan = calibrate(session, starter, arms, cases, measures_identical=False)
        if session.identical:
            session.note(fact("arms.same_code_as_stored", severity=Severity.NOTABLE, of=name))
            return None
        _, margins = gate_error_rate(session)
        stage = Stage.DRIFT if is_anchor else Stage.PAIRING
        judge = judge_of(session, cases, margins, stage, allowances=allowances, level_share=level_share)
        chosen = [each.case for each in plan.cases]
        if not is_anchor:
            count_arms(session, starter, chosen)
        measure_paired(session, starter, plan, judge, keep_s=session.left_s() * kept_share)
        confirm_flags(session, specs, plan, judge)
        verdicts = judge.verdicts(session.data)
        explain(session, starter, verdicts, chosen)
    except ArmError as error:
        return fact("pairing.unusable", severity=Severity.NOTABLE, error=str(error))
    return verdicts


def _same_code(verdict: Verdict) -> Verdict:
    return replace(
        verdict,
        outcome=Outcome.SAME_CODE,
        timed_outcome=verdict.outcome,
        gating=Gating.GATING,  # noise between rounds may have demoted it, but hashes have none
        reasons=(fact("verdict.same_code"), *verdict.reasons),
    )
