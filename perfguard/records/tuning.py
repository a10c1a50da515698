"""What `perfguard tune` tries and finds: toggles, trials of settings in pairs, and the recipe that they add up to."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from perfguard.records.facts import Fact

TUNING_SCHEMA = 1

Setting = tuple[tuple[str, str], ...]
"""What differs from the reference: values by toggle, sorted; empty for the reference itself."""


class Purpose(str, Enum):
    """What a trial is for."""

    ADD = "add"  # Whether one more toggle is a gain
    PAIR = "pair"  # Whether two toggles are a gain together that were none alone
    KEEP = "keep"  # Whether a toggle is still a gain in the final recipe
    FINAL = "final"  # What the recipe gains over the reference; nothing is chosen by it


class TrialVerdict(str, Enum):
    """What a trial showed."""

    FASTER = "faster"  # The whole interval lies below zero
    SLOWER = "slower"  # The whole interval lies above zero
    OPEN = "open"  # The interval holds zero, or there is none
    DIFFERENT = "different"  # The numerics guard refused it: another loss, gradient norm or result
    IGNORED = "ignored"  # The setting does not apply: the script ignores it
    FAILED = "failed"  # It could not be measured


def verdict_of(lower: float | None, upper: float | None) -> TrialVerdict:
    """By the ends of the interval for the log-ratio; open where an end that would decide is unknown."""
    if upper is not None and upper < 0:
        return TrialVerdict.FASTER
    return TrialVerdict.SLOWER if lower is not None and lower > 0 else TrialVerdict.OPEN


class TuningOutcome(str, Enum):
    """How a tuning ended."""

    DONE = "done"  # Everything was tried, each long enough for an answer
    UNFINISHED = "unfinished"  # The budget or an unstable host left trials open; the same command continues
    FAILED = "failed"  # Not one trial of a setting that applies could be measured
    REFUSED = "refused"  # The recipe as a whole computes something else than the reference
    INTERRUPTED = "interrupted"  # The user ended it; what was measured is kept


class Toggle(Struct, frozen=True, kw_only=True):
    """One thing that can be set, with the values that are tried."""

    name: str  # `optimizer`, `allocator`
    reference: str  # The value of the reference
    values: tuple[str, ...]  # Other values, the most promising first


class Inapplicable(Struct, frozen=True, kw_only=True):
    """A toggle that is not tried."""

    name: str
    reason: Fact


class ToggleHint(Struct, frozen=True, kw_only=True):
    """A finding of the reference's profile that may name a toggle."""

    code: str  # `advice.unfused_optimizer`
    share: float | None  # Part of the step that it concerns; None where unknown


class Trial(Struct, frozen=True, kw_only=True):
    """Two settings to be compared in paired blocks."""

    purpose: Purpose
    before: Setting
    after: Setting


class TrialOutcome(Struct, frozen=True, kw_only=True):
    """What the paired run of a trial said."""

    verdict: TrialVerdict
    log_ratio: float | None = None  # after / before, log scale; negative is faster; None where nothing was estimated
    lower: float | None = None  # Of its 95 % interval, log scale
    upper: float | None = None
    blocks: int = 0  # Paired blocks behind it
    before_s: float | None = None  # Median seconds of an iteration
    after_s: float | None = None
    run_id: str | None = None  # The run's folder; None where none was made
    duration_s: float = 0.0  # Wall seconds of the run
    is_cut_short: bool = False  # Whether its seconds ended without an answer, before its blocks did
    is_kept: bool = True  # Whether it counts in a later start; not where the host was unstable or no worker started
    reasons: tuple[Fact, ...] = ()  # The gate's

    @property
    def is_no_gain(self) -> bool:
        """Whether a value that this trial was to confirm in the recipe goes; not where it ended without an answer."""
        return self.verdict in (TrialVerdict.SLOWER, TrialVerdict.OPEN) and self.is_answered

    @property
    def is_answered(self) -> bool:
        """Whether more time, or a calmer host, would not tell more."""
        if self.verdict is TrialVerdict.FAILED:
            return self.is_kept
        return self.verdict is not TrialVerdict.OPEN or (self.is_kept and not self.is_cut_short)


class TriedTrial(Struct, frozen=True, kw_only=True):
    """A trial with its outcome."""

    trial: Trial
    outcome: TrialOutcome
    budget_s: float  # Seconds that it was given
    is_reused: bool = False  # Whether an earlier start of the command had measured it


class TuningNow(Struct, frozen=True, kw_only=True):
    """A tuning as far as it has come."""

    target: str  # A case id, or a script
    changed_at: float  # When its journal was last written; seconds since 1970
    hints: tuple[ToggleHint, ...]
    trials: tuple[TriedTrial, ...]  # In order


class Tuning(Struct, frozen=True, kw_only=True):
    """The result of `perfguard tune`, as `--format json` shows it."""

    schema: int = TUNING_SCHEMA
    outcome: TuningOutcome
    exit_code: int
    target: str  # What was tuned: a case id, or a script
    is_script: bool  # Which of the two
    machine_id: str
    toggles: tuple[Toggle, ...]  # In the order in which they were tried
    inapplicable: tuple[Inapplicable, ...]
    hints: tuple[ToggleHint, ...]  # What the profile found, the worst first
    trials: tuple[TriedTrial, ...]  # In order; the last one may be the final one
    recipe: Setting  # What helped
    final: TrialOutcome | None  # The recipe against the reference; None where nothing helped or it was not measured
    candidate: str  # The recipe as an arm, `set:optimizer=fused`; empty where nothing helped
    environment: tuple[tuple[str, str], ...]  # Variables of the recipe: allocator and threads
    tuned: str  # The target with the recipe: a case id, or the script
    command: str  # Compares the reference with the recipe; empty where nothing helped
    budget_s: float
    duration_s: float  # Wall seconds of this start
    measured_s: float  # Wall seconds of the profile and all trials, whichever start measured them
    journal: str  # The file that keeps the trials
    page: str  # The HTML file beside it
