"""What rules look at: everything that is known of one profiled step, and the tensors in its ops' keys.

Whatever is not known is None or empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
from msgspec import Struct, field

from perfguard.profile.advice.trials import Program
from perfguard.profile.op_times.op_profile import OpProfile
from perfguard.records.machine.fingerprint import Fingerprint, Isa, SoftwareFacts
from perfguard.records.steps.ops import Attribution, OpCounts, OpKey, OpTotal, PrimitiveTotal
from perfguard.records.steps.program import ProgramFacts

LEAST_STEPS = 5
"""Steps from which the fastest of them says what an op needs; on a busy host, all of three may hold a burst."""
CHANNELS_LAST = frozenset({"channels_last", "channels_last_3d"})  # Layouts with the channels the fastest
LOW_PRECISION = frozenset({"bf16", "f16"})  # dtypes with less than half of f32's bits of precision
FLOATING = LOW_PRECISION | {"f32", "f64"}  # dtypes of numbers that are computed with

_SHAPE = re.compile(r"\[([\d,]*)\]")
_LIST = re.compile(r"\{\d+:(\d+)\}")


class Evidence(Struct, frozen=True, kw_only=True):
    """One step, its program and its machine."""

    target: Program = field(default_factory=Program)  # What was profiled
    totals: tuple[OpTotal, ...] = ()  # Ops of a step, and what is in no op; together they are the profiled step
    primitives: tuple[PrimitiveTotal, ...] = ()  # Calls of oneDNN and MKL in a step
    op_counts: OpCounts | None = None  # What a step executes, counted
    event_s: float = 0.0
    """What the profiler costs for each event, seconds; 0 leaves its cost in all times and shares."""
    fingerprint: Fingerprint | None = None  # The machine
    software: SoftwareFacts | None = None  # What the profiled arm ran on; None takes that of the fingerprint
    isa_class: str = ""  # The widest instruction set of the machine, in oneDNN's words; empty where unknown
    threads: int | None = None  # Threads that torch computed with
    cpus: int | None = None  # CPUs that they could run on
    faults: float | None = None  # Minor page faults in an unprofiled step
    program: ProgramFacts | None = None  # What the process says of its model
    shortest_call_s: Mapping[OpKey, float] = field(default_factory=dict)
    """Seconds of one call of an op in the step in which it was fastest; see `shortest_calls`."""
    comparison: Attribution | None = None  # How this step differs from the baseline's

    @property
    def isa(self) -> Isa:
        """Instruction sets; all unknown without a fingerprint."""
        return self.fingerprint.isa if self.fingerprint is not None else Isa()

    @property
    def facts(self) -> SoftwareFacts:
        """Of the software; all unknown without any."""
        known = self.fingerprint.software if self.software is None and self.fingerprint is not None else self.software
        return known if known is not None else SoftwareFacts()

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that change CPU results, as far as they are known."""
        return self.facts.environment or {}

    @property
    def step_s(self) -> float:
        """Seconds of the step, the profiler's cost taken off."""
        return self.seconds_of(self.totals)

    def seconds_of(self, totals: Iterable[OpTotal]) -> float:
        """Seconds of ops in a step, the profiler's cost taken off.

        Assumes: the cost of an event lies in the op itself. A part of it is its parent's, so an op that calls many gets
        a little too much time, and what it calls a little too little.
        """
        return math.fsum(max(0.0, total.self_s - self.event_s * total.calls) for total in totals)

    def share_of(self, totals: Iterable[OpTotal]) -> float | None:
        """Part of the step that ops take; None without a step."""
        return self.ratio_of(self.seconds_of(totals))

    def ratio_of(self, part_s: float) -> float | None:
        """Seconds as a part of the step; None without a step, never more than all of it."""
        return min(1.0, part_s / self.step_s) if self.step_s > 0 else None

    def call_s(self, total: OpTotal) -> float:
        """Seconds that one call of an op needs; 0 for an op without calls.

        Those of its fastest step where that is known: a mean holds what a busy host adds.
        """
        mean_s = total.self_s / total.calls if total.calls > 0 else 0.0
        return max(0.0, self.shortest_call_s.get(total.key, mean_s) - self.event_s)


def shortest_calls(profile: OpProfile) -> dict[OpKey, float]:
    """Seconds of one call of each op in the step in which it was fastest: what no burst of a neighbour made longer.

    Args:
        profile: Of one arm; fewer than `LEAST_STEPS` steps give nothing.
    """
    if profile.wall_s.size < LEAST_STEPS:
        return {}
    called = profile.calls > 0
    per_call_s = np.where(called, profile.self_s / np.maximum(profile.calls, 1), np.inf).min(axis=0)
    return {key: seconds for key, seconds in zip(profile.keys, per_call_s.tolist(), strict=True) if seconds < np.inf}


class CallTensor(Struct, frozen=True, kw_only=True):
    """One tensor of a call."""

    shape: tuple[int, ...]  # Empty for a scalar, and for a list of tensors
    dtype: str  # `f32`; empty where the trace has none
    layout: str  # `channels_last`; empty where the trace has none
    elements: int  # Of a list those of all its tensors

    @property
    def image_layout(self) -> str:
        """Layout of images or volumes; empty for other tensors, and where one channel or one pixel leaves it open."""
        has_choice = len(self.shape) in {4, 5} and self.shape[1] > 1 and math.prod(self.shape[2:]) > 1
        return self.layout if has_choice else ""


@lru_cache(maxsize=1 << 16)
def tensors_of(key: OpKey) -> tuple[CallTensor, ...]:
    """Tensors in the order of the arguments; none where the trace has no shapes."""
    shapes = key.shapes.split()
    known = [
        words if len(words) == len(shapes) else [""] * len(shapes)
        for words in (key.dtypes.split(), key.layouts.split())
    ]
    return tuple(_tensor(*words) for words in zip(shapes, *known, strict=True))


def largest(key: OpKey) -> int:
    """Elements of an op's largest tensor; 0 without any."""
    return max((tensor.elements for tensor in tensors_of(key)), default=0)


def _tensor(shape: str, dtype: str, layout: str) -> CallTensor:
    sizes = _SHAPE.fullmatch(shape)
    if sizes is not None:
        dims = tuple(int(size) for size in sizes[1].split(",") if size)
        return CallTensor(shape=dims, dtype=dtype, layout=layout, elements=math.prod(dims))
    listed = _LIST.fullmatch(shape)
    return CallTensor(shape=(), dtype=dtype, layout=layout, elements=int(listed[1]) if listed else 0)
