"""What happens during a run, as it happens: the lines of `events.jsonl`.

A run's data is a fold over its events (`perfguard.records.run_data`), so what was written is enough to judge it again.
Schema version 2. Fields may be added; removing or changing one makes it version 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from perfguard.records.facts import Fact
from perfguard.records.plan import DEFAULT_GATE, GateSettings
from perfguard.records.run import Arm, CaseFailed, Stage
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import Attribution, OpCountChange
from perfguard.records.task_results import CellRun
from perfguard.records.tasks import TaskPlan
from perfguard.records.training import TrainedOn, TrainingEpoch, TrainingOutcome, TrainingPlanned, TrainingUse

EVENT_SCHEMA = 2


class RunStarted(Struct, frozen=True, kw_only=True):
    """First event of every run."""

    run_id: str  # Name of the run's folder
    schema: int
    mode: str  # `paired` (two arms), `rounds` (one arm), `profile`, `training` (heterogeneous SGD) or `task`
    suite: str  # Suite or selection that was asked for
    case_ids: tuple[str, ...]  # Selected cases, in the order of the suite
    command: tuple[str, ...]
    budget_s: float  # Wall-clock budget, seconds
    machine_id: str | None = None
    advisory_ids: tuple[str, ...] = ()  # Those of the cases that cannot fail a gate
    gate: GateSettings = DEFAULT_GATE  # What its gates do
    is_injected: bool = False  # Whether cases are slowed on purpose, so that its times say nothing of the code


class ArmReady(Struct, frozen=True, kw_only=True):
    """An arm's environment has been started once and looked at."""

    arm: Arm
    text: str
    interpreter: str
    source_id: str
    python: str
    torch: str | None  # torch version; None where no case needs torch
    import_s: float  # Seconds that the imports took
    stack_id: str | None = None
    missing_signals: dict[str, str] = field(default_factory=dict)  # Signals that its workers lack, with the reason
    commit: str | None = None  # Commit that the source tree is, or was made from; None where it is not known
    parameters: dict[str, str] = field(default_factory=dict)  # That this arm sets for its cases


class ArmsCompared(Struct, frozen=True, kw_only=True):
    """Both arms were attested."""

    identical: bool  # Whether files, packages, interpreter and variables are the same, and nothing is injected


class CaseCalibrated(Struct, frozen=True, kw_only=True):
    """A case was set up, checked and calibrated."""

    case_id: str
    inner_loops: int  # Iterations of one sample, both arms
    iteration_s: float  # Seconds of one iteration on the calibrating arm


class BlockStarted(Struct, frozen=True, kw_only=True):
    """A fresh process of each arm is about to start."""

    block: int  # Block or round number, from 0
    hash_seed: int  # PYTHONHASHSEED of the workers
    data_seed: int  # Seed of the benchmarks' data
    case_ids: tuple[str, ...]


class SampleTimed(Struct, frozen=True, kw_only=True):
    """One sample of one arm."""

    block: int
    case_id: str
    arm: Arm  # Which side ran
    index: int  # Position within the block's samples of this case and arm, from 0; warm-ups count from 0 on their own
    warmup: bool  # True for warm-up samples, which no statistic uses
    value_s: float  # Wall seconds of one iteration
    cpu_s: float  # CPU seconds of one iteration, all threads of the worker
    minor_faults: int  # Minor page faults in the sample
    involuntary_switches: int  # Involuntary context switches in the sample, all threads
    iterations: int = 0  # Iterations of the sample; 0 where an older recording does not tell
    voluntary_switches: int | None = None  # In the sample, all threads; this and what follows: None where not read
    peak_memory_bytes: int | None = None  # Peak of the process's resident memory in the sample
    energy_j: float | None = None  # Joules of the CPU packages for one iteration, whatever else ran on them included
    instructions: float | None = None  # Instructions of one iteration in user space, all threads and children
    waited_s: float | None = None  # Seconds in which the thread that runs the steps was ready but had no CPU
    own: Mapping[str, float] | None = None  # By name: what the benchmark itself says of one iteration
    elapsed_s: float | None = None
    """Seconds of the whole sample by the parent's clock; None where these also hold what the benchmark leaves out."""
    parent_cpu_s: float | None = None
    """CPU seconds of the worker, without what it had started, over the same stretch, as the kernel told the parent."""
    parent_waited_s: float | None = None
    """Seconds in which the worker's first thread or the parent's was ready but had no CPU, over the same stretch."""


class ControlTimed(Struct, frozen=True, kw_only=True):
    """The control workload ran between two cases."""

    block: int
    value_s: float  # Seconds of its fixed work


class CaseFinished(Struct, frozen=True, kw_only=True):
    """A case's samples of this block are complete in every arm."""

    block: int
    case_id: str
    baseline_digest: float | None  # Result of the first call in the baseline, reduced to one number
    candidate_digest: float | None  # The same in the candidate
    baseline_checks: dict[str, float] = field(default_factory=dict)
    """Named numbers of that call in the baseline, on which the arms must agree; empty in older recordings."""
    candidate_checks: dict[str, float] = field(default_factory=dict)  # The same in the candidate
    baseline_intrusion_ratio: float | None = None
    """CPU time that the baseline's processes used while the candidate was timed, over what the measured CPUs had to
    give meanwhile, 0 to 1; None where that is not known."""
    candidate_intrusion_ratio: float | None = None  # The same of the candidate's while the baseline was timed
    wall_s: float | None = None  # Wall seconds of the block that the case took: set-ups, warm-ups and samples
    is_varied: bool | None = None
    """Whether the timed calls whose results are among the checks had inputs of their own; None where there are none."""


class CaseUntouched(Struct, frozen=True, kw_only=True):
    """Both arms run the same code for a case, so that it passes without being measured."""

    case_id: str
    functions: int | None = None  # Functions, and bodies of modules and classes, of the trees that it runs
    files: int | None = None  # Of code that is not trusted: files of the trees that it may import


def failure_of_schema_1(data: dict[str, Any]) -> dict[str, Any]:
    """Plain data of a failure as schema 1 wrote it, in today's shape: its sentence is what the child said."""
    reason = data.get("reason")
    return {**data, "reason": {"code": "case.raised", "values": {"error": reason}}} if isinstance(reason, str) else data


class BlockFinished(Struct, frozen=True, kw_only=True):
    """A block ended and its workers are gone."""

    block: int
    started_at: float  # Seconds since the epoch
    duration_s: float  # Wall seconds of the whole block, start-up included
    steal_ratio: float | None  # Stolen time over wall time, worst measured CPU; None where unknown
    involuntary_switches: int  # In the timed samples of both arms together
    foreign_ratio: float | None = None  # CPU time of other programs over what the measured CPUs had to give; or unknown
    foreign_name: str | None = None  # Of the program that took most of it


class AnalysesPlanned(Struct, frozen=True, kw_only=True):
    """How much data the looks at the growing run are spread over; known after the first block."""

    blocks: int  # Blocks that the budget is expected to hold
    margins: Mapping[str, float] = field(default_factory=dict)  # Larger margins of single cases
    margin_ratio: float | None = None  # Margin, where it is not the configured one: an anchor's, or a calibration's
    equivalence_ratio: float | None = None  # Equivalence margin, likewise


class InterimAnalysis(Struct, frozen=True, kw_only=True):
    """The data so far was judged; cases that have their answer are not measured any further."""

    blocks: int  # Blocks that had finished
    final: bool  # Whether the budget was used up, so that the whole rest of the level was spent
    decided: dict[str, str]  # Case id and outcome of the cases that got their answer at this analysis
    planned: int | None = None  # Blocks that the budget was then expected to hold in all; None: as planned before


class StageStarted(Struct, frozen=True, kw_only=True):
    """The blocks that follow belong to another stage of the run; a run begins with its main stage."""

    stage: Stage
    case_ids: tuple[str, ...]  # Cases that are measured in it


class StepsCounted(Struct, frozen=True, kw_only=True):
    """What a case's step executes was counted in both arms, or in the candidate and a stored baseline."""

    case_id: str
    changes: tuple[OpCountChange, ...]  # What changed by op counts, worst first; empty where nothing
    counted_on: str | None = None  # Id of another machine that the stored baseline was counted on; None: this one


class OpsCompared(Struct, frozen=True, kw_only=True):
    """Both arms of a case were profiled."""

    attribution: Attribution  # Culprits, with the largest differences
    file: str  # File of the run's folder with all differences
    findings: tuple[Finding, ...] = ()  # Advice on what the candidate does and the baseline does not, the worst first


class VerdictReached(Struct, frozen=True, kw_only=True):
    """One case was judged."""

    case_id: str
    outcome: str
    log_ratio: float | None  # Estimated effect on the log scale
    lower: float | None  # Lower bound of its interval
    upper: float | None
    reasons: tuple[Fact, ...] = ()  # What was seen and why it leads to the outcome
    baseline_s: float | None = None  # Median seconds of an iteration in the blocks of the effect; None where unknown
    candidate_s: float | None = None


class Noted(Struct, frozen=True, kw_only=True):
    """Something the reader of the run should know."""

    fact: Fact  # What it is


class RunFinished(Struct, frozen=True, kw_only=True):
    """Last event of a run that ended by itself or was interrupted in an orderly way."""

    outcome: str  # Value of GateOutcome, `measured` where nothing was compared, or `interrupted`
    exit_code: int
    reasons: tuple[Fact, ...] = ()  # What led to it, the deciding fact first


Event = (
    RunStarted
    | ArmReady
    | ArmsCompared
    | CaseCalibrated
    | CaseUntouched
    | BlockStarted
    | SampleTimed
    | ControlTimed
    | CaseFinished
    | CaseFailed
    | BlockFinished
    | AnalysesPlanned
    | InterimAnalysis
    | StageStarted
    | StepsCounted
    | OpsCompared
    | VerdictReached
    | TrainingPlanned
    | TrainedOn
    | TrainingEpoch
    | TrainingUse
    | TrainingOutcome
    | TaskPlan
    | CellRun
    | Noted
    | RunFinished
)

EVENT_NAMES: dict[str, type[Event]] = {
    "run_started": RunStarted,
    "arm_ready": ArmReady,
    "arms_compared": ArmsCompared,
    "case_calibrated": CaseCalibrated,
    "case_untouched": CaseUntouched,
    "block_started": BlockStarted,
    "sample": SampleTimed,
    "control": ControlTimed,
    "case_finished": CaseFinished,
    "case_failed": CaseFailed,
    "block_finished": BlockFinished,
    "analyses_planned": AnalysesPlanned,
    "interim_analysis": InterimAnalysis,
    "stage_started": StageStarted,
    "steps_counted": StepsCounted,
    "ops_compared": OpsCompared,
    "verdict": VerdictReached,
    "training_planned": TrainingPlanned,
    "training_started": TrainedOn,
    "training_epoch": TrainingEpoch,
    "training_use": TrainingUse,
    "training_ended": TrainingOutcome,
    "task_planned": TaskPlan,
    "task_measured": CellRun,
    "note": Noted,
    "run_finished": RunFinished,
}
"""Value of the `event` field, and the type that its line decodes to."""

_OLD_NAMES = {"slice": "sample", "canary": "control", "looks_planned": "analyses_planned", "look": "interim_analysis"}
"""Names of events in older recordings, and today's."""


def event_type(name: str) -> type[Event] | None:
    """The type of an event by its present or older name; None for a name that this version does not know."""
    return EVENT_NAMES.get(_OLD_NAMES.get(name, name))
