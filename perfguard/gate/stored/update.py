"""`baseline update`: independent rounds, and what must hold before they are stored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from perfguard.errors import HostUnfitError, MeasurementError, StoreError, UsageError
from perfguard.gate.paired.explain import count_candidate
from perfguard.gate.paired.judging import policy_of
from perfguard.gate.paired.results import finish, measured_cases
from perfguard.gate.rules.guards import different_results, paired_with_stored
from perfguard.gate.stored.changes import CaseChange, CountedBaseline, changes_between
from perfguard.gate.stored.lookup import find_stored, store_of
from perfguard.gate.stored.new_baselines import baseline_of, public_runs, rounds_of
from perfguard.gate.stored.rounds import measurable_cases, measure_rounds, with_seed_of
from perfguard.records.facts import Fact, Severity, Subject, fact
from perfguard.records.machine.fingerprint import CheckStatus
from perfguard.records.plan import ArmSpec
from perfguard.records.record import StoredBaseline
from perfguard.records.result import RunResult
from perfguard.runner.arms import git
from perfguard.runner.doctor import check_host
from perfguard.runner.session import Request, Session, open_session
from perfguard.store.op_counts import load_op_counts, op_counts_file, save_op_counts

MIN_ROUNDS = 4
"""Fewer rounds say too little about the spread between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOptions:
    """What `baseline update` may overlook."""

    rounds: int
    """Independent rounds."""
    spread_s: float
    """Least seconds from the first to the last."""
    allow_dirty: bool = False
    """Record although the tree differs from its commit."""
    allow_unfit: bool = False
    """Record although doctor finds the host unfit."""
    allow_few: bool = False
    """Record with fewer rounds than are needed."""
    allow_different: bool = False
    """Record although a case does not compute what it did in the baseline that is replaced."""


def update_baseline(
    request: Request, options: UpdateOptions, confirm: Callable[[tuple[CaseChange, ...]], bool]
) -> tuple[RunResult, Path | None]:
    """Measure independent rounds and store them as the baseline of this machine.

    Args:
        request: What to measure.
        options: How much, and what may be overlooked.
        confirm: Sees the changes; False leaves the stored baseline as it was.

    Returns:
        The result, and where it was stored; None where nothing was.

    Raises:
        UsageError: The tree is dirty or there are too few rounds, and the options do not allow it.
        HostUnfitError: The host is unfit, and the options do not allow it.
        MeasurementError: A case failed, so the baseline would have a hole; or it computes something else than in the
            baseline that is replaced, and the options do not allow it.
    """
    state = _require_fit(request, options)
    previous = _previous(request)
    if previous is not None:
        request = with_seed_of(previous.baseline, request)  # the same data, so that what is computed can be compared
    # Waiting between the rounds is not measuring: the suite's budget is for the rounds alone.
    request = replace(request, budget_s=request.budget_s + options.spread_s)
    with open_session(request, mode="rounds") as session:
        arm = ArmSpec(text="dir:.")
        starter, plan = measure_rounds(session, arm, rounds=options.rounds, spread_s=options.spread_s)
        op_counts = {} if session.interrupts.asked else count_candidate(session, starter, measurable_cases(session))
        differences = _differences(session, previous.baseline if previous else None)
        _note_noise(session)
        result = finish(session, None, measured=measured_cases(session))
        if session.interrupts.asked:
            return result, None
        _require_complete(session, options)
        _require_same_computation(differences, options)
        baseline = baseline_of(session, state, plan)
        changes = changes_between(previous, CountedBaseline(baseline=baseline, op_counts=op_counts))
        if not confirm(changes):
            return result, None
        place = store_of(request.loaded).save(baseline, public_runs(session))
        save_op_counts(op_counts_file(place), op_counts.values())
        return result, place


def _previous(request: Request) -> CountedBaseline | None:
    """What an update would replace; None where nothing readable is stored for this machine."""
    place = find_stored(request.loaded, request.suite, request.fingerprint.machine_id)
    if place is None:
        return None
    with contextlib.suppress(StoreError):  # a corrupt baseline is what an update may be meant to replace
        baseline = store_of(request.loaded).load(place)
        with contextlib.suppress(StoreError):
            return CountedBaseline(baseline=baseline, op_counts=load_op_counts(op_counts_file(place)))
        return CountedBaseline(baseline=baseline)
    return None


def _require_fit(request: Request, options: UpdateOptions) -> git.TreeState:
    if options.rounds < MIN_ROUNDS and not options.allow_few:
        raise UsageError(
            f"{options.rounds} rounds say too little about their spread; use at least {MIN_ROUNDS}, or --allow-few"
        )
    state = git.tree_state(request.loaded.project)
    if state.dirty and not options.allow_dirty:
        raise UsageError(
            f"{request.loaded.project} has uncommitted changes, so the baseline could not be traced to a commit; "
            "commit them, or use --allow-dirty"
        )
    if not options.allow_unfit:
        failed = [
            check for check in check_host(request.loaded, request.fingerprint) if check.status is CheckStatus.FAIL
        ]
        if failed:
            what = ", ".join(check.id for check in failed)
            raise HostUnfitError(
                f"this host is unfit for a baseline ({what}); see `perfguard doctor`, or use --allow-unfit"
            )
    return state


def _require_complete(session: Session, options: UpdateOptions) -> None:
    for failure in session.data.failures.values():
        if failure.skipped:
            continue
        raise MeasurementError(
            f"{failure.case_id} failed ({failure.quoted}); no baseline was stored. Fix it, or select other cases"
        )
    few = [case_id for case_id, found in rounds_of(session).items() if len(found) < min(MIN_ROUNDS, options.rounds)]
    if few and not options.allow_few:
        raise MeasurementError(
            f"the budget of {session.request.budget_s:.0f} s ended before {MIN_ROUNDS} rounds of {few[0]} were "
            "measured; raise --budget, or use --allow-few"
        )


def _differences(session: Session, previous: StoredBaseline | None) -> dict[str, tuple[Fact, ...]]:
    """Cases that compute something else than in the baseline that is replaced; noted, too."""
    checks = paired_with_stored(previous.rounds if previous else {}, session.data.rounds())
    differences = different_results(checks)
    for case_id, found in differences.items():
        for difference in found:
            session.note(replace(difference, subject=Subject(case_id=case_id)))
    return differences


def _note_noise(session: Session) -> None:
    """Say it where rounds vary more than a gate puts up with: the baseline can be stored, but it will decide little."""
    limit = policy_of(session.request.loaded.config).max_block_sd_ratio
    measured = measured_cases(session)
    noisy = {m.case_id: m.between_sd_ratio for m in measured if (m.between_sd_ratio or 0.0) > limit}
    if noisy:
        worst = max(noisy, key=lambda case_id: noisy[case_id] or 0.0)
        session.note(
            fact(
                "baseline.noisy",
                severity=Severity.NOTABLE,
                case_id=worst,
                noisy=len(noisy),
                cases=len(measured),
                limit_ratio=limit,
                worst_ratio=noisy[worst],
            )
        )


def _require_same_computation(differences: dict[str, tuple[Fact, ...]], options: UpdateOptions) -> None:
    if differences and not options.allow_different:
        case_id, (difference, *_) = next(iter(differences.items()))
        name, before, now = (difference.values[key] for key in ("name", "baseline", "candidate"))
        raise MeasurementError(
            f"{case_id} computes other results than the stored baseline ({name} {before} → {now}); nothing was stored. "
            "If that is meant, use --allow-different"
        )
