"""From profiled steps to what op counts counts: the trace gives ops and allocations, the verbose logs primitives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from perfguard.profile.libraries.join import JoinedStep
from perfguard.profile.libraries.verbose import PrimitiveCall
from perfguard.profile.op_counts.steady import (
    UNPLACED,
    CompileEvent,
    CountedAllocation,
    CountedOp,
    CountedPrimitive,
    StepCounts,
    is_op,
)
from perfguard.profile.trace.context import PHASES, Context
from perfguard.profile.trace.events import EventKind
from perfguard.profile.trace.trace import Trace
from perfguard.records.steps.ops import StepPhase

BoolArray = npt.NDArray[np.bool_]


def counts_of_steps(
    trace: Trace, context: Context, joined: Sequence[JoinedStep] = (), compile_events: Sequence[CompileEvent] = ()
) -> tuple[StepCounts, ...]:
    """What each step of a trace executed.

    Args:
        trace: With shapes; with memory, too, where allocations are to be counted.
        context: Its context.
        joined: The library calls of each of its steps, in their order; empty where none were logged.
        compile_events: Of one step; taken for all of them.
    """
    calls: Sequence[JoinedStep | None] = joined or [None] * context.windows.size
    return tuple(
        StepCounts(
            ops=tuple(_ops(trace, context, context.step == step)),
            primitives=tuple(_primitives(of_step)) if of_step is not None else (),
            allocations=tuple(_allocations(trace, context, context.step == step)),
            compile_events=compile_events,
        )
        for step, of_step in zip(range(context.windows.size), calls, strict=True)
    )


def _ops(trace: Trace, context: Context, in_step: BoolArray) -> Iterable[CountedOp]:
    """Ops of a step, equal ones counted together."""
    counted = np.array([is_op(name) for name in trace.names], dtype=np.bool_)
    chosen = np.flatnonzero(in_step & (trace.kind == EventKind.OP) & counted[trace.name])
    columns = (context.phase, context.module, trace.name, trace.signature)
    kinds, calls = np.unique(np.stack([column[chosen] for column in columns], axis=1), axis=0, return_counts=True)
    for (phase, module, name, signature), count in zip(kinds.tolist(), calls.tolist(), strict=True):
        tensors = trace.signatures[signature]
        yield CountedOp(
            phase=PHASES[phase],
            module=context.modules[module],
            op=trace.names[name],
            shapes=tensors.shapes,
            dtypes=tensors.dtypes,
            layouts=tensors.layouts,
            calls=count,
        )


def _allocations(trace: Trace, context: Context, in_step: BoolArray) -> Iterable[CountedAllocation]:
    chosen = np.flatnonzero(in_step & (trace.kind == EventKind.ALLOCATION))
    places = np.stack([context.phase[chosen], context.module[chosen]], axis=1)
    kinds, position, calls = np.unique(places, axis=0, return_inverse=True, return_counts=True)
    sizes_bytes = np.zeros(len(kinds), dtype=np.int64)
    np.add.at(sizes_bytes, position.reshape(-1), trace.size_bytes[chosen])
    for (phase, module), count, size_bytes in zip(kinds.tolist(), calls.tolist(), sizes_bytes.tolist(), strict=True):
        yield CountedAllocation(phase=PHASES[phase], module=context.modules[module], size_bytes=size_bytes, calls=count)


def _primitives(joined: JoinedStep) -> Iterable[CountedPrimitive]:
    """Executions and cache misses; that the cache held a primitive is the rule and not counted."""
    for call, key in zip(joined.calls, joined.keys, strict=True):
        if call.executed or call.cache_miss:
            yield CountedPrimitive(
                phase=key.phase if key is not None else _phase_of(call),
                module=key.module if key is not None else UNPLACED,
                primitive=call.primitive,
                direction=call.direction,
                implementation=call.implementation,
                memory=call.memory,
                problem=call.problem,
                attributes=_attributes(call),
                made=call.cache_miss,
            )


def _phase_of(call: PrimitiveCall) -> StepPhase:
    """Of a call that belongs to no known op."""
    return StepPhase.BACKWARD if call.direction.startswith("BWD") else StepPhase.FORWARD


def _attributes(call: PrimitiveCall) -> str:
    """What else tells a primitive: its algorithm and attributes.

    MKL's are settings of the process, threads above all, and no part of the work.
    """
    return f"{call.auxiliary} {call.attributes}".strip() if call.library == "onednn" else ""
