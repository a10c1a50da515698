"""A gate against a stored baseline that has an anchor: the same rounds also tell how far the cases have drifted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfguard.errors import ArmError
from perfguard.gate.calibration.machine_rates import gate_error_rate
from perfguard.gate.paired.compare_arms import confirm_flags, judge_of, measure_paired
from perfguard.gate.paired.explain import explain
from perfguard.gate.paired.judging import against_anchor, policy_of
from perfguard.gate.rules.compare import compare_rounds
from perfguard.gate.rules.drift import DRIFT_SHARE, drift_note, merge_drift, screen_drift
from perfguard.gate.rules.signals import SignalPolicy
from perfguard.gate.stored.lookup import commit_of
from perfguard.gate.stored.pairing import obstacle_to_pairing, unusable, with_verdicts
from perfguard.records.allowance import Allowance
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.plan import ArmSpec
from perfguard.records.record import StoredBaseline
from perfguard.records.run import Arm, Stage
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import GateResult, Outcome
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.measuring import Place, calibrate, start_arms
from perfguard.runner.session import Session

_PLACE = Place(workshop="arms-paired-with-anchor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drifted:
    """What a gate's rounds said of the drift since its anchor."""

    anchor: StoredBaseline
    """The anchor."""
    cases: tuple[Case, ...] = ()
    """Gating cases that are shown to be beyond the anchor's margin."""

    @property
    def since(self) -> str:
        """The day the anchor was measured."""
        return since_of(self.anchor)


def since_of(anchor: StoredBaseline) -> str:
    """The day a stored anchor was measured, ISO 8601."""
    return anchor.info.created_at[:10]


def screen(session: Session, anchor: StoredBaseline, reasons: Sequence[Fact]) -> Drifted:
    """Compare the session's rounds with the anchor's, and note the drift of each case.

    Args:
        session: The run, with its fresh rounds measured.
        anchor: The anchor.
        reasons: Why it must not be compared; empty when it may.
    """
    drifted = Drifted(anchor=anchor)
    obstacles = (*reasons, *_other_software(session, anchor))
    if obstacles:
        session.note(fact("drift.not_compared", severity=Severity.NOTABLE, since=drifted.since))
        for obstacle in obstacles:
            session.note(obstacle)
        return drifted
    config, cases = session.request.loaded.config, session.request.cases
    policy = replace(policy_of(config), margin_ratio=config.anchor_margin)
    failures = session.data.paired().failures
    comparisons = compare_rounds(anchor.rounds, session.data.rounds(), cases, policy, failures)
    found = screen_drift(comparisons, alpha=policy.alpha * DRIFT_SHARE)
    for drift in found:
        session.note(drift_note(drift, drifted.since))
    beyond = {drift.comparison.case_id for drift in found if drift.is_beyond}
    return replace(drifted, cases=tuple(case for case in cases if case.id in beyond))


def _other_software(session: Session, anchor: StoredBaseline) -> tuple[Fact, ...]:
    """An upgrade since the anchor moves every case: that is no drift of the code."""
    then, now = anchor.info.stack_id, session.fingerprint.stack_id
    if then is None or then == now:
        return ()
    return (fact("host.other_stack", severity=Severity.NOTABLE, then=then, now=now),)


def pair_drifted(
    session: Session, drifted: Drifted, candidate: ArmSpec, result: GateResult, allowances: Sequence[Allowance]
) -> GateResult:
    """The gate's result after drifted cases that are not red already were paired with the anchor's commit.

    Where that is impossible the drift is noted and not red: the rounds are numbers of another day.

    Args:
        session: The run.
        drifted: What the rounds said.
        candidate: What is judged.
        result: What is said against the baseline.
        allowances: Slowdowns that the project accepts.
    """
    open_ids = {verdict.case_id for verdict in result.verdicts if verdict.outcome is not Outcome.REGRESSED}
    cases = tuple(replace(case, gating=Gating.GATING) for case in drifted.cases if case.id in open_ids)
    if not cases or session.interrupts.asked:
        return result
    obstacle = obstacle_to_pairing(session, drifted.anchor, name="anchor")
    if obstacle is None:
        try:
            return _paired(session, drifted, candidate, result, cases, allowances=allowances)
        except ArmError as error:
            obstacle = unusable(error)
    session.note(fact("drift.not_paired", severity=Severity.NOTABLE, since=drifted.since))
    session.note(obstacle)
    return result


def _paired(
    session: Session,
    drifted: Drifted,
    candidate: ArmSpec,
    result: GateResult,
    cases: tuple[Case, ...],
    *,
    allowances: Sequence[Allowance],
) -> GateResult:
    session.request.progress(fact("step.pairing", cases=len(cases), of="anchor"))
    specs = {
        Arm.BASELINE: parse_arm(f"git:{commit_of(session.request.loaded, drifted.anchor)}"),
        Arm.CANDIDATE: candidate,
    }
    starter, arms = start_arms(session, specs, _PLACE)
    plan = calibrate(session, starter, arms, cases, measures_identical=False)
    if session.identical:
        session.note(fact("arms.same_code_as_stored", severity=Severity.NOTABLE, of="anchor"))
        return result
    config = session.request.loaded.config
    margins = gate_error_rate(session).margins
    judge = against_anchor(judge_of(session, cases, margins, Stage.DRIFT, allowances=allowances), config)
    judge = replace(
        judge,
        confirmation=Stage.DRIFT_CONFIRMATION,
        policy=replace(judge.policy, alpha=judge.policy.alpha * DRIFT_SHARE),
        signals=SignalPolicy(gating=()),  # drift is about time; the gate's level for signals is spent on the baseline
    )
    measure_paired(session, starter, plan, judge)
    confirm_flags(session, specs, plan, judge)
    verdicts = judge.verdicts(session.data)
    explain(session, starter, verdicts, [each.case for each in plan.cases])
    for verdict in verdicts:
        if verdict.outcome is not Outcome.REGRESSED:
            session.note(fact("drift.not_confirmed", case_id=verdict.case_id, outcome=verdict.outcome.value))
    return with_verdicts(result, merge_drift(result.verdicts, verdicts, drifted.since))
