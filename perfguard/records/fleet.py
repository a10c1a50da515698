"""Work that many machines share: submissions, their shards, hosts, schedules."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from perfguard.records.facts import Fact
from perfguard.records.history import MeasuredRun


class Engine(str, Enum):
    """What brings a shard to a host."""

    QUEUE = "queue"  # Workers that ask PostgreSQL
    SLURM = "slurm"  # Batch jobs, whose results are files


class ShardState(str, Enum):
    """What became of a shard."""

    WAITING = "waiting"  # For a host
    RUNNING = "running"
    DONE = "done"  # Its result was accepted
    FAILED = "failed"  # No attempt gave a result
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes."""
        return self not in (ShardState.WAITING, ShardState.RUNNING)


class Fitness(str, Enum):
    """Whether a host gets shards."""

    FIT = "fit"
    UNFIT = "unfit"  # Its canary drifted
    DRAINED = "drained"  # Somebody took it out


class Acceptance(str, Enum):
    """What became of an attempt's result."""

    ACCEPTED = "accepted"
    KNOWN = "known"  # It was accepted before
    REFUSED = "refused"  # Another attempt took its place, or nobody wants it any more


class GateWork(Struct, frozen=True, kw_only=True):
    """One gate to be run on other machines."""

    project: str
    repository: str  # URL or path that every host can clone
    folder: str  # The project's folder in the repository; empty at its top
    baseline: str  # Commit
    candidate: str  # Commit
    suite: str
    budget_s: float
    arguments: tuple[str, ...] = ()  # More options of `perfguard gate`
    shared_folder: str = ""  # Where batch jobs leave their results; empty for the queue


class Submission(Struct, frozen=True, kw_only=True):
    """Work and the shards that it was split into."""

    id: int
    work: GateWork
    engine: Engine
    author: str
    submitted_at: float  # Seconds since the epoch, by the database's clock


class Shard(Struct, frozen=True, kw_only=True):
    """Cases of a submission that one host measures, both arms in turns."""

    id: int
    submission_id: int
    machine_class: str  # Which hosts may take it
    patterns: tuple[str, ...]  # Cases; empty for the whole suite
    state: ShardState
    attempt: int  # How often a host took it
    host: str | None  # Of the latest attempt
    lease_until: float | None  # When another host may take it
    changed_at: float
    exit_code: int | None = None  # Of its gate
    run_id: str | None = None
    outcome: str | None = None  # Of its run: `regressed`, `different`
    problem: Fact | None = None  # Why the latest attempt gave no result


class Attempt(Struct, frozen=True, kw_only=True):
    """The right to deliver the result of a shard; the next attempt takes it away."""

    shard_id: int
    number: int
    token: str
    lease_s: float  # How long it lasts, seconds
    machine_class: str
    work: GateWork
    patterns: tuple[str, ...]


class Delivery(Struct, frozen=True, kw_only=True):
    """What an attempt gave: a run, or a problem."""

    shard_id: int
    attempt: int
    token: str
    host: str
    exit_code: int | None = None
    measured: MeasuredRun | None = None
    problem: Fact | None = None
    is_final: bool = False  # Whether another attempt would fail alike
    is_hosts: bool = False  # Whether the host failed: then the attempt does not count, and the host is unfit
    canary_s: float | None = None  # Of the host, just before; None where it was recorded by itself


class Host(Struct, frozen=True, kw_only=True):
    """A machine that measures."""

    name: str
    machine_id: str
    classes: tuple[str, ...]  # Whose shards it takes
    version: str  # Of perfguard
    seen_at: float
    fitness: Fitness = Fitness.FIT
    reason: Fact | None = None  # Why it is not fit
    shard_id: int | None = None  # What it measures now


class Schedule(Struct, frozen=True, kw_only=True):
    """Work that is submitted again and again, whenever its branch has moved."""

    project: str
    name: str
    cron: str
    branch: str  # What is measured, against the commit that was measured before
    engine: Engine
    work: GateWork  # Its commits are those of the latest submission
    machine_classes: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]  # Cases of each shard; one empty group is the whole suite in one shard
    due_at: float


class FleetStatus(Struct, frozen=True, kw_only=True):
    """Submissions with their shards."""

    submissions: tuple[Submission, ...] = ()  # The newest first
    shards: tuple[Shard, ...] = ()

    def shards_of(self, submission_id: int) -> tuple[Shard, ...]:
        """The shards of one of them."""
        return tuple(shard for shard in self.shards if shard.submission_id == submission_id)


class FleetNow(Struct, frozen=True, kw_only=True):
    """Hosts, and the newest submissions."""

    hosts: tuple[Host, ...] = ()
    status: FleetStatus = FleetStatus()
