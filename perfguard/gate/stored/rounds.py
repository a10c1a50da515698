"""One arm at a time: `run`, `baseline update`, and `gate` against a stored baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from perfguard.gate.calibration.error_rate import nominal
from perfguard.gate.calibration.machine_rates import gate_error_rate
from perfguard.gate.paired.allow_list import allowances_of, tags_of, utc_today
from perfguard.gate.paired.explain import count_against
from perfguard.gate.paired.judging import policy_of
from perfguard.gate.paired.results import finish, measured_cases
from perfguard.gate.rules.compare import compare_rounds
from perfguard.gate.rules.policy import conclude, decide_cases
from perfguard.gate.rules.rulings import (
    allowance_notes,
    apply_allowances,
    different_results,
    guard_numerics,
    paired_with_stored,
    unchecked_note,
)
from perfguard.gate.rules.stored import speed_note
from perfguard.gate.stored.pairing import obstacle_to_pairing, pair_drifted, pair_open_cases, screen, with_verdicts
from perfguard.host.identity import match
from perfguard.records.allowance import Allowance
from perfguard.records.facts import Fact, Severity, Subject, Value, fact
from perfguard.records.machine.fingerprint import CompatibilityLevel
from perfguard.records.plan import ArmSpec, Plan
from perfguard.records.record import StoredBaseline
from perfguard.records.result import ArmSummary, RunResult
from perfguard.records.run import Arm
from perfguard.records.spec import Case
from perfguard.records.verdict import Design, GateResult, Outcome
from perfguard.runner.measuring import MeasuringLimits, calibrate, measure, start_arms
from perfguard.runner.process.starting import ProcessStarter
from perfguard.runner.session import Request, Session, open_session
from perfguard.store.op_counts import load_op_counts, op_counts_file


def measure_rounds(session: Session, arm: ArmSpec, *, rounds: int, spread_s: float) -> tuple[ProcessStarter, Plan]:
    """Measure independent rounds of one arm: fresh processes, spread over `spread_s` seconds or more.

    Gives what starts more workers of the arm, and what was measured.
    """
    starter, arms = start_arms(session, {Arm.CANDIDATE: arm})
    plan = calibrate(session, starter, arms)
    if plan.cases and not session.interrupts.asked:
        pause_s = spread_s / max(1, rounds - 1)
        limits = MeasuringLimits(budget_s=session.left_s(), max_blocks=rounds)
        measure(session, starter, plan, arms=(Arm.CANDIDATE,), pause_s=pause_s, limits=limits)
    return starter, plan


def measurable_cases(session: Session) -> tuple[Case, ...]:
    """The cases that have not failed."""
    return tuple(case for case in session.request.cases if case.id not in session.data.failures)


def run_arm(request: Request, arm: ArmSpec, *, rounds: int) -> RunResult:
    """Measure one arm and compare it with nothing.

    Raises:
        PerfguardError: The run could not be made.
    """
    with open_session(request, mode="rounds") as session:
        measure_rounds(session, arm, rounds=rounds, spread_s=0.0)
        return finish(session, None, measured=measured_cases(session))


def gate_against_stored(
    request: Request, candidate: ArmSpec, stored: StoredBaseline, place: str, *, anchor: StoredBaseline | None = None
) -> RunResult:
    """Measure fresh rounds and judge them against a stored baseline of this machine, and its anchor, where it has one.

    Raises:
        PerfguardError: The run could not be made.
    """
    allowances = allowances_of(request.loaded)
    with open_session(with_seed_of(stored, request), mode="rounds") as session:
        session.summaries["baseline"] = _stored_summary(stored, place)
        info, least = stored.info, min((noise.rounds for noise in stored.noise.values()), default=0)
        values = {"path": place, "date": info.created_at, "commit": (info.commit or "unknown")[:12]}
        session.note(fact("baseline.compared", values, rounds=least))
        rounds = session.request.loaded.config.rounds
        starter, _ = measure_rounds(session, candidate, rounds=rounds, spread_s=0.0)
        count_against(session, starter, load_op_counts(op_counts_file(Path(place))), measurable_cases(session))
        error_rate = nominal(session.request.loaded.config.alpha)
        if obstacle := obstacle_to_pairing(session, stored):
            session.note(fact("stored.cannot_pair", severity=Severity.NOTABLE))
            session.note(obstacle)
        else:
            error_rate, _ = gate_error_rate(session, screens=True)
        result = judge_stored(session, stored)
        level = match(stored.fingerprint, session.fingerprint).level
        drifted = screen(session, anchor, reasons_against(session, anchor, name="anchor")) if anchor else None
        result = pair_open_cases(session, stored, candidate, result, level, allowances=allowances, drifted=drifted)
        if anchor and drifted:
            result = pair_drifted(session, anchor, drifted, candidate, result, allowances=allowances)
        return finish(session, _allowed(session, stored, result, allowances), error_rate=error_rate)


def judge_stored(session: Session, stored: StoredBaseline) -> GateResult:
    """Verdicts of the session's fresh rounds against the stored ones; incomparable where the machines differ."""
    config = session.request.loaded.config
    policy = replace(policy_of(config), equivalence_ratio=max(config.stored_equivalence, config.wide_margin))
    rounds, failures = session.data.rounds(), session.data.paired().failures
    reasons = reasons_against(session, stored)
    before = {} if reasons else stored.rounds
    comparisons = compare_rounds(before, rounds, session.request.cases, policy, failures)
    if reasons:
        comparisons = tuple(
            c
            if c.problem_outcome in (Outcome.FAILED, Outcome.INVALID)
            else replace(c, problem=reasons[0], problem_outcome=Outcome.INCOMPARABLE)
            for c in comparisons
        )
        for reason in reasons[1:]:
            session.note(reason)
    checks = paired_with_stored(stored.rounds, rounds)
    verdicts = guard_numerics(decide_cases(comparisons, policy), checks)
    unchecked = unchecked_note(verdicts, checks, why=_why_unchecked(stored, session))
    return conclude(verdicts, policy, notes=(*speed_note(stored.rounds, rounds), *unchecked))


def _allowed(
    session: Session, stored: StoredBaseline, result: GateResult, allowances: Sequence[Allowance]
) -> GateResult:
    """The result with allowances applied to what was not paired, and a note for each of them.

    Last: the numbers of another day decide what is measured in pairs, not that a slowdown is small enough.
    """
    if not allowances:
        return result
    cases = session.request.cases
    today, tags = utc_today(), tags_of(cases)
    different = different_results(paired_with_stored(stored.rounds, session.data.rounds()))
    unpaired = [verdict for verdict in result.verdicts if verdict.comparison.design is Design.ROUNDS]
    ruled = apply_allowances(unpaired, allowances, today, result.policy, tags=tags, different=different)
    result = with_verdicts(result, ruled)
    return replace(result, notes=(*result.notes, *allowance_notes(allowances, result.verdicts, today, tags=tags)))


def with_seed_of(stored: StoredBaseline, request: Request) -> Request:
    """The request with the baseline's seed, so that the rounds have its data; a seed that the user gave stays."""
    if request.loaded.config.seed is not None:
        return request
    config = replace(request.loaded.config, seed=stored.info.seed)
    return replace(request, loaded=replace(request.loaded, config=config))


def _why_unchecked(stored: StoredBaseline, session: Session) -> Mapping[str, Value]:
    if not any(entry.checks for rounds in stored.rounds.values() for entry in rounds):
        return {"cause": "times_only"}
    if session.settings.seed != stored.info.seed:
        return {"cause": "other_seed", "baseline_seed": stored.info.seed, "seed": session.settings.seed}
    return {"cause": "other_data"}


def reasons_against(session: Session, stored: StoredBaseline, *, name: str = "baseline") -> tuple[Fact, ...]:
    """Why this run must not be compared with the stored baseline, or anchor; empty when it may. The rest is noted."""
    compatibility = match(stored.fingerprint, session.fingerprint)
    if compatibility.level is CompatibilityLevel.INCOMPARABLE:
        return compatibility.reasons
    for reason in compatibility.reasons:
        session.note(dataclasses.replace(reason, subject=Subject(arm=name)))
    info, settings = stored.info, session.settings
    compared: tuple[tuple[str, Value, Value], ...] = (
        ("cpus", info.cpus, len(session.selection.cpus)),
        ("env_profile", info.env_profile, settings.env_profile.value),
        ("slice_s", info.sample_s, settings.sample_s),
    )
    return tuple(
        fact("host.other_run_setting", arm=name, setting=setting, then=then, now=now)
        for setting, then, now in compared
        if then != now
    )


def _stored_summary(stored: StoredBaseline, place: str) -> ArmSummary:
    software = stored.fingerprint.software
    return ArmSummary(
        text=f"stored {place}",
        source_id=stored.info.source_id,
        interpreter=None,
        python=software.python_version if software else None,
        torch=software.torch_version if software else None,
        stack_id=stored.info.stack_id,
        commit=stored.info.commit,
    )
