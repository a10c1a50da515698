"""What runs of tasks came to: measurements, what they say of each cell, packages."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from perfguard.records.facts import Fact
from perfguard.records.tasks import ComplianceTest, Mode, Scenario, TaskCell, TaskPlan


class TaskLoaded(Struct, frozen=True, kw_only=True):
    """A model is ready to answer."""

    parameters: int
    model_sha256: str  # Of architecture and weights
    data_sha256: str
    code_sha256: str  # Of perfguard's code that measures, and of the user's that makes the model
    has_real_weights: bool
    ran_in: str  # Precision that really runs, as the framework says
    version: str  # Of the framework
    snr_db: float | None  # Signal over noise against PyTorch in FP32; None: equal to the last bit, or a training
    stages: Mapping[str, float]  # Seconds of export, compilation, quantization; by name
    cached: tuple[str, ...]  # Stages whose result was there already


class MeasuredSpeed(Struct, frozen=True, kw_only=True):
    """What a measurement in performance mode came to."""

    queries: int  # Offline: samples
    is_valid: bool  # As LoadGen says
    score_s: float | None  # Seconds: LoadGen's early-stopping estimate of the 90th percentile; None offline, or too few
    p90_s: float | None  # Seconds; None offline
    samples_per_s: float | None  # Offline and server
    own_score_s: float | None  # The same from perfguard's own time stamps
    own_p90_s: float | None
    duration_s: float  # Of the measurement
    wall_per_cpu: float | None  # Wall over CPU time of a query with one thread; None with more
    waited_share: float  # Part of the time that a thread was ready and had no CPU
    invalid_because: tuple[str, ...] = ()  # LoadGen's own lines
    mean_s: float | None = None  # Seconds of a query
    is_confirmed: bool = True  # Whether perfguard's time stamps say the same; of single-stream alone


class MeasuredQuality(Struct, frozen=True, kw_only=True):
    """What a measurement in accuracy mode came to."""

    value: float  # Of the task's metric
    examples: int
    answers_sha256: str  # Of all answers, by example
    is_as_in_speed: bool = True  # Whether the answers that were kept of measurements of speed are the same


class QualityAfter(Struct, frozen=True, kw_only=True):
    """The quality after an epoch."""

    wall_s: float  # Since training began
    cpu_s: float
    quality: float


class MeasuredTraining(Struct, frozen=True, kw_only=True):
    """A training from new weights until the quality reaches its target, or the time is over."""

    seed: int
    is_reached: bool
    epochs: tuple[QualityAfter, ...]  # At least one; evaluations are part of the times
    examples: int  # Trained on

    @property
    def last(self) -> QualityAfter:
        """What it came to."""
        return self.epochs[-1]


class CellRun(Struct, frozen=True, kw_only=True):
    """One measurement of a cell in one mode, by a process of its own."""

    cell: TaskCell
    scenario: Scenario
    mode: Mode
    round: int  # From 0
    logs: str  # Folder of its logs, relative to the package; of a training, to the run's `logs`
    began_at: float  # Seconds since 1970
    ended_at: float
    loaded: TaskLoaded | None = None  # None where nothing could be loaded
    speed: MeasuredSpeed | None = None
    quality: MeasuredQuality | None = None
    training: MeasuredTraining | None = None
    problem: Fact | None = None  # Why there is nothing
    test: ComplianceTest | None = None  # What else was tested


class CellOutcome(str, Enum):
    """What a cell's measurements say, the best first."""

    VALID = "valid"  # LoadGen's rules are kept, and the quality reaches its target
    SPEED_ONLY = "speed only"  # LoadGen's rules are kept; with seeded weights there is no quality
    INVALID = "invalid"  # The quality misses its target, another precision ran, or a rule is broken
    REFUSED = "refused"  # The backend cannot run the model so
    FAILED = "failed"  # It crashed, hung or raised
    UNMEASURED = "unmeasured"  # The run ended before


class Interval95(Struct, frozen=True, kw_only=True):
    """A ratio with its 95 % interval."""

    ratio: float
    lower: float
    upper: float


class CellResult(Struct, frozen=True, kw_only=True):
    """What is known of a cell."""

    cell: TaskCell
    outcome: CellOutcome
    reasons: tuple[Fact, ...]  # Why it is not valid; also what the reader should know of a valid one
    score: float | None = None  # Median over rounds: seconds, or samples per second offline
    rounds: int = 0  # Measured
    quality: float | None = None  # Of a training: the lowest of all seeds
    trainings: tuple[MeasuredTraining, ...] = ()
    loaded: TaskLoaded | None = None
    over_reference: Interval95 | None = None  # Time of a query over that of the first cell; None of itself


class TaskResult(Struct, frozen=True, kw_only=True):
    """A run of a task; `task.json` of its folder."""

    run_id: str
    machine_id: str
    machine: str  # One line
    plan: TaskPlan
    cells: tuple[CellResult, ...]
    recommended: str | None  # Id of the fastest cell that is valid
    is_resolved: bool  # Whether it is faster than every other valid cell beyond doubt
    notes: tuple[Fact, ...]
    exit_code: int


class Package(Struct, frozen=True, kw_only=True):
    """A run of a task that others can check and run again; `package.json`."""

    plan: TaskPlan
    runs: tuple[CellRun, ...]
    cells: tuple[CellResult, ...]  # What is claimed
    machine_id: str
    commit: str | None  # Of the project; None outside git
    is_dirty: bool  # Whether something in the project was changed and not committed
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of all other files, by path


class TaskData(Struct):
    """What is known of a run of a task so far."""

    plan: TaskPlan
    runs: list[CellRun] = field(default_factory=list)
