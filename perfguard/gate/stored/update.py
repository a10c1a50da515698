"""`baseline update`: independent rounds, what must hold before they are stored, and how they differ from others."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perfguard import __version__
from perfguard.errors import HostUnfitError, MeasurementError, StoreError, UsageError
from perfguard.gate.calibration.machine_rates import utc_now
from perfguard.gate.paired.explain import count_candidate
from perfguard.gate.paired.judging import policy_of
from perfguard.gate.paired.results import describe_rounds, finish, measured_cases
from perfguard.gate.rules.rulings import different_results, paired_with_stored
from perfguard.gate.stored.lookup import CountedBaseline, find_stored, folder_of_baselines, store_of
from perfguard.gate.stored.rounds import measurable_cases, measure_rounds, with_seed_of
from perfguard.profile.changes.op_counts import comparable, compare_op_counts
from perfguard.records.calibration import TIME_FORMAT
from perfguard.records.estimate import Interval
from perfguard.records.facts import Severity, Subject, fact
from perfguard.records.machine.fingerprint import CheckStatus
from perfguard.records.plan import ArmSpec, Plan
from perfguard.records.record import BASELINE_SCHEMA, BaselineInfo, CaseNoise, StoredBaseline
from perfguard.records.result import RunResult
from perfguard.records.run import Round
from perfguard.records.steps.ops import OpCountChange
from perfguard.runner.arms import git
from perfguard.runner.doctor import check_host
from perfguard.runner.session import Request, Session, open_session
from perfguard.stats.rounds import estimate_rounds
from perfguard.store.baselines import metadata_of
from perfguard.store.op_counts import load_op_counts, op_counts_file, save_op_counts
from perfguard.store.pyperf_files import read_suite

MIN_ROUNDS = 4  # Fewer rounds say too little about the spread between them
LEVEL = 0.95  # Of the interval of a difference between two baselines

_PUBLIC = ("inner_loops", "loops", "name", "unit", "python_version", "python_implementation", "timer")
"""What is kept of pyperf's metadata: nothing that names a host."""


class UpdateOptions(Struct, frozen=True, kw_only=True):
    """What `baseline update` may overlook."""

    rounds: int
    spread_s: float  # Least seconds from the first to the last
    allow_dirty: bool = False
    allow_unfit: bool = False  # Record although doctor finds the host unfit
    allow_few: bool = False
    allow_different: bool = False
    """Record although a case does not compute what it did in the baseline that is replaced."""


class CaseChange(Struct, frozen=True, kw_only=True):
    """One case before and after a baseline update, or in two baselines."""

    case_id: str
    before: CaseNoise | None
    after: CaseNoise | None
    interval: Interval | None = None
    """Of the log-ratio of the times, for all that the machine's speed did in between; None where a side has too few
    rounds."""
    op_changes: tuple[OpCountChange, ...] | None = None
    """What changed in what its step executes, worst first; None where a side was not counted, or on a machine whose
    libraries choose other kernels."""

    @property
    def is_within_noise(self) -> bool:
        """Whether the rounds do not show that the times differ."""
        return self.interval is not None and self.interval.lower <= 0 <= self.interval.upper


def update_baseline(
    request: Request, options: UpdateOptions, confirm: Callable[[tuple[CaseChange, ...]], bool]
) -> tuple[RunResult, Path | None]:
    """Measure independent rounds and store them as the baseline of this machine.

    `confirm` sees the changes; False leaves the stored baseline as it was.

    Returns:
        The result, and where it was stored; None where nothing was.

    Raises:
        UsageError: The tree is dirty or there are too few rounds, and the options do not allow it.
        HostUnfitError: The host is unfit, and the options do not allow it.
        MeasurementError: A case failed, so the baseline would have a hole; or it computes something else than in the
            baseline that is replaced, and the options do not allow it.
    """
    state = _require_traceable(request, options)
    previous = _previous(request)
    if previous is not None:
        request = with_seed_of(previous.baseline, request)  # the same data, so that what is computed can be compared
    # Waiting between the rounds is not measuring: the suite's budget is for the rounds alone.
    request = replace(request, budget_s=request.budget_s + options.spread_s)
    with open_session(request, mode="rounds") as session:
        if not options.allow_unfit:
            _require_fit(session)
        arm = ArmSpec(text="dir:.")
        starter, plan = measure_rounds(session, arm, rounds=options.rounds, spread_s=options.spread_s)
        op_counts = {} if session.interrupts.asked else count_candidate(session, starter, measurable_cases(session))
        checks = paired_with_stored(previous.baseline.rounds if previous else {}, session.data.rounds())
        different = different_results(checks)
        for case_id, found in different.items():
            for difference in found:
                session.note(dataclasses.replace(difference, subject=Subject(case_id=case_id)))
        _note_noise(session)
        result = finish(session, None, measured=measured_cases(session))
        if session.interrupts.asked:
            return result, None
        _require_complete(session, options)
        if different and not options.allow_different:
            case_id, (difference, *_) = next(iter(different.items()))
            name, before, now = (difference.values[key] for key in ("name", "baseline", "candidate"))
            raise MeasurementError(
                f"{case_id} computes other results than the stored baseline ({name} {before} → {now}); nothing was "
                "stored. If that is meant, use --allow-different"
            )
        baseline = _baseline_of(session, state, plan)
        changes = changes_between(previous, CountedBaseline(baseline=baseline, op_counts=op_counts))
        if not confirm(changes):
            return result, None
        place = store_of(request.loaded).save(baseline, _public_runs(session))
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


def _require_traceable(request: Request, options: UpdateOptions) -> git.TreeState:
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
    return state


def _require_fit(session: Session) -> None:
    """Judge the host once it is this run's alone."""
    checks = check_host(session.request.loaded, session.fingerprint)
    if what := ", ".join(check.id for check in checks if check.status is CheckStatus.FAIL):
        raise HostUnfitError(
            f"this host is unfit for a baseline ({what}); see `perfguard doctor`, or use --allow-unfit"
        )


def _require_complete(session: Session, options: UpdateOptions) -> None:
    if failure := next((failure for failure in session.data.failures.values() if not failure.skipped), None):
        raise MeasurementError(
            f"{failure.case_id} failed ({failure.quoted}); no baseline was stored. Fix it, or select other cases"
        )
    few = [case_id for case_id, found in _rounds_of(session).items() if len(found) < min(MIN_ROUNDS, options.rounds)]
    if few and not options.allow_few:
        raise MeasurementError(
            f"the budget of {session.request.budget_s:.0f} s ended before {MIN_ROUNDS} rounds of {few[0]} were "
            "measured; raise --budget, or use --allow-few"
        )


def _note_noise(session: Session) -> None:
    """Note rounds that vary more than a gate tolerates: the baseline can be stored, but it will decide little."""
    limit = policy_of(session.request.loaded.config).max_block_sd_ratio
    measured = measured_cases(session)
    noisy = {m.case_id: m.between_sd_ratio for m in measured if (m.between_sd_ratio or 0.0) > limit}
    if noisy:
        worst = max(noisy, key=lambda case_id: noisy[case_id] or 0.0)
        values = {"noisy": len(noisy), "cases": len(measured), "limit_ratio": limit, "worst_ratio": noisy[worst]}
        session.note(fact("baseline.noisy", values, severity=Severity.NOTABLE, case_id=worst))


def changes_between(before: CountedBaseline | None, after: CountedBaseline | None) -> tuple[CaseChange, ...]:
    """Each case of either baseline, with both: times, as far as rounds can say, and what the steps execute."""
    old = before.baseline.noise if before else {}
    new = after.baseline.noise if after else {}
    changes = []
    for case_id in sorted(old.keys() | new.keys()):
        interval, op_changes = None, None
        if before and after:
            interval = _interval(*(side.baseline.rounds.get(case_id, ()) for side in (before, after)))
            counts, counts_now = before.op_counts.get(case_id), after.op_counts.get(case_id)
            if counts is not None and counts_now is not None and comparable(counts, counts_now) is None:
                op_changes = compare_op_counts(counts, counts_now)
        sides = {"before": old.get(case_id), "after": new.get(case_id)}
        changes.append(CaseChange(case_id=case_id, **sides, interval=interval, op_changes=op_changes))
    return tuple(changes)


def _interval(old: Sequence[Round], new: Sequence[Round]) -> Interval | None:
    try:
        interval = estimate_rounds(old, new, margin_ratio=0.0, level=LEVEL).estimate.interval
    except MeasurementError:
        return None
    return interval if math.isfinite(interval.lower) and math.isfinite(interval.upper) else None


def _baseline_of(session: Session, state: git.TreeState, plan: Plan) -> StoredBaseline:
    """The baseline that a run of one arm has measured, with its provenance."""
    rounds = _rounds_of(session)
    starts = [entry.started_at for found in rounds.values() for entry in found] or [time.time()]
    return StoredBaseline(
        info=BaselineInfo(
            schema=BASELINE_SCHEMA,
            suite=session.request.suite,
            machine_id=session.fingerprint.machine_id,
            stack_id=session.fingerprint.stack_id,
            created_at=utc_now().strftime(TIME_FORMAT),
            commit=state.commit,
            source_id=state.source_id,
            perfguard=__version__,
            cpus=len(session.selection.cpus),
            env_profile=session.settings.env_profile.value,
            sample_s=plan.settings.sample_s,
            samples=plan.settings.samples,
            span_s=max(starts) - min(starts),
            seed=session.settings.seed,
            code_id=_code_id(session, state),
        ),
        fingerprint=session.fingerprint,
        noise={case_id: _noise(session, case_id) for case_id in rounds},
        rounds=rounds,
    )


def _rounds_of(session: Session) -> dict[str, tuple[Round, ...]]:
    """The rounds of each case that its own suite does not skip."""
    failures = session.data.failures
    skipped = {case_id for case_id, failure in failures.items() if failure.skipped}
    return {case_id: found for case_id, found in session.data.rounds().items() if case_id not in skipped}


def _code_id(session: Session, state: git.TreeState) -> str | None:
    loaded = session.request.loaded
    repository = git.top_level(loaded.project)
    folder = folder_of_baselines(loaded, repository) if repository else None
    if repository is None or folder is None or state.commit is None or state.dirty:
        return None
    return git.code_id(repository, state.commit, without=folder)


def _noise(session: Session, case_id: str) -> CaseNoise:
    loops = session.data.inner_loops.get(case_id, 1)
    measured = describe_rounds(case_id, session.data.rounds()[case_id], inner_loops=loops, problem=None)
    return CaseNoise(
        rounds=measured.rounds,
        median_s=measured.median_s or 0.0,
        between_round_sd_ratio=measured.between_sd_ratio or 0.0,
        within_round_sd_ratio=measured.within_sd_ratio or 0.0,
        inner_loops=loops,
    )


def _public_runs(session: Session) -> dict[str, list[Any]]:
    """The rounds as pyperf runs: what each process wrote, and what only the parent knows."""
    import pyperf

    metadata: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(StoreError):  # it adds facts about the interpreter; the values are in the events
        suite = read_suite(session.folder.path / "candidate.json")
        metadata = {found.get_name(): found.get_runs()[0].get_metadata() for found in suite.get_benchmarks()}
    runs: dict[str, list[Any]] = {}
    for case_id, rounds in _rounds_of(session).items():
        shared = {key: value for key, value in metadata.get(case_id, {}).items() if key in _PUBLIC}
        known = [{**shared, "name": case_id, **metadata_of(entry)} for entry in rounds]
        runs[case_id] = [
            pyperf.Run(list(entry.values_s), metadata=each, collect_metadata=False)
            for entry, each in zip(rounds, known, strict=True)
        ]
    return runs
