"""What `perfguard profile` says of a case or a script, as `--format json` shows it. Schema version 1."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from perfguard.records.facts import Fact
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import OpCounts, OpTotal, PrimitiveTotal, StepPhase
from perfguard.records.steps.projection import CaseProjection
from perfguard.records.steps.scripts import ScriptComparison


class Slice(Struct, frozen=True, kw_only=True):
    """One kind of work."""

    name: str  # oneDNN primitive, `MKL gemm`, group of ops (`element-wise`), `dispatch of convolution`, or `(python)`
    direction: str  # benchdnn's word where the primitive has one, else `forward` or `backward` by the phase, else empty
    calls: float  # Executions or calls in a step
    time_s: float  # Seconds in a step
    share: float  # Of the step; the shares of a breakdown add up to 1


class PhaseShare(Struct, frozen=True, kw_only=True):
    """One phase of the step."""

    phase: StepPhase
    calls: float  # Ops called in it
    time_s: float  # Seconds in a step
    share: float  # Of the step; the shares of all phases add up to 1
    primitives_s: float  # Seconds of it in primitives of oneDNN and routines of MKL
    python_s: float  # Seconds of it in no op


class Breakdown(Struct, frozen=True, kw_only=True):
    """A whole step, cut in two ways."""

    step_s: float  # What the shares are of: the sum of all ops' seconds
    slices: tuple[Slice, ...]  # Largest first
    phases: tuple[PhaseShare, ...]  # All five, in the order of a step
    unplaced_calls: float  # Calls of libraries in a step that belong to no known op; their time is within other slices
    unplaced_s: float  # What these calls took


PROFILE_SCHEMA = 1


class ProfiledCase(Struct, frozen=True, kw_only=True):
    """One case, or one script."""

    case_id: str  # The case; of a script its path
    step_s: float | None  # Without the profiler, mean over the middle third of each process's steps; None without any
    profiled_step_s: float  # The same with it: what the seconds of all ops add up to
    processes: int
    steps: int  # Profiled steps in all of them
    breakdown: Breakdown  # The step by kind of work and by phase
    ops: tuple[OpTotal, ...]  # Every op of such a step, largest first
    primitives: tuple[PrimitiveTotal, ...]  # Calls of oneDNN and MKL in a step, longest first
    op_counts: OpCounts | None  # What a step executes, counted; None where it was not
    projection: CaseProjection | None = None  # How fast the step could be; None where its ops were not replayed
    findings: tuple[Finding, ...] = ()  # Advice, the worst first
    notes: tuple[Fact, ...] = ()  # What could not be read or placed

    @property
    def overhead_ratio(self) -> float | None:
        """How much longer a step takes with the profiler; None where that is unknown."""
        return self.profiled_step_s / self.step_s - 1 if self.step_s else None


class ProfileReport(Struct, frozen=True, kw_only=True):
    """Everything that was profiled."""

    schema: int = PROFILE_SCHEMA
    folder: str  # The run's folder; traces and logs are in `profiles/` there
    machine_id: str
    machine: str  # One line for people
    torch: str
    cpus: tuple[int, ...]  # CPUs that it ran on
    cases: tuple[ProfiledCase, ...]  # In the order of the selection
    comparison: ScriptComparison | None = None  # Of a script with a baseline: how its steps compare
    problems: Mapping[str, Fact] = field(default_factory=dict)
    """By case id: why it could not be profiled; of a script: why it failed after the steps that are reported."""
    notes: tuple[Fact, ...] = ()  # What the reader should know
    interrupted: bool = False  # Whether it was ended by the user before everything was profiled that had been asked for
