"""What was measured, as it comes from the workers; immutable."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from perfguard.records.facts import Fact


class Arm(str, Enum):
    """One side of a comparison."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"


class Stage(str, Enum):
    """What a block of a run is measured for."""

    MAIN = "main"  # What the command asked for
    PAIRING = "pairing"  # Cases that a stored baseline left flagged or open, paired with the baseline's own commit
    CONFIRMATION = "confirmation"  # Flagged cases again, with both arms moved elsewhere in memory and on disk
    DRIFT = "drift"  # Cases that drifted from the anchor of a stored baseline, paired with the anchor's commit
    DRIFT_CONFIRMATION = "drift-confirmation"  # Cases flagged there again, with both arms moved elsewhere

    @property
    def is_confirmation(self) -> bool:
        """Whether it repeats what another stage flagged."""
        return self in (Stage.CONFIRMATION, Stage.DRIFT_CONFIRMATION)


class Signal(str, Enum):
    """What is measured beside wall time, in the order of reports."""

    CPU = "cpu"  # CPU seconds of one iteration, all threads
    MEMORY = "memory"  # Peak of resident memory in the sample, bytes
    FAULTS = "faults"  # Minor page faults of one iteration
    SWITCHES = "switches"  # Context switches of one iteration, voluntary and involuntary, all threads
    ENERGY = "energy"  # Joules of the CPU packages for one iteration
    INSTRUCTIONS = "instructions"  # Instructions of one iteration in user space, all threads and children

    __hash__ = str.__hash__  # Names of a benchmark's own signals stand beside these, as plain texts


class SignalSamples(Struct, frozen=True, kw_only=True):
    """One signal of one case in one block: the samples of each arm, in the order they ran."""

    case_id: str
    block: int  # Block number, from 0
    signal: str  # Value of a Signal, or the benchmark's own name
    baseline: tuple[float | None, ...]  # One value a sample; None where it could not be read
    candidate: tuple[float | None, ...]  # The same for the candidate


class CaseSamples(Struct, frozen=True, kw_only=True):
    """One case in one block: the samples of each arm, in the order they ran."""

    case_id: str
    block: int  # Block number, from 0
    baseline_s: tuple[float, ...]  # Seconds per iteration, one value a sample; empty where the arm did not run
    candidate_s: tuple[float, ...]  # The same for the candidate
    wall_s: float | None = None  # Wall seconds of the block that the case took, set-up included; None where not known


class CaseChecks(Struct, frozen=True, kw_only=True):
    """What both arms computed for one case under the same seeds, at set-up."""

    case_id: str
    data_seed: int | None  # Seed of the data; None where an older recording does not tell
    baseline: dict[str, float]  # `loss`, `result`, `result_norm`, `gradient_norm` or the benchmark's own; may be empty
    candidate: dict[str, float]  # The same in the candidate
    dtypes: tuple[str, ...] = ()  # That an arm sets instead of the case's own


class CaseIntrusion(Struct, frozen=True, kw_only=True):
    """CPU time that each arm's processes used while the other was timed: one case in one block."""

    case_id: str
    block: int
    baseline_ratio: float | None  # While the candidate was timed, over what the measured CPUs had to give, or None
    candidate_ratio: float | None  # The candidate's while the baseline was timed


class CaseClock(Struct, frozen=True, kw_only=True):
    """How far the workers' own times of a case in a block explain what the parent saw; medians of samples.

    Of wall seconds or of CPU seconds.
    """

    case_id: str
    block: int
    elapsed_s: float  # Seconds of a sample of the candidate as the parent saw them
    unexplained_s: float  # Seconds of the candidate's samples that it does not claim, less those of the baseline


class BlockConditions(Struct, frozen=True, kw_only=True):
    """What the host did during a block; says nothing about which arm was running."""

    block: int  # Block number, from 0
    duration_s: float  # Wall time of the timed part, seconds
    steal_ratio: float | None  # Stolen time over wall time, worst measured CPU; None where the kernel does not tell
    involuntary_switches: int | None  # Involuntary context switches of both workers together, timed part
    control_s: tuple[float, ...]  # Seconds of each control workload sample, in the order they ran; may be empty
    foreign_ratio: float | None = None  # CPU time of other programs over what the measured CPUs had to give, 0 to 1


class CaseFailed(Struct, frozen=True, kw_only=True):
    """A case cannot be measured (any more); the others go on."""

    case_id: str
    arm: Arm  # The arm that failed first
    missing: bool = False  # True where the arm has no such benchmark; in the baseline that is a new case, not a failure
    reason: Fact
    detail: str = ""  # End of the traceback or of the worker's stderr
    skipped: bool = False  # Whether the suite itself skips it in every arm: nothing is wrong, and nothing was measured

    @property
    def is_below_target(self) -> bool:
        """Whether the candidate computed a result that is not good enough."""
        return self.arm is Arm.CANDIDATE and self.reason.code == "case.below_target"

    @property
    def quoted(self) -> str:
        """The child's own words; the code of the reason where it left none."""
        return str(self.reason.values.get("error") or self.reason.code)


class PairedData(Struct, frozen=True, kw_only=True):
    """Everything a paired comparison is judged by."""

    case_ids: tuple[str, ...]  # In the order of the suite; also those that failed
    samples: tuple[CaseSamples, ...]  # One entry for each case and block that completed
    conditions: tuple[BlockConditions, ...]  # One entry for each block that completed
    failures: tuple[CaseFailed, ...] = ()  # At most one for each case


class Round(Struct, frozen=True, kw_only=True):
    """One independent round of one case: a fresh process, one arm only."""

    values_s: tuple[float, ...]  # Seconds per iteration, one value a sample
    control_s: tuple[float, ...]  # Control workload samples of the same process's time
    started_at: float  # Seconds since the epoch
    data_seed: int | None = None  # Seed of the data; None where an older baseline does not tell
    checks: dict[str, float] = field(default_factory=dict)  # Of the first call under that seed; not in old baselines
