"""How fast a step could be: its ops replayed alone, and what the CPUs can do at best."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from perfguard.records.facts import Fact
from perfguard.records.run import Arm
from perfguard.records.steps.ops import StepPhase


class Roof(str, Enum):
    """Which of the two ceilings of a roofline binds."""

    COMPUTE = "compute"  # Floating-point operations a second
    MEMORY = "memory"  # Bytes a second


class RooflineCeilings(Struct, frozen=True, kw_only=True):
    """What the measured CPUs do at best."""

    flops_per_s: Mapping[str, float]  # Fastest matrix product by dtype: `fp32`, `bf16`, `fp64`; no others are measured
    bytes_per_s: float  # Fastest stream through memory, bytes read and written
    threads: int  # Threads that both were measured with
    is_beyond_caches: bool  # Whether the stream was too long for caches; if not, the bandwidth may be theirs


class RooflinePoint(Struct, frozen=True, kw_only=True):
    """One problem against the ceilings. All but `calls` is of one call."""

    name: str  # The op, `aten::convolution`
    detail: str  # Shapes, dtypes and layouts of its tensors
    dtype: str  # What it computes in: `bf16`
    calls: float  # Calls in a step
    flops: float | None  # Floating-point operations; None for ops that are counted in bytes only
    size_bytes: float  # Bytes that it must read and write, each once
    call_s: float  # Seconds in the step
    alone_s: float | None  # Seconds alone; None where it was not replayed
    roof: Roof
    best_s: float  # Seconds that this ceiling allows
    assumed: tuple[str, ...] = ()  # What the trace does not tell and had to be guessed for the numbers above

    @property
    def intensity(self) -> float | None:
        """Floating-point operations for each byte."""
        return None if self.flops is None or not self.size_bytes else self.flops / self.size_bytes

    @property
    def achieved_flops_per_s(self) -> float | None:
        """What it does in the step."""
        return None if self.flops is None else self.flops / self.call_s

    @property
    def achieved_bytes_per_s(self) -> float:
        """The same in bytes."""
        return self.size_bytes / self.call_s

    @property
    def share_ratio(self) -> float:
        """Part of the binding ceiling that it reaches in the step. Above 1 its data came out of the caches."""
        return self.best_s / self.call_s

    @property
    def alone_share_ratio(self) -> float | None:
        """The same alone; None where it was not replayed."""
        return None if not self.alone_s else self.best_s / self.alone_s


class Projected(Struct, frozen=True, kw_only=True):
    """One unique problem of a step, and how long its calls take alone."""

    name: str  # An op, `aten::convolution`, or a primitive with its direction, `convolution BWD_W`
    detail: str  # Shapes, dtypes and layouts of an op; problem of a primitive
    phases: tuple[StepPhase, ...]  # Where in the step it is called, in the order of a step; empty where unknown
    modules: tuple[str, ...]  # Modules that call it, sorted; empty where unknown
    calls: float  # Calls in a step
    observed_s: float  # Seconds of a step in all its calls
    projected_s: float | None  # The same number of calls, each as fast as alone; None where it was not replayed
    reason: Fact | None = None
    implementation: str = ""  # What was replayed: the op's overload, the primitive's implementation
    assumed: tuple[str, ...] = ()  # What is not known of its calls and had to be guessed: `approximate='none'`

    @property
    def gap_s(self) -> float | None:
        """Seconds of a step that its calls lose against themselves alone; negative where they lose nothing."""
        return None if self.projected_s is None else self.observed_s - self.projected_s

    @property
    def efficiency_ratio(self) -> float | None:
        """Time alone / time in the step."""
        return None if self.projected_s is None or not self.observed_s else self.projected_s / self.observed_s


class Projection(Struct, frozen=True, kw_only=True):
    """A step against the sum of its problems, each as fast as alone.

    `step_s = projected_s + lost_s + unreplayed_s + outside_s`.
    """

    step_s: float  # Seconds of a step, not profiled where such steps were taken
    ops_s: float  # Of these, seconds in ops or primitives
    covered_s: float  # Of these, seconds in those that were replayed
    projected_s: float  # What the replayed ones take alone, calls counted
    kernel_ratio: float | None  # Kernel efficiency, `projected_s / covered_s`; None where nothing was replayed
    framework_ratio: float | None  # `(projected_s + unreplayed_s) / step_s`: what could not be replayed counts as it is
    problems: tuple[Projected, ...]  # Those that lose most first; those that were not replayed last, longest first

    @property
    def lost_s(self) -> float:
        """Seconds that the replayed ones take more than alone."""
        return self.covered_s - self.projected_s

    @property
    def unreplayed_s(self) -> float:
        """Seconds in those that were not replayed."""
        return self.ops_s - self.covered_s

    @property
    def outside_s(self) -> float:
        """Seconds in no op at all."""
        return self.step_s - self.ops_s

    @property
    def coverage_ratio(self) -> float | None:
        """Part of the time in ops that was replayed; None where there are no ops."""
        return self.covered_s / self.ops_s if self.ops_s else None

    @property
    def step_coverage_ratio(self) -> float | None:
        """Part of the step that was replayed."""
        return self.covered_s / self.step_s if self.step_s else None


class CaseProjection(Struct, frozen=True, kw_only=True):
    """How fast one case's step could be in one arm."""

    case_id: str
    arm: Arm
    ops: Projection  # Against torch's own ops, alone
    primitives: Projection | None  # Against oneDNN's primitives in benchdnn; None where there is none of either
    ceilings: RooflineCeilings | None  # What the CPUs do at best; None where it could not be measured
    roofline: tuple[RooflinePoint, ...]  # Problems whose work is known, longest first; empty without ceilings
    notes: tuple[Fact, ...] = ()  # What the reader should know
