"""A run as somebody who watches it sees it: snapshots of its events so far, for the TUI and other readers."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from msgspec import Struct

from perfguard.records.events import Event
from perfguard.records.facts import Fact
from perfguard.records.run import Arm, Stage
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import Attribution, OpCountChange
from perfguard.records.task_results import CellResult, CellRun
from perfguard.records.tasks import TaskPlan
from perfguard.records.training import TrainedOn, TrainingEpoch, TrainingPlanned, TrainingUse

Level = Literal["info", "warning", "error"]  # How grave a line of the log is


class RunState(str, Enum):
    """Whether anything more is to be expected of a run."""

    WAITING = "waiting"  # Nothing to read yet
    PREPARING = "preparing"  # Arms are started and looked at; no block has begun
    MEASURING = "measuring"  # Blocks are being measured
    FINISHED = "finished"  # It said that it ended
    SILENT = "silent"  # No event for longer than its slowest block explains, and no writer: it probably died
    GONE = "gone"  # Its folder or its event file vanished


class CaseState(str, Enum):
    """Where a case stands in a run."""

    WAITING = "waiting"  # Not measured yet
    MEASURING = "measuring"  # Its samples are being timed now
    OPEN = "open"  # Measured, without an answer yet
    MEASURED = "measured"  # Measured in a run that compares nothing, and has ended
    ANSWERED = "answered"  # Has its answer, at a look or at the end
    FAILED = "failed"  # Cannot be measured any more


class CaseView(Struct, frozen=True, kw_only=True):
    """One row of the table of cases."""

    case_id: str
    name: str = ""  # The shortest name that is unique among the run's cases; empty for its id
    is_gating: bool  # Whether its regression fails the gate
    state: CaseState
    blocks: int  # Finished blocks (or rounds) that hold it and count
    voided: int = 0  # Further ones, which the arm-blind rule leaves out
    samples: int  # Timed samples of the arm that has fewer, warm-ups left out
    baseline_s: float | None = None  # Median seconds of an iteration; None before the first sample and with one arm
    candidate_s: float | None = None  # The same of the candidate, or of the only arm
    log_ratio: float | None = None  # Effect so far on the log scale, candidate over baseline; None before two blocks
    lower: float | None = None  # Lower end of its interval, log scale; provisional until the case is answered
    upper: float | None = None
    noise_ratio: float | None = None  # SD of the blocks' log-ratios (of the rounds' log medians where there is one arm)
    outcome: str | None = None  # Value of Outcome once it was said; None before
    reasons: tuple[Fact, ...] = ()  # Why it failed, or what the verdict rests on
    op_counts: tuple[OpCountChange, ...] | None = None  # What changed by op counts; None where it was not counted
    attribution: Attribution | None = None  # Culprits, where ops were compared
    findings: tuple[Finding, ...] = ()  # Advice on what the candidate does and the baseline does not, the worst first

    @property
    def title(self) -> str:
        """What it is called on a screen."""
        return self.name or self.case_id


class ArmView(Struct, frozen=True, kw_only=True):
    """One side of the run."""

    arm: Arm
    text: str  # As typed


class Progress(Struct, frozen=True, kw_only=True):
    """How far the run is."""

    stage: Stage  # What is measured now
    block: int | None  # Number of the present or last block, from 0; None before the first
    blocks_finished: int  # Finished blocks, all stages
    blocks_planned: int | None  # Blocks that the budget is expected to hold; None before the first one has ended
    case_id: str | None  # Case whose samples are timed now, as far as events tell
    sample_index: int | None  # Samples of that case timed in this block, both arms
    elapsed_s: float  # Since the run started, by the event clock; by the wall where the run is live
    budget_s: float
    left_s: float | None  # At most so many seconds are left; None where that is unknown or the run has ended


class LogLine(Struct, frozen=True, kw_only=True):
    """One line of the log; `perfguard.report.event_lines` has the words."""

    seq: int  # The event's number; -1 for what the reader itself has to say
    t_wall: float  # Seconds since the epoch
    level: Level
    what: Event | Fact  # What happened; a fact where it is the reader that has something to say


class TrainingView(Struct, frozen=True, kw_only=True):
    """A run of heterogeneous training."""

    planned: TrainingPlanned
    trained: TrainedOn | None  # None until all workers are ready
    epochs: tuple[TrainingEpoch, ...]
    uses: tuple[TrainingUse, ...]  # The latest ones, oldest first

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups of workers that train."""
        return tuple(dict.fromkeys(place.group for place in self.planned.workers))


class TaskView(Struct, frozen=True, kw_only=True):
    """A run of a task."""

    plan: TaskPlan
    runs: tuple[CellRun, ...]  # Measurements so far
    cells: tuple[CellResult, ...]  # What they say


class RunView(Struct, frozen=True, kw_only=True):
    """Everything that a screen shows of a run, except the curves of one case. Equal views need no repaint."""

    run_id: str | None  # Name of the run's folder; None before its first event
    state: RunState  # Whether more is to be expected
    mode: str = ""  # `paired` or `rounds`; empty before the first event
    suite: str = ""
    command: tuple[str, ...] = ()  # The command line that started it
    started_at: float | None = None  # Seconds since the epoch
    arms: tuple[ArmView, ...] = ()  # Baseline first
    is_identical: bool | None = None  # Whether both arms hash identical; None before it was found out
    progress: Progress | None = None  # How far it is; None before the first event
    cases: tuple[CaseView, ...] = ()  # In the order of the suite
    training: TrainingView | None = None  # Of a run that trains instead of measuring cases
    task: TaskView | None = None  # Of a run of a task, which has no cases either
    outcome: str | None = None  # Value of GateOutcome, `measured` or `interrupted`; None while it runs
    exit_code: int | None = None  # Exit code of the command; None while it runs
    reasons: tuple[Fact, ...] = ()  # What the run concluded
    notes: tuple[Fact, ...] = ()  # What the run's reader should know, in order
    problems: tuple[Fact, ...] = ()  # What is wrong with the recording: cut, corrupt, foreign, vanished
    log: tuple[LogLine, ...] = ()  # The latest lines, oldest first; at most a few thousand
    steal_ratio: float | None = None  # Stolen over wall time in the last block, worst measured CPU; None where unknown
    control_ratio: float | None = None  # Last control workload over the run's median, minus 1: how far the host is off


class CaseSeries(Struct, frozen=True, kw_only=True):
    """The curves of one case."""

    case_id: str
    baseline_s: tuple[float, ...] = ()  # Samples in the order of timing, seconds of an iteration, without warm-ups
    candidate_s: tuple[float, ...] = ()  # The same of the candidate, or of the only arm
    block_log_ratios: tuple[float, ...] = ()  # One for each finished block, candidate over baseline; empty for one arm
    blocks: tuple[int, ...] = ()  # The number of the block of each of them, from 0
    voided: frozenset[int] = frozenset()  # Those of them that the arm-blind rule leaves out of the effect
