"""Runs as the history keeps them, and series over them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from perfguard.records.facts import Fact
from perfguard.records.machine.fingerprint import Fingerprint


class MeasuredCode(Struct, frozen=True, kw_only=True):
    """What one arm of a run measured."""

    source_id: str | None = None  # Identity of the source tree
    stack_id: str | None = None  # Identity of the software below it
    commit: str | None = None  # Commit that the source tree is, or was made from; None where it is not known


class CaseRecord(Struct, frozen=True, kw_only=True):
    """One case in one run."""

    case_id: str
    median_s: float  # Median seconds of an iteration over the blocks, of the candidate or the only arm
    spread_ratio: float | None  # Standard deviation between the blocks' log medians; None with fewer than two
    blocks: int  # Blocks (or rounds) that it rests on
    outcome: str | None = None  # Value of Outcome; None where nothing was compared
    log_ratio: float | None = None  # Effect on the log scale, candidate over baseline
    lower: float | None = None  # Lower end of its interval
    upper: float | None = None


class RunRecord(Struct, frozen=True, kw_only=True):
    """One run: enough for every series, without its samples."""

    project: str  # What the runs of one repository have in common
    run_id: str  # Name of its folder
    started_at: float  # Seconds since the epoch
    mode: str  # As in the first event: `paired`, `rounds`, `profile`, `training` or `task`
    suite: str
    machine_id: str | None
    outcome: str | None  # How it ended; None where it was killed
    exit_code: int | None
    candidate: MeasuredCode = MeasuredCode()
    baseline: MeasuredCode | None = None  # None where one arm was measured
    events_bytes: int = 0  # Size of its event file when it was read
    problem: Fact | None = None  # Why it could not be read whole
    cases: tuple[CaseRecord, ...] = ()  # In the order of their ids


class RecordedSamples(Struct, frozen=True, kw_only=True):
    """The timed samples of one case in one run, seconds of an iteration, one list a block."""

    baseline_s: tuple[tuple[float, ...], ...] = ()  # Empty where one arm was measured
    candidate_s: tuple[tuple[float, ...], ...] = ()


class MeasuredRun(Struct, frozen=True, kw_only=True):
    """A run with everything that the history keeps of it."""

    record: RunRecord
    samples: Mapping[str, RecordedSamples] = field(default_factory=dict)  # By case id
    fingerprint: Fingerprint | None = None


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """One case in one recorded run, for a series over runs."""

    run_id: str  # Name of the run's folder
    t_wall: float  # When the run started, seconds since the epoch
    case_id: str
    median_s: float  # Median seconds of an iteration in the candidate, or the only arm
    spread_ratio: float | None  # Standard deviation between its blocks' log medians; None with fewer than two
    source_id: str | None  # Identity of the source tree that was measured
    machine_id: str | None
    stack_id: str | None
    outcome: str | None  # Value of Outcome where it was compared
    commit: str | None = None  # Commit that the source tree is, or was made from, where known
    blocks: int = 0  # Blocks that it rests on; 0 where that is not known

    @property
    def spread_s(self) -> tuple[float, ...]:
        """The median less and plus its spread; empty where that is unknown."""
        if self.spread_ratio is None or not math.isfinite(self.spread_ratio):
            return ()
        return self.median_s * (1 - self.spread_ratio), self.median_s * (1 + self.spread_ratio)


class History(Struct, frozen=True, kw_only=True):
    """Series over the recorded runs."""

    points: tuple[HistoryPoint, ...] = ()  # Sorted by time, then by case
    baselines_s: dict[str, float] = field(default_factory=dict)  # Stored medians of `machine_id`, by case id
    machine_id: str | None = None  # The machine that the stored baselines are of; None where that is not known
    problems: Mapping[str, Fact] = field(default_factory=dict)  # Why recordings of runs could not be read, by run


class LoggedRun(Struct, frozen=True, kw_only=True):
    """A row of the log of runs."""

    row: int  # Its number in the database
    run: RunRecord  # Without its cases
    cases: int  # How many it measured


class CaseBetweenRevisions(Struct, frozen=True, kw_only=True):
    """A case at two revisions, on one machine with one software stack."""

    case_id: str
    machine_id: str | None
    stack_id: str | None
    before_s: float  # Typical seconds of an iteration at the first revision; by the effect where only pairs know it
    after_s: float  # The same at the second one
    before_runs: int
    after_runs: int
    paired_runs: int  # Runs that measured both in turns; where there are any, the effect is theirs alone
    log_ratio: float  # Second revision over the first
    lower: float | None  # 95 % interval; None where a revision has a single run
    upper: float | None


class CaseOverMachines(Struct, frozen=True, kw_only=True):
    """A case between two revisions over the machines that have an interval for it."""

    case_id: str
    machines: tuple[str, ...]
    log_ratio: float  # Mean over machines like these
    lower: float  # 95 % interval of that mean
    upper: float
    between_sd: float  # Standard deviation of the machines' own effects
    p_alike: float  # Of differences as large as these between machines that do not differ
    slower_on: tuple[str, ...]  # Machines whose own interval is above zero

    @property
    def differ(self) -> bool:
        """Whether the machines do not agree."""
        return self.p_alike < 0.01


class ComparedRevisions(Struct, frozen=True, kw_only=True):
    """Two revisions by what is recorded of them."""

    cases: tuple[CaseBetweenRevisions, ...]  # The largest slowdown first
    over_machines: tuple[CaseOverMachines, ...]  # Cases that several machines measured, likewise


class DatabaseStatus(Struct, frozen=True, kw_only=True):
    """What a database holds."""

    name: str
    revision: str | None  # Version of its tables
    size_bytes: int
    projects: int
    runs: int
    corrected_runs: int  # Rows that a later one corrects
    series: int
    values: int
    samples: int  # Cases of runs that have their samples


class TokenScope(str, Enum):
    """What a token allows."""

    READ = "read"
    INGEST = "ingest"  # Adding runs


class Token(Struct, frozen=True, kw_only=True):
    """What is known of a token; its text is not kept."""

    id: int
    name: str  # Who has it
    scope: TokenScope
    project: str | None  # None for all
    created_at: float
    revoked_at: float | None
