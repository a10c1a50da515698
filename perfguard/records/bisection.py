"""What a bisection over revisions found, and what it keeps for the next one."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from perfguard.records.facts import Fact

BISECTION_SCHEMA = 2


class Answer(str, Enum):
    """What a commit is, compared with the good one; the values are those of `git bisect`."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"  # There is no answer


class BisectionOutcome(str, Enum):
    """How a bisection ended."""

    FOUND = "found"  # One commit is named
    UNDECIDED = "undecided"  # Skipped commits are left among the suspects
    ELSEWHERE = "elsewhere"  # No commit that touches the paths is bad: the last of them is good
    NO_REGRESSION = "no-regression"  # The bad revision is not slower than the good one
    INCONCLUSIVE = "inconclusive"  # Whether the bad revision is slower is unknown
    FAILED = "failed"  # The two revisions could not be compared
    INTERRUPTED = "interrupted"  # The user ended it; what was measured is kept


class Commit(Struct, frozen=True, kw_only=True):
    """A commit, as git shows it."""

    id: str
    tree: str  # Git's id of its tree; equal for equal sources
    parents: tuple[str, ...]  # Ids of its parents; where paths limit the history, the nearest ancestors that touch them
    author: str
    authored_at: str  # Author date, ISO 8601
    subject: str  # First line of its message

    @property
    def short_id(self) -> str:
        """The id as people write it."""
        return self.id[:10]


class CaseEffect(Struct, frozen=True, kw_only=True):
    """One case of the good commit against another tree."""

    case_id: str
    outcome: str
    log_ratio: float | None  # Effect, log scale; None where nothing was estimated
    lower: float | None  # Lower bound of its interval, log scale; None where unknown
    upper: float | None
    blocks: int  # Paired blocks behind it
    reasons: tuple[Fact, ...] = ()
    cause: Fact | None = None  # The first culprit of a regressed case: what changed, at which line


class MeasuredTree(Struct, frozen=True, kw_only=True):
    """What the gate of the good commit against a tree said."""

    tree: str
    answer: Answer  # What follows for the search
    gate: str  # Outcome of the gate, or `error` where it could not be made
    reasons: tuple[Fact, ...]  # Of the gate, or why there is none
    cases: tuple[CaseEffect, ...] = ()  # In the order of the selection
    run_id: str | None = None  # The run's folder; None where nothing was measured
    duration_s: float = 0.0


class BisectionLog(Struct, frozen=True, kw_only=True):
    """What a bisection keeps, so that it can be continued: `.perfguard/bisect/<key>.json`."""

    schema: int = BISECTION_SCHEMA
    settings: dict[str, str]  # What the answers depend on, as JSON by name: ends, cases, machine, software, settings
    trees: dict[str, MeasuredTree] = field(default_factory=dict)  # Answers by tree


class BisectionStep(Struct, frozen=True, kw_only=True):
    """A commit that the search asked for."""

    commit: Commit
    measured: MeasuredTree  # What its tree is
    is_reused: bool  # Whether nothing had to be measured for it


class Bisection(Struct, frozen=True, kw_only=True):
    """The result of `perfguard bisect`, as `--format json` shows it."""

    schema: int = BISECTION_SCHEMA
    outcome: BisectionOutcome
    exit_code: int
    cases: tuple[str, ...]  # Cases that were asked for
    good: Commit
    bad: Commit
    commits: int  # Commits after the good one, up to the bad one, that may be the first bad one
    total: MeasuredTree | None = None  # The good revision against the bad one; None where the run ended before
    good_within_ratio: float | None = None  # A commit is good once each case is slower by less; None without a search
    steps: tuple[BisectionStep, ...] = ()  # Commits that were asked for, in order
    culprit: Commit | None = None  # The first bad commit, where one can be named
    effects: tuple[CaseEffect, ...] = ()  # The culprit against the good revision
    unexplained: tuple[Fact, ...] = ()  # What of the total the culprit does not explain, for each such case
    suspects: tuple[Commit, ...] = ()  # Commits one of which is the first bad one, oldest first
    gates: int = 0  # Gates that were measured now; all others were known
    log: str | None = None  # The file that keeps the answers
