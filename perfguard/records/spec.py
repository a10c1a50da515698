"""What is measured: benchmarks, their cases, and suites of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from enum import Enum

from perfguard.records.facts import Fact

ParameterValue = str | int | float | bool
"""A parameter's value; rendered into the case id, so it must read back unambiguously."""

ANY_COUNT = "N"  # Among the values of an option: any whole number from 1


class Phase(str, Enum):
    """Which part of training the timed region covers."""

    FORWARD = "forward"
    FORWARD_BACKWARD = "forward+backward"
    OPTIMIZER = "optimizer"
    STEP = "step"

    @property
    def is_stateful(self) -> bool:
        """Whether the result moves on from call to call, because weights change."""
        return self in (Phase.OPTIMIZER, Phase.STEP)


class Gating(str, Enum):
    """What a case's verdict may do to a gate."""

    GATING = "gating"
    ADVISORY = "advisory"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSpec:
    """One benchmark: a factory and the parameter values it is expanded over."""

    name: str  # Dotted name, for instance `kernel.linear` or `step.resnet50`
    target: str  # Import string `package.module:factory`, or `path/to/file.py:factory` relative to the arm's tree
    parameters: tuple[tuple[str, tuple[ParameterValue, ...]], ...] = ()  # Names with values, in the case id's order
    options: tuple[tuple[str, tuple[ParameterValue, ...]], ...] = ()
    """Further parameters with their values, the default first; a case id names one only where it has another value."""
    faults: tuple[tuple[str, ParameterValue], ...] = ()  # Values that only show what a mistake costs: never advised
    phase: Phase = Phase.STEP  # The default phase; a `phase` parameter overrides it per case
    tags: tuple[str, ...] = ()  # Free labels for selection; built in: `kernel`, `step`
    doc: str = ""  # One line for `perfguard list`


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A benchmark with one value for each parameter."""

    benchmark: str
    target: str
    parameters: tuple[tuple[str, ParameterValue], ...] = ()  # The chosen values, in the benchmark's order
    phase: Phase = Phase.STEP  # What the timed region covers
    tags: tuple[str, ...] = ()  # Labels inherited from the benchmark
    gating: Gating = Gating.GATING  # Whether a gate may fail on it

    @property
    def id(self) -> str:
        """`kernel.linear[m=512,dtype=bf16]`; the name alone without parameters."""
        if not self.parameters:
            return self.benchmark
        return f"{self.benchmark}[{','.join(f'{k}={format_parameter(v)}' for k, v in self.parameters)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSpec:
    """A named selection of cases."""

    name: str  # Name on the command line
    doc: str  # One line for `perfguard list`
    gating: tuple[str, ...]  # Case ids or selection patterns whose verdicts decide a gate
    advisory: tuple[str, ...] = ()  # Case ids or patterns that are measured and reported only
    budget_s: float = 600.0  # Default wall-clock budget of a paired gate, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All benchmarks and suites that can be selected."""

    benchmarks: tuple[BenchmarkSpec, ...]  # Built in first, then the user's
    suites: tuple[SuiteSpec, ...] = field(default=())  # Built in first, then the user's
    notes: tuple[Fact, ...] = ()  # What of the user's suites is not measured, or not as their tools would


def format_parameter(value: ParameterValue) -> str:
    """Text of a parameter value as it stands in a case id: `true`, `0.5`, `bf16`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def expand(spec: BenchmarkSpec) -> tuple[Case, ...]:
    """All cases of a benchmark: the product of its parameter values, first parameter slowest."""
    names = [name for name, _ in spec.parameters]
    return tuple(
        Case(
            benchmark=spec.name,
            target=spec.target,
            parameters=tuple(zip(names, values, strict=True)),
            phase=Phase(str(values[names.index("phase")])) if "phase" in names else spec.phase,
            tags=spec.tags,
        )
        for values in itertools.product(*(values for _, values in spec.parameters))
    )
