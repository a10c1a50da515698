"""What a report is made of: everything that is known of a run, read and judged already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from perfguard.records.history import History
from perfguard.records.result import RunResult
from perfguard.records.run import Stage
from perfguard.records.steps.ops import Attribution
from perfguard.records.steps.profile import ProfileReport
from perfguard.records.task_results import TaskResult
from perfguard.records.training import Training


class BlockPoint(Struct, frozen=True, kw_only=True):
    """The paired difference of one block."""

    block: int  # Its number, in the order of measuring
    log_ratio: float  # Candidate over baseline; finite
    stage: Stage  # What it was measured for
    voided: tuple[str, ...] = ()  # Why it is left out of the effect; empty where it counts


class CaseEvidence(Struct, frozen=True, kw_only=True):
    """What a run measured of one case."""

    case_id: str  # The case
    blocks: tuple[BlockPoint, ...] = ()  # Pairs, in the order of measuring; empty where there is one arm
    baseline_s: Sequence[float] = ()
    """Samples that the effect rests on, seconds of an iteration; empty where there is one arm."""
    candidate_s: Sequence[float] = ()  # The same of the candidate, or of the only arm


class RawFile(Struct, frozen=True, kw_only=True):
    """A file of the run's folder that the report holds."""

    name: str  # Its name
    size_bytes: int  # Of the whole file
    content: bytes  # What of it is held
    note: str = ""  # What was left out of it; empty where nothing was


class ArmFacts(Struct, frozen=True, kw_only=True):
    """What distinguishes the arms, as they attested it."""

    topic: str  # `imported files`, `packages`, `variables`, `interpreter`
    differences: tuple[str, ...]  # One text each; empty where they are the same


class RunContent(Struct, frozen=True, kw_only=True):
    """One run."""

    run_id: str  # Name of its folder
    started_at: float | None = None  # Seconds since the epoch; None where the recording does not tell
    command: tuple[str, ...] = ()  # The command line that started it
    is_rejudged: bool = False
    """Whether its verdicts were computed again from what was measured, because it left no result."""
    result: RunResult | None = None  # What it found; None where nothing can be said
    training: Training | None = None  # What it trained; None for other runs
    task: TaskResult | None = None  # What its task came to; None for other runs
    profile: ProfileReport | None = None  # What it profiled; None for other runs
    evidence: Mapping[str, CaseEvidence] = field(default_factory=dict)  # What was measured, by case id
    attributions: Mapping[str, Attribution] = field(default_factory=dict)
    """With every op where its file could be read, by case id."""
    history: History | None = None  # Series over the recorded runs; None where the page leaves them to another
    arm_facts: tuple[ArmFacts, ...] = ()  # What differs between the arms
    fingerprint: str = ""  # The machine in lines for people; empty where it is unknown
    problems: tuple[str, ...] = ()  # What of the run could not be read, one sentence each
    files: tuple[RawFile, ...] = ()  # Raw data
