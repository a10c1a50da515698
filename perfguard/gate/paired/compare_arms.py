"""`compare`, and `gate` without a stored baseline: two arms, interleaved blocks, analyses, confirmation, a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perfguard.gate.calibration.machine_rates import bank, gate_error_rate, planned_cases
from perfguard.gate.paired.allow_list import allowances_of
from perfguard.gate.paired.explain import BOTH, count_arms, explain
from perfguard.gate.paired.judging import PairedJudge, policy_of, signal_policy_of
from perfguard.gate.paired.results import finish
from perfguard.gate.rules.compare import SequentialGate, plan_analyses
from perfguard.gate.rules.rulings import blind_looks
from perfguard.gate.rules.signals import SignalPolicy
from perfguard.records.allowance import Allowance
from perfguard.records.events import AnalysesPlanned, InterimAnalysis
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.plan import ArmSpec, Plan, ResolvedArm
from perfguard.records.record import StoredOpCounts
from perfguard.records.result import RunResult
from perfguard.records.run import Arm, Stage
from perfguard.records.spec import Case
from perfguard.records.verdict import Margins
from perfguard.runner.arms import git
from perfguard.runner.measuring import ArmLayout, MeasuringLimits, calibrate, measure, prove_identity, start_arms
from perfguard.runner.process.starting import ProcessStarter
from perfguard.runner.session import Request, Session, choose_cpus, open_session
from perfguard.runner.untouched import can_be_proven, proven_by_imports, proven_by_records
from perfguard.stats.confirming import CONFIRMATION_ANALYSES

CONFIRMATION_SHARE = 0.2  # Last part of the budget that confirms flags, where there are any by then; see decision 0008
LEAST_CONFIRMATION_SAMPLES = 6  # Samples of each case and block while flags are confirmed, where more would take long

_RELOCATED = {
    Stage.CONFIRMATION: ArmLayout(workshop="arms-relocated-for-confirmation", environment_bytes=(1808, 1808)),
    Stage.DRIFT_CONFIRMATION: ArmLayout(
        workshop="arms-relocated-for-drift-confirmation", environment_bytes=(1808, 1808)
    ),
}
"""Longer paths and larger environments, alike in both arms: another layout, the same comparison. 1808 is no multiple of
a page or of 64 bytes."""


def compare_arms(
    request: Request,
    baseline: ArmSpec,
    candidate: ArmSpec,
    *,
    notes: tuple[Fact, ...] = (),
    place: ArmLayout | None = None,
    is_anchor: bool = False,
    op_counts: StoredOpCounts | None = None,
) -> RunResult:
    """Measure two arms in interleaved blocks and judge every case.

    Arms that turn out to run the same code are not measured, unless the request says so. They are put at alike places
    unless `place` says otherwise. Against an anchor, its margin is tested. With `op_counts` of another machine, the
    candidate's steps are compared with these as well. What was measured before an interruption is judged too; the
    result then says `interrupted`, unless only the search for culprits was cut short.

    Raises:
        PerfguardError: The run could not be made; nothing that was measured is lost.
    """
    # Read first, so that a broken file is said before minutes of measuring.
    allowances = allowances_of(request.loaded) if request.gate.uses_allowances else ()
    cpus = len(choose_cpus(request.loaded, request.fingerprint).cpus)
    cases, plan_notes = planned_cases(request, machine_id=request.fingerprint.machine_id, cpus=cpus)
    with open_session(replace(request, cases=cases), mode="paired") as session:
        for note in (*notes, *plan_notes):
            session.note(note)
        specs = {Arm.BASELINE: baseline, Arm.CANDIDATE: candidate}
        starter, arms = start_arms(session, specs, place)
        is_measured = request.measure_anyway
        proves = request.gate.follows_up and not (is_measured or request.measure_all)
        if not is_measured:
            prove_identity(session, arms)
        plan = Plan(cases=(), settings=session.settings)
        if not session.identical:
            follows = proves and can_be_proven(session, arms)
            plan = calibrate(session, starter, arms, measures_identical=is_measured, proves=follows)
        error_rate, margins = gate_error_rate(session)
        judge = judge_of(session, cases, margins, allowances=allowances, is_anchor=is_anchor)
        if is_measured or not session.identical:
            chosen = [each.case for each in plan.cases]
            if request.gate.follows_up:
                count_arms(session, starter, chosen, op_counts)
            if proves:
                plan = _touched(session, arms, plan)
            measure_paired(session, starter, plan, judge)
            if request.loaded.config.confine:
                _say_what_looks_miss(session)
            if request.gate.follows_up:
                confirm_flags(session, specs, plan, judge)
                session.is_decided = not session.interrupts.asked
                explain(session, starter, judge.verdicts(session.data), chosen)
        else:
            _say_how_to_gate_the_last_commit(session, baseline, candidate)
        is_proven = not session.data.blocks_finished and (session.identical or bool(session.data.untouched))
        known = None if is_proven else error_rate  # what git proves has no error rate
        result = finish(session, judge.conclude(session.data), error_rate=known)
        if not is_anchor:  # another margin than that of other gates says too little of their false alarms
            bank(session, result)
        return result


def _say_how_to_gate_the_last_commit(session: Session, baseline: ArmSpec, candidate: ArmSpec) -> None:
    """Of a working tree that runs the code of HEAD: who has committed already finds a gate of nothing here."""
    if (baseline.text, candidate.text) == ("git:HEAD", "dir:.") and git.has_parent(session.request.loaded.project):
        session.note(fact("gate.nothing_to_compare", severity=Severity.NOTABLE))


def _say_what_looks_miss(session: Session) -> None:
    kept = dict.fromkeys((*session.data.with_kept_inputs(), *blind_looks(session.data.checks())))
    if kept:
        session.note(fact("run.inputs_kept", severity=Severity.NOTABLE, case_ids=tuple(kept)))


def _touched(session: Session, arms: Mapping[Arm, ResolvedArm], plan: Plan) -> Plan:
    """The plan without the cases that the change does not reach: what they run is the same, and so are its ops."""
    counts = session.data.op_count_changes
    same = [each.case for each in plan.cases if not counts.get(each.case.id, "no-torch" not in each.case.tags)]
    is_trusted = not session.request.loaded.config.confine
    by_records = proven_by_records(session, [case.id for case in same])
    for proven in by_records if is_trusted else proven_by_imports(session, arms, same):
        session.emit(proven)
    return replace(plan, cases=tuple(each for each in plan.cases if each.case.id not in session.data.untouched))


def judge_of(
    session: Session,
    cases: tuple[Case, ...],
    margins: Margins,
    stage: Stage = Stage.MAIN,
    *,
    allowances: Sequence[Allowance] = (),
    is_anchor: bool = False,
    level_share: float = 1.0,
) -> PairedJudge:
    """The judge of a stage, with the margins that this machine's calibration gives, and its share of the level.

    Against an anchor, the anchor's margin is tested instead of the gate's.
    """
    config = session.request.loaded.config
    policy = replace(policy_of(config, margins), alpha=config.alpha * level_share)
    is_drift = stage is Stage.DRIFT
    if is_anchor or is_drift:
        margin = config.anchor_margin
        policy = replace(policy, margin_ratio=margin, equivalence_ratio=max(config.equivalence, margin))
    return PairedJudge(
        cases=cases,
        policy=policy,
        stage=stage,
        confirmation=Stage.DRIFT_CONFIRMATION if is_drift else Stage.CONFIRMATION,
        identical=session.identical,
        untouched=session.data.untouched,
        # Drift is about time; the gate's level for signals is spent on the baseline.
        signals=SignalPolicy(gating=()) if is_drift else signal_policy_of(config),
        allowances=tuple(allowances),
    )


def measure_paired(
    session: Session, starter: ProcessStarter, plan: Plan, judge: PairedJudge, *, keep_s: float = 0.0
) -> None:
    """Measure blocks of both arms until every case has its answer or the budget ends.

    Where something is flagged, the last part of the budget is left to its confirmation; where nothing is, that part
    measures as well, and a flag of the last analysis is confirmed beyond the budget. `keep_s` seconds of it are kept
    for a further stage.
    """
    if not plan.cases or session.interrupts.asked:
        return
    budget_s = session.left_s() - keep_s
    follows_up, ends_early = session.request.gate.follows_up, session.request.gate.ends_early
    reserve_s = budget_s * CONFIRMATION_SHARE if follows_up else 0.0

    def answered() -> frozenset[str]:
        data, blocks = session.data, session.data.blocks_of(judge.stage)
        left_s = session.left_s() - keep_s
        gate = judge.gate
        if gate is None:
            gate = _planned(session, judge, left_s=left_s)
        if gate.is_due(blocks):
            planned = plan_analyses(
                data.last_block_s(judge.stage), left_s=left_s, max_blocks=session.settings.max_blocks, finished=blocks
            )
            gate.plan(planned)
            _analyse(session, judge, final=False, planned=planned)
        if left_s <= reserve_s and judge.flagged(data):
            return frozenset(case.id for case in judge.cases)
        return gate.answered() if ends_early else frozenset()

    limits = MeasuringLimits(
        budget_s=budget_s, max_blocks=session.settings.max_blocks, least_blocks=judge.policy.min_blocks
    )
    measure(session, starter, plan, arms=BOTH, stage=judge.stage, limits=limits, answered=answered)
    _analyse(session, judge, final=True)
    # Where the cap on blocks ended the measuring it is said, so that nobody raises the budget in vain.
    blocks, left_s = session.data.blocks_of(judge.stage), session.left_s() - keep_s
    gate = None if judge.identical else judge.gate  # what is identical passes, however many blocks there are
    is_open = gate is not None and any(case.id not in gate.answered() for case in judge.measured)
    if is_open and blocks >= session.settings.max_blocks and left_s > session.data.longest_block_s(judge.stage):
        session.note(fact("run.max_blocks_reached", severity=Severity.NOTABLE, blocks=blocks, left_s=left_s))


def confirm_flags(session: Session, specs: Mapping[Arm, ArmSpec], plan: Plan, judge: PairedJudge) -> None:
    """Measure flagged cases again with relocated arms, whatever is left of the budget: without it they are not red."""
    if judge.gate is None or session.interrupts.asked:
        return
    flagged = judge.flagged(session.data)
    chosen = replace(plan, cases=tuple(each for each in plan.cases if each.case.id in flagged))
    if not chosen.cases:
        return
    session.request.progress(fact("step.confirming", cases=len(chosen.cases)))
    starter, _ = start_arms(session, specs, _RELOCATED[judge.confirmation])
    confirmed: frozenset[str] = frozenset()

    def answered() -> frozenset[str]:
        nonlocal confirmed
        if session.data.blocks_of(judge.confirmation) in CONFIRMATION_ANALYSES:
            confirmed = judge.confirmed(session.data)
        return confirmed

    limits = MeasuringLimits(
        budget_s=math.inf, max_blocks=CONFIRMATION_ANALYSES[-1], samples=_confirmation_samples(session, chosen, judge)
    )
    measure(session, starter, chosen, arms=BOTH, stage=judge.confirmation, limits=limits, answered=answered)


def _confirmation_samples(session: Session, plan: Plan, judge: PairedJudge) -> int:
    """As many samples as in the blocks before, or fewer where flagged cases became so slow that samples fill a block.

    Starting two workers costs far more than a few samples, which halve the noise of what decides.
    """
    compared = [verdict.comparison for verdict in (judge.gate.verdicts() if judge.gate else ())]
    sums_s = {c.case_id: (c.baseline_median_s or 0.0) + (c.candidate_median_s or 0.0) for c in compared}
    pair_s = sum(each.sample_share * each.inner_loops * sums_s[each.case.id] for each in plan.cases)
    most = plan.settings.samples
    affordable = int(session.data.longest_block_s(judge.stage) / 2 / pair_s) if pair_s > 0 else most
    return max(min(LEAST_CONFIRMATION_SAMPLES, most), min(affordable, most))


def _analyse(session: Session, judge: PairedJudge, *, final: bool, planned: int | None = None) -> None:
    decided = judge.analyse(session.data, final=final)
    outcomes = {case_id: outcome.value for case_id, outcome in decided.items()}
    blocks = session.data.blocks_of(judge.stage)
    session.emit(InterimAnalysis(blocks=blocks, final=final, decided=outcomes, planned=planned))


def _planned(session: Session, judge: PairedJudge, *, left_s: float) -> SequentialGate:
    """The judge's analyses, spread over the blocks that the rest of the budget will hold."""
    policy, configured = judge.policy, policy_of(session.request.loaded.config)
    margin_ratio, equivalence_ratio = policy.margin_ratio, policy.equivalence_ratio
    first_block_s, most = session.data.longest_block_s(judge.stage), session.settings.max_blocks
    blocks = plan_analyses(first_block_s, left_s=left_s, max_blocks=most)
    session.emit(
        AnalysesPlanned(
            blocks=blocks,
            margins=policy.margins,
            margin_ratio=None if margin_ratio == configured.margin_ratio else margin_ratio,
            equivalence_ratio=None if equivalence_ratio == configured.equivalence_ratio else equivalence_ratio,
        )
    )
    return judge.plan(blocks)
