"""Where a step's time goes: by primitive and direction, as far as a library reports, and by kind of op for the rest.

The shares are of the *step*, rounded so that they add up to 100.0 %. Nothing is counted twice: the time of an op that
called oneDNN or MKL is split into that of its primitives, each under its own name and direction, and the op's rest,
`dispatch of <the primitive that took most of it>`: checks, allocation, looking up the primitive. The rest of attention,
which computes a part itself, stays under its own name. A call that was placed in no op stays within whatever op it was
in.

Seconds of ops come from steps without a verbose log, those of primitives from steps with one. Where the primitives of
an op seem to take longer than the op, they get all of its time in proportion, and nothing is left for dispatch.

Source: the (primitive, direction) donuts of Fu et al., "Deep Learning Models on CPUs" (2022), arXiv:2206.10034, Fig. 2,
whose whole is the time that oneDNN reported.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perfguard.profile.trace.op_groups import LIBRARY_GROUPS, Group, group_of
from perfguard.records.steps.ops import PYTHON_OP, OpTotal, PrimitiveTotal, StepPhase
from perfguard.records.steps.profile import Breakdown, PhaseShare, Slice

OPTIMIZER_KERNELS = "optimizer kernels"  # All ops of the optimizer's phase, whatever they do
MKL_GEMM = "MKL gemm"  # All of MKL's matrix products; other routines go by their own name

_ALSO_COMPUTE = frozenset({Group.ATTENTION, Group.OTHER, Group.PYTHON})
"""Where the time around primitives need not be theirs: ops that do a part themselves, unknown ones, and no op."""
_SHARES = 1000  # Shares are in tenths of a percent
_DIRECTIONS = {StepPhase.FORWARD: "forward", StepPhase.LOSS: "forward", StepPhase.BACKWARD: "backward"}


_Place = tuple[StepPhase | None, str, str]
"""Phase, module and op: calls of primitives are not known more exactly."""


class _Part(NamedTuple):
    """A piece of the step under the name of its slice."""

    name: str
    direction: str
    phase: StepPhase
    calls: float
    time_s: float
    in_library: bool = False


def break_down(totals: Iterable[OpTotal], primitives: Iterable[PrimitiveTotal]) -> Breakdown:
    """Cut a step, given as all its ops and `PYTHON_OP`, by kind of work and by phase.

    The primitives are the calls of oneDNN and MKL in a step of the same work.
    """
    ops: dict[_Place, list[OpTotal]] = defaultdict(list)
    for total in totals:
        ops[total.key.phase, total.key.module, total.key.op].append(total)
    called: dict[_Place, list[PrimitiveTotal]] = defaultdict(list)
    unplaced: list[PrimitiveTotal] = []
    for primitive in primitives:
        place = (primitive.phase, primitive.module, primitive.op)
        (called[place] if place in ops else unplaced).append(primitive)
    parts = [part for place, members in ops.items() for part in _parts_of(members, called[place])]
    return Breakdown(
        step_s=_time_s(parts),
        slices=_slices(parts),
        phases=_phases(parts),
        unplaced_calls=math.fsum(primitive.calls for primitive in unplaced),
        unplaced_s=math.fsum(primitive.time_s for primitive in unplaced),
    )


def _parts_of(ops: Sequence[OpTotal], primitives: Sequence[PrimitiveTotal]) -> list[_Part]:
    """The time of a place's ops, cut into its primitives and the rest; the parts' seconds add up to the ops'."""
    phase, op = ops[0].key.phase, ops[0].key.op
    direction = _DIRECTIONS.get(phase, "")
    time_s = math.fsum(total.self_s for total in ops)
    in_library_s = math.fsum(primitive.time_s for primitive in primitives)
    scale = min(1.0, max(0.0, time_s) / in_library_s) if in_library_s > 0 else 0.0
    parts = [
        _Part(
            _primitive_name(each), each.direction or direction, phase, each.calls, each.time_s * scale, in_library=True
        )
        for each in primitives
    ]
    name = _group_name(phase, op)
    if primitives and group_of(op) not in _ALSO_COMPUTE:
        name = f"dispatch of {_primitive_name(max(primitives, key=lambda primitive: primitive.time_s))}"
    rest_s = time_s - math.fsum(part.time_s for part in parts)
    direction = "" if name in {PYTHON_OP, OPTIMIZER_KERNELS} else direction
    return [*parts, _Part(name, direction, phase, math.fsum(total.calls for total in ops), rest_s)]


def _primitive_name(primitive: PrimitiveTotal) -> str:
    if primitive.library != "mkl":
        return primitive.primitive
    return MKL_GEMM if "gemm" in primitive.primitive else f"MKL {primitive.primitive}"


def _group_name(phase: StepPhase, op: str) -> str:
    group = group_of(op)
    if phase is StepPhase.OPTIMIZER and group is not Group.PYTHON:
        return OPTIMIZER_KERNELS
    return f"ATen {group.value}" if group in LIBRARY_GROUPS - _ALSO_COMPUTE else group.value


def _slices(parts: Sequence[_Part]) -> tuple[Slice, ...]:
    grouped: dict[tuple[str, str], list[_Part]] = defaultdict(list)
    for part in parts:
        grouped[part.name, part.direction].append(part)
    times_s = {kind: _time_s(members) for kind, members in grouped.items()}
    kinds = sorted(grouped, key=lambda kind: (-times_s[kind], kind))
    return tuple(
        Slice(name=kind[0], direction=kind[1], calls=_calls(grouped[kind]), time_s=times_s[kind], share=share)
        for kind, share in zip(kinds, _shares([times_s[kind] for kind in kinds]), strict=True)
    )


def _phases(parts: Sequence[_Part]) -> tuple[PhaseShare, ...]:
    own = [[part for part in parts if part.phase is phase] for phase in StepPhase]
    times_s = list(map(_time_s, own))
    return tuple(
        PhaseShare(
            phase=phase,
            calls=_calls(part for part in members if not part.in_library and part.name != PYTHON_OP),
            time_s=time_s,
            share=share,
            primitives_s=_time_s(part for part in members if part.in_library),
            python_s=_time_s(part for part in members if part.name == PYTHON_OP),
        )
        for phase, members, time_s, share in zip(StepPhase, own, times_s, _shares(times_s), strict=True)
    )


def _time_s(parts: Iterable[_Part]) -> float:
    return math.fsum(part.time_s for part in parts)


def _calls(parts: Iterable[_Part]) -> float:
    return math.fsum(part.calls for part in parts)


def _shares(times_s: Sequence[float]) -> list[float]:
    """Of their sum, in tenths of a percent that add up to it: what is left by rounding down goes to the largest rests.

    Source: the method of largest remainders (Hamilton).
    """
    whole_s = math.fsum(times_s)
    if not whole_s:
        return [0.0] * len(times_s)
    exact = [time_s / whole_s * _SHARES for time_s in times_s]
    tenths = [math.floor(value) for value in exact]
    by_rest = sorted(range(len(exact)), key=lambda index: tenths[index] - exact[index])
    for index in by_rest[: _SHARES - sum(tenths)]:
        tenths[index] += 1
    return [count / _SHARES for count in tenths]
