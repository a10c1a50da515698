"""A step cut in two ways: by kind of work, as in the donuts of Fu et al. (2022), and by phase."""

from __future__ import annotations

from dataclasses import dataclass

from perfguard.records.steps.ops import StepPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One kind of work."""

    name: str
    """A primitive of oneDNN, `MKL gemm`, a group of ops (`element-wise`), `dispatch of convolution` or `(python)`."""
    direction: str
    """benchdnn's word where the primitive has one, else `forward` or `backward` by the phase, else empty."""
    calls: float
    """Executions or calls in a step."""
    time_s: float
    """Seconds in a step."""
    share: float
    """Of the step; the shares of a breakdown add up to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseShare:
    """One phase of the step."""

    phase: StepPhase
    """The phase."""
    calls: float
    """Ops called in it."""
    time_s: float
    """Seconds in a step."""
    share: float
    """Of the step; the shares of all phases add up to 1."""
    primitives_s: float
    """Seconds of it in primitives of oneDNN and routines of MKL."""
    python_s: float
    """Seconds of it in no op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """A whole step, cut in two ways."""

    step_s: float
    """What the shares are of: the sum of all ops' seconds."""
    slices: tuple[Slice, ...]
    """Largest first."""
    phases: tuple[PhaseShare, ...]
    """All five, in the order of a step."""
    unplaced_calls: float
    """Calls of libraries in a step that belong to no known op; their time is within other slices."""
    unplaced_s: float
    """What these calls took."""
