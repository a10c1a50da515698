"""The unique problems that a step gives to oneDNN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfguard.profile.libraries.onednn_verbose import PrimitiveCall, direction_of
from perfguard.records.facts import Fact
from perfguard.records.steps.projection import Projected

_ONEDNN = "onednn"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimitiveProblem:
    """A primitive with its tensors and settings, all as logged."""

    engine: str
    """`cpu`; empty in old logs."""
    primitive: str
    """`convolution`, …"""
    prop_kind: str
    """`forward_training`, …"""
    memory: str
    """Memory descriptors."""
    attributes: str
    """Post-ops, scratchpad, …"""
    auxiliary: str
    """Algorithm and the like."""
    problem: str
    """benchdnn's problem descriptor."""
    implementations: tuple[str, ...]
    """What oneDNN chose for it, sorted."""
    calls: float
    """Executions in a step."""
    observed_s: float
    """Seconds of a step in all of them, as the library reports them."""

    @property
    def direction(self) -> str:
        """`FWD_D`, `BWD_D`, `BWD_W`, `BWD_DW` or empty."""
        return direction_of(self.prop_kind)


def primitive_problems(calls: Iterable[PrimitiveCall], *, steps: int = 1) -> tuple[PrimitiveProblem, ...]:
    """The problems that were executed, the longest first.

    Args:
        calls: Of oneDNN; those that only make a primitive, and those of MKL, are passed over.
        steps: Steps that they are from.
    """
    found: dict[tuple[str, ...], list[PrimitiveCall]] = {}
    for call in calls:
        if call.executed and call.library == _ONEDNN:
            found.setdefault(_key(call), []).append(call)
    problems = (_problem(same, steps) for same in found.values())
    return tuple(sorted(problems, key=lambda problem: (-problem.observed_s, problem.primitive, problem.problem)))


def projected_primitive(
    problem: PrimitiveProblem, *, call_s: float | None, reason: Fact | None, implementation: str = ""
) -> Projected:
    """A primitive and its time alone.

    Args:
        problem: The primitive.
        call_s: Seconds of one execution alone; None where it was not replayed.
        reason: Why not.
        implementation: What was replayed; the step's own is told where it is another one.
    """
    others = [each for each in problem.implementations if implementation and each != implementation]
    return Projected(
        name=f"{problem.primitive} {problem.direction}".rstrip(),
        detail=problem.problem,
        phases=(),
        modules=(),
        calls=problem.calls,
        observed_s=problem.observed_s,
        projected_s=None if call_s is None else problem.calls * call_s,
        reason=reason,
        implementation=implementation or ", ".join(problem.implementations),
        assumed=tuple(f"implementation_in_step={each}" for each in others),
    )


def _key(call: PrimitiveCall) -> tuple[str, ...]:
    return call.engine, call.primitive, call.prop_kind, call.memory, call.attributes, call.auxiliary, call.problem


def _problem(calls: Sequence[PrimitiveCall], steps: int) -> PrimitiveProblem:
    first = calls[0]
    return PrimitiveProblem(
        engine=first.engine,
        primitive=first.primitive,
        prop_kind=first.prop_kind,
        memory=first.memory,
        attributes=first.attributes,
        auxiliary=first.auxiliary,
        problem=first.problem,
        implementations=tuple(sorted({call.implementation for call in calls} - {""})),
        calls=len(calls) / steps,
        observed_s=sum(call.time_s for call in calls) / steps,
    )
