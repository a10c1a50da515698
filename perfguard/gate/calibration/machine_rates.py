"""What a gate takes from the calibration and the plan of its machine, and what it gives back: banked A/A gates."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from msgspec.structs import replace

from perfguard.config import Config, LoadedConfig
from perfguard.errors import ExitCode, StoreError
from perfguard.gate.calibration.aa_gates import (
    aa_gate,
    calibrated_margins,
    detectable_effects,
    gates_of_suite,
    summarize,
    with_gates,
)
from perfguard.gate.calibration.error_rate import CalibrationState, calibration_state, error_rate
from perfguard.records.calibration import (
    DECISION_RULE,
    TIME_FORMAT,
    AAGate,
    Calibration,
    CalibrationSummary,
    Scope,
    SuitePlan,
)
from perfguard.records.facts import Fact, Severity, Subject, fact
from perfguard.records.result import ArmSummary, RunResult
from perfguard.records.run import Arm
from perfguard.records.run_data import RunData
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import Margins
from perfguard.runner.session import Request, Session
from perfguard.store.calibrations import (
    banked_file,
    calibration_file,
    load_calibration,
    load_plan,
    plan_file,
    save_calibration,
)


def utc_now() -> datetime:
    """Now, aware."""
    return datetime.now(timezone.utc)


def baselines_of(loaded: LoadedConfig) -> Path:
    """Directory of the stored baselines, calibrations and plans."""
    return loaded.rules / loaded.config.baselines


def calibration_place(request: Request, machine_id: str) -> Path:
    """The file of a machine's calibration of the request's suite."""
    return calibration_file(baselines_of(request.loaded), machine_id, request.suite)


def scope_of(config: Config, *, machine_id: str, cpus: int, arm: ArmSummary | None) -> Scope:
    """What a gate's calibration must be valid for; without the candidate's arm, its software is unknown."""
    found = {"torch": arm.torch, "python": arm.python} if arm else {}
    return Scope(
        machine_id=machine_id,
        stack_id=arm.stack_id if arm else None,
        software={name: version for name, version in found.items() if version},
        cpus=cpus,
        env_profile=config.env_profile.value,
        rule=DECISION_RULE,
        alpha=config.alpha,
        margin_ratio=config.narrow_margin,
    )


def stored_calibration(request: Request, machine_id: str) -> Calibration | None:
    """The committed calibration of a machine, as far as its gates measured the suite's present cases; None without any.

    Raises:
        StoreError: It is corrupt.
    """
    stored = load_calibration(calibration_place(request, machine_id))
    return None if stored is None else with_present_cases(stored, request)


def with_present_cases(calibration: Calibration, request: Request) -> Calibration | None:
    """Only the gates that measured the cases that the suite has now; None where there is none."""
    gates = gates_of_suite(calibration.gates, (case.id for case in request.cases))
    return replace(calibration, gates=gates) if gates else None


def gate_error_rate(session: Session, *, screens: bool = False) -> tuple[Fact, Margins]:
    """The error rate of this gate, and its margins; called once the arms are known.

    It `screens` where a stored baseline clears what it can, and the rest is paired with its commit. A stored file that
    cannot be read is no error: a gate that was measured is judged in any case. Without a calibration that holds the
    margin is the wide one. Gates that make a calibration have the narrow one: they are red at least as often as others.
    """
    config = session.request.loaded.config
    makes_margins = not session.request.gate.uses_calibrated_margins
    uncalibrated = Margins(ratio=config.narrow_margin if makes_margins else config.wide_margin)
    machine_id = session.fingerprint.machine_id
    if session.request.patterns:
        # Calibrations are of suites.
        return fact("rate.of_selection", severity=Severity.NOTABLE, alpha_ratio=config.alpha), uncalibrated
    try:
        calibration = stored_calibration(session.request, machine_id)
    except StoreError as error:
        problem = str(error)
        return fact("rate.unreadable", severity=Severity.NOTABLE, alpha_ratio=config.alpha, error=problem), uncalibrated
    arm = session.summaries.get(Arm.CANDIDATE.value)
    scope = scope_of(config, machine_id=machine_id, cpus=len(session.selection.cpus), arm=arm)
    state, _, found = rate_of(session.request, calibration, scope, screens=screens)
    if calibration is None or not state.is_valid or makes_margins:
        return found, uncalibrated
    return found, margins_of(config, calibration)


def margins_of(config: Config, calibration: Calibration) -> Margins:
    """The margins that a calibration allows under this configuration."""
    return calibrated_margins(calibration, narrow_ratio=config.narrow_margin, wide_ratio=config.wide_margin)


def rate_of(
    request: Request, calibration: Calibration | None, scope: Scope, *, screens: bool = False
) -> tuple[CalibrationState, CalibrationSummary | None, Fact]:
    """Whether a calibration holds for this scope, what it adds up to, and the error rate of a gate with this budget."""
    config, reach = request.loaded.config, {}
    state = calibration_state(calibration, scope, now=utc_now())
    summary = None
    if calibration is not None:
        summary = summarize(calibration, max_blocks=config.max_blocks, margins=margins_of(config, calibration))
    if summary is not None and not screens:  # then pairs get what is left of the budget, which nobody knows beforehand
        effects = detectable_effects(
            summary, alpha=config.alpha, budget_s=request.budget_s, max_blocks=config.max_blocks
        )
        if effects is not None:
            reach = {"low_ratio": effects[0], "high_ratio": effects[1], "budget_s": request.budget_s}
    return state, summary, error_rate(state, summary, alpha=config.alpha, reach=reach, screens=screens)


def planned_cases(request: Request, *, machine_id: str, cpus: int) -> tuple[tuple[Case, ...], tuple[Fact, ...]]:
    """The request's cases as the plan of this machine, for so many CPUs, lets them gate, and notes on what it changed.

    A selection of cases by pattern has no plan.
    """
    if request.suite != request.loaded.config.suite:
        return request.cases, ()
    path = plan_file(baselines_of(request.loaded), machine_id, request.suite)
    try:
        plan = load_plan(path)
    except StoreError as error:
        return request.cases, (fact("plan.unreadable", severity=Severity.NOTABLE, error=str(error)),)
    profile = request.loaded.config.env_profile.value
    compared = (("CPUs", plan.cpus, cpus), ("env_profile", plan.env_profile, profile)) if plan else ()
    for what, planned, now in compared:
        if plan and planned != now:
            values = {"date": plan.created_at[:10], "what": what, "planned": planned, "now": now}
            return request.cases, (fact("plan.unused", values, severity=Severity.NOTABLE),)
    return planned_gating(request.cases, plan)


def planned_gating(cases: Sequence[Case], plan: SuitePlan | None) -> tuple[tuple[Case, ...], tuple[Fact, ...]]:
    """The cases with those demoted that the plan of this machine and suite demotes, and a note for each."""
    reasons = {planned.case_id: planned.reason for planned in plan.cases if not planned.gating} if plan else {}
    kept, notes = [], []
    for case in cases:
        if plan is None or case.id not in reasons or case.gating is not Gating.GATING:
            kept.append(case)
            continue
        kept.append(dataclasses.replace(case, gating=Gating.ADVISORY))
        reason = reasons[case.id]
        values = {**reason.values, "date": plan.created_at[:10]}
        subject = Subject(case_id=case.id)
        notes.append(dataclasses.replace(reason, severity=Severity.NOTABLE, subject=subject, values=values))
    return tuple(kept), tuple(notes)


def bank(session: Session, result: RunResult) -> AAGate | None:
    """Keep a gate whose arms turned out identical as an A/A gate, until the next `perfguard calibrate` takes it in.

    Nothing is kept of gates of single cases, of broken off or failed ones, and of those that `calibrate` makes itself.

    Raises:
        StoreError: It cannot be written.
    """
    request, machine_id = session.request, session.fingerprint.machine_id
    if not (session.identical and session.data.blocks_finished and is_bankable(request, result)):
        return None
    gate = gate_of(result, session.data, placebo=False, banked=True)
    path = banked_file(request.loaded.project, machine_id, request.suite)
    try:
        known = load_calibration(path)
    except StoreError:  # a local file that nobody wrote by hand: what cannot be read is not worth keeping
        known = None
    save_calibration(path, with_gates(known, [gate], scope=scope_of_result(result, request), suite=request.suite))
    return gate


def is_bankable(request: Request, result: RunResult) -> bool:
    """Whether a run with identical arms says something of the gate's rule on whole suites."""
    return (
        result.gate is not None
        and request.gate.banks_identical
        and request.suite == request.loaded.config.suite
        and not request.injections
        and result.exit_code not in (ExitCode.INTERRUPTED, ExitCode.INFRASTRUCTURE)
        and any(case.gating is Gating.GATING for case in request.cases)
    )


def gate_of(result: RunResult, data: RunData, *, placebo: bool, banked: bool) -> AAGate:
    """What a calibration keeps of a run.

    Raises:
        ValueError: The run compared nothing.
    """
    if result.gate is None:
        raise ValueError(f"run {result.run_id} compared nothing")
    return aa_gate(
        result.gate,
        data.paired(),
        run_id=result.run_id,
        finished_at=utc_now().strftime(TIME_FORMAT),
        duration_s=result.duration_s,
        measured_s=data.measured_s,
        placebo=placebo,
        banked=banked,
    )


def scope_of_result(result: RunResult, request: Request) -> Scope:
    """The scope of a finished run."""
    config, arm = request.loaded.config, result.arms.get(Arm.CANDIDATE.value)
    return scope_of(config, machine_id=result.machine_id, cpus=len(result.cpus), arm=arm)
