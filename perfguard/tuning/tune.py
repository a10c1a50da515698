"""`tune`: measure what the search asks for, within the budget; every outcome is kept before the next trial begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from perfguard.errors import ExitCode, InterruptedRunError
from perfguard.profile.advice.gains import expected_gains
from perfguard.profile.advice.toggles import ANSWERS
from perfguard.records.tuning import (
    Inapplicable,
    Purpose,
    Setting,
    Toggle,
    ToggleHint,
    Trial,
    TrialOutcome,
    TrialVerdict,
    TriedTrial,
    Tuning,
    TuningOutcome,
)
from perfguard.tuning.journal import Journal
from perfguard.tuning.search import SearchResult, by_promise, search

FINAL_SHARE = 0.2
"""Part of the budget that is left to the final trial. Of the rest, another trial gets half, or as much as the final one
if that is more: one whose set-up takes long must not take all of it."""

_EXIT_CODES = {
    TuningOutcome.DONE: ExitCode.PASS,
    TuningOutcome.UNFINISHED: ExitCode.INCONCLUSIVE,
    TuningOutcome.FAILED: ExitCode.INFRASTRUCTURE,
    TuningOutcome.REFUSED: ExitCode.INCONCLUSIVE,
    TuningOutcome.INTERRUPTED: ExitCode.INTERRUPTED,
}


class TuningTarget(Protocol):
    """What is tuned: a case, or a script."""

    @property
    def name(self) -> str:
        """How it is called: a case id, or a script."""

    @property
    def benchmark(self) -> str:
        """Whose measured gains are the nearest; empty for a script."""

    @property
    def machine_id(self) -> str:
        """Whose times these are."""

    @property
    def toggles(self) -> Sequence[Toggle]:
        """What can be set."""

    @property
    def inapplicable(self) -> Sequence[Inapplicable]:
        """What can be set elsewhere, and why not here."""

    def profile(self) -> Sequence[ToggleHint]:
        """What a profile of the reference finds, the worst first; nothing where it cannot be profiled.

        Raises:
            InterruptedRunError: The user ended it.
        """

    def measure(self, trial: Trial, budget_s: float) -> TrialOutcome:
        """Compare two settings in a paired run of its own.

        Raises:
            InterruptedRunError: The user ended it.
            PerfguardError: The reference cannot be measured, or the host cannot be measured on.
        """

    def candidate(self, setting: Setting) -> str:
        """A setting as it is typed."""

    def tuned(self, setting: Setting) -> str:
        """The target with a setting, as it is called."""

    def variables(self, setting: Setting) -> Mapping[str, str]:
        """The environment variables of a setting."""

    def command(self, setting: Setting) -> str:
        """What compares the reference with a setting."""


def tune(
    target: TuningTarget,
    journal: Journal,
    budget_s: float,
    *,
    on_trial: Callable[[TriedTrial], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Tuning:
    """Find the settings that make the target faster, in about so many seconds; `on_trial` sees each trial at once.

    Trials of the journal take no time. The final trial is always measured, where something helped.

    Raises:
        PerfguardError: The reference cannot be measured, the host cannot be measured on, or the journal not be written;
            what was measured is kept.
    """
    work = _Work(target=target, journal=journal, budget_s=budget_s, on_trial=on_trial, clock=clock)
    outcome, found, toggles = TuningOutcome.INTERRUPTED, None, tuple(target.toggles)
    try:
        if journal.hints is None:
            hints = target.profile()
            journal.keep_hints(hints, clock() - work.started)
        toggles = by_promise(toggles, journal.hints or (), ANSWERS, expected_gains(target.benchmark))
        found = work.run(toggles)
        outcome = _outcome(found, work.tried)
    except (InterruptedRunError, KeyboardInterrupt):
        pass
    recipe = found.recipe if found is not None else work.recipe
    return Tuning(
        outcome=outcome,
        exit_code=int(_EXIT_CODES[outcome]),
        target=target.name,
        is_script=not target.benchmark,
        machine_id=target.machine_id,
        toggles=toggles,
        inapplicable=tuple(target.inapplicable),
        hints=journal.hints or (),
        trials=tuple(work.tried),
        recipe=recipe,
        final=found.final if found is not None else None,
        candidate=target.candidate(recipe) if recipe else "",
        environment=tuple(sorted(target.variables(recipe).items())),
        tuned=target.tuned(recipe),
        command=target.command(recipe) if recipe else "",
        budget_s=budget_s,
        duration_s=clock() - work.started,
        measured_s=journal.profile_s + sum(tried.outcome.duration_s for tried in work.tried),
        journal=str(journal.path),
        page=str(journal.path.with_suffix(".html")),
    )


def _outcome(found: SearchResult, tried: Sequence[TriedTrial]) -> TuningOutcome:
    outcomes = [each.outcome for each in tried]
    verdicts = {outcome.verdict for outcome in outcomes}
    if TrialVerdict.FAILED in verdicts and verdicts <= {TrialVerdict.FAILED, TrialVerdict.IGNORED}:
        return TuningOutcome.FAILED
    if found.final is not None and found.final.verdict is TrialVerdict.DIFFERENT:
        return TuningOutcome.REFUSED
    is_finished = found.is_complete and all(outcome.is_answered for outcome in outcomes)
    if found.recipe and (found.final is None or found.final.verdict is TrialVerdict.FAILED):
        is_finished = False
    return TuningOutcome.DONE if is_finished else TuningOutcome.UNFINISHED


class _Work(Struct, kw_only=True):
    target: TuningTarget
    journal: Journal
    budget_s: float
    on_trial: Callable[[TriedTrial], None]
    clock: Callable[[], float]
    tried: list[TriedTrial] = field(default_factory=list)
    recipe: Setting = ()  # Once the search has ended and its final trial begins
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = self.clock()

    def run(self, toggles: Sequence[Toggle]) -> SearchResult:
        steering, outcome = search(toggles), None
        try:
            trial = next(steering)
            while True:
                outcome = self._outcome(trial)
                trial = steering.send(outcome)
        except StopIteration as end:
            found: SearchResult = end.value
            return found

    def _outcome(self, trial: Trial) -> TrialOutcome | None:
        """The outcome of a trial, kept or measured; None where there is no time."""
        final_s = FINAL_SHARE * self.budget_s
        left_s = self.budget_s - (self.clock() - self.started)
        others_s = left_s - final_s
        is_final = trial.purpose is Purpose.FINAL
        if is_final:
            self.recipe = trial.after
        offered_s = max(left_s, final_s) if is_final else min(others_s, max(final_s, others_s / 2))
        known = self.journal.known(trial, offered_s)
        if known is None and offered_s <= self._typical_s():
            return None
        tried = replace(known, is_reused=True) if known is not None else self._measured(trial, offered_s)
        self.tried.append(tried)
        self.on_trial(tried)
        return tried.outcome

    def _measured(self, trial: Trial, budget_s: float) -> TriedTrial:
        outcome = self.target.measure(trial, budget_s)
        tried = TriedTrial(trial=trial, outcome=outcome, budget_s=budget_s)
        if outcome.is_kept:
            self.journal.keep(tried)
        return tried

    def _typical_s(self) -> float:
        """Below this a trial most likely does not come to its answer; 0 before the first one."""
        durations_s = [tried.outcome.duration_s for tried in self.tried]
        return min(median(durations_s or [0.0]), FINAL_SHARE * self.budget_s / 2)
