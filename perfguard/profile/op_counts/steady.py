"""The op counts of a step: exact counts of what it executes, the same in every run of the same code on the same data.

What is counted and where:

- every ATen op and every op of another library, by shapes, dtypes and layouts; wrappers too, because a wrapper that
  leads to other ops is a change. Autograd's nodes, annotations and Python functions are no ops.
- every execution of a oneDNN primitive or an MKL routine, by problem, memory and chosen implementation
- primitives that had to be made in a steady step (`cache_miss`)
- allocations with their bytes; what is freed is not counted, as when depends on the garbage collector
- events of the compiler: graph breaks, recompiles

Each by phase and by the pattern of the module's path, in which numbers are `*`: a change in all blocks of a stage is
one row. Times, addresses, threads and order are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from perfguard.profile.libraries.join import JoinedStep
from perfguard.profile.libraries.verbose import PrimitiveCall
from perfguard.profile.op_counts.details import op_detail_text, primitive_detail_text, stable_reason
from perfguard.profile.trace.context import PHASES, Context
from perfguard.profile.trace.events import EventKind
from perfguard.profile.trace.trace import Trace
from perfguard.records.steps.ops import OpCountKind, OpCountRow, OpCounts, StepPhase

CACHE_MISS = "cache_miss"
"""Name of the rows that count primitives which had to be made; their detail says of which primitive."""
ALLOCATIONS = "allocations"  # Name of the rows that count allocations

UNPLACED = "(unplaced)"  # Module of library calls of which it is not known what op made them

ROW_ORDER = attrgetter("kind", "phase", "module", "name", "detail", "implementation")
"""Sorts rows; two rows of op counts differ in it."""

BoolArray = npt.NDArray[np.bool_]

_NOT_OPS = ("autograd::", "torch::autograd::", "profiler::", "perfguard::", "module:")
_SCRATCHPAD = "attr-scratchpad:"
_ATTEMPTS = "frames"  # Frames that the compiler looked at, whatever came of it: no property of the step


def op_counts_of(rows: Iterable[OpCountRow], *, case_id: str, isa_class: str, torch: str) -> OpCounts:
    """Add up what one step executed.

    Args:
        rows: In any order, equal things any number of times, with the paths of their modules.
        case_id: The case.
        isa_class: The widest instruction set of the *machine*, in oneDNN's words. One that a variable caps is not it:
            the cap would make the op counts incomparable instead of showing what it did.
        torch: torch's version.
    """
    counts: Counter[OpCountRow] = Counter()
    sizes: Counter[OpCountRow] = Counter()
    for row in rows:
        kind = replace(row, module=pattern_of(row.module), count=0, size_bytes=0)
        counts[kind] += row.count
        sizes[kind] += row.size_bytes
    added = (replace(kind, count=count, size_bytes=sizes[kind]) for kind, count in counts.items() if count > 0)
    return OpCounts(case_id=case_id, isa_class=isa_class, torch=torch, rows=sorted_rows(added))


def sorted_rows(rows: Iterable[OpCountRow]) -> tuple[OpCountRow, ...]:
    """Rows in the order of op counts."""
    return tuple(sorted(rows, key=ROW_ORDER))


def pattern_of(module: str) -> str:
    """`ResNet.layer3.*.conv1` for `ResNet.layer3.5.conv1`: numbers count the copies of one thing."""
    return ".".join("*" if part.isdigit() else part for part in module.split("."))


def is_op(name: str) -> bool:
    """Whether an event is an op of torch or of an extension, such as `aten::mul` or `torchvision::nms`."""
    return "::" in name and not name.startswith(_NOT_OPS) and " " not in name


def counts_of_steps(
    trace: Trace, context: Context, joined: Sequence[JoinedStep] = (), compile_events: Mapping[str, int] | None = None
) -> tuple[list[OpCountRow], ...]:
    """What each step of a trace executed, for `op_counts_of`.

    Args:
        trace: With shapes; with memory, too, where allocations are to be counted.
        context: Its context.
        joined: The library calls of each of its steps, in their order; empty where none were logged.
        compile_events: Counts of one step by `event` or `event: reason`; taken for all steps.
    """
    calls: Sequence[JoinedStep | None] = joined or [None] * context.windows.size
    return tuple(
        [
            *_ops(trace, context, context.step == step),
            *(_primitives(of_step) if of_step is not None else ()),
            *_allocations(trace, context, context.step == step),
            *_compile_events(compile_events or {}),
        ]
        for step, of_step in zip(range(context.windows.size), calls, strict=True)
    )


def _ops(trace: Trace, context: Context, in_step: BoolArray) -> Iterator[OpCountRow]:
    counted = np.array([is_op(name) for name in trace.names], dtype=np.bool_)
    chosen = np.flatnonzero(in_step & (trace.kind == EventKind.OP) & counted[trace.name])
    columns = (context.phase, context.module, trace.name, trace.signature)
    kinds, calls = np.unique(np.stack([column[chosen] for column in columns], axis=1), axis=0, return_counts=True)
    for (phase, module, name, signature), count in zip(kinds.tolist(), calls.tolist(), strict=True):
        tensors = trace.signatures[signature]
        detail = op_detail_text(tensors.shapes, tensors.dtypes, tensors.layouts)
        yield _row(OpCountKind.OP, PHASES[phase], context.modules[module], trace.names[name], detail, count=count)


def _allocations(trace: Trace, context: Context, in_step: BoolArray) -> Iterator[OpCountRow]:
    chosen = np.flatnonzero(in_step & (trace.kind == EventKind.ALLOCATION))
    places = (context.phase[chosen].tolist(), context.module[chosen].tolist(), trace.size_bytes[chosen].tolist())
    for phase, module, size_bytes in zip(*places, strict=True):
        yield _row(OpCountKind.ALLOCATION, PHASES[phase], context.modules[module], ALLOCATIONS, size_bytes=size_bytes)


def _primitives(joined: JoinedStep) -> Iterator[OpCountRow]:
    """Executions and cache misses; that the cache held a primitive is the rule and not counted."""
    for call, key in zip(joined.calls, joined.keys, strict=True):
        if key is not None:
            phase, module = key.phase, key.module
        else:
            phase, module = StepPhase.BACKWARD if call.direction.startswith("BWD") else StepPhase.FORWARD, UNPLACED
        name = f"{call.primitive} {call.direction}".rstrip()
        if call.executed:
            detail = primitive_detail_text(call.memory, call.problem, _attributes(call))
            yield _row(OpCountKind.PRIMITIVE, phase, module, name, detail, implementation=call.implementation)
        elif call.cache_miss:
            # Without the problem: where shapes keep changing, it is another one in each step, and the count is steady.
            yield _row(OpCountKind.PRIMITIVE, phase, module, CACHE_MISS, name)


def _attributes(call: PrimitiveCall) -> str:
    """Algorithm and attributes but for the scratchpad's mode.

    MKL's are settings of the process, threads above all, and no part of the work.
    """
    words = f"{call.auxiliary} {call.attributes}".split() if call.library == "onednn" else ()
    return " ".join(word for word in words if not word.startswith(_SCRATCHPAD))


def _compile_events(counts: Mapping[str, int]) -> Iterator[OpCountRow]:
    for text, count in counts.items():
        name, _, reason = text.partition(": ")
        if name != _ATTEMPTS:
            yield _row(OpCountKind.COMPILE, StepPhase.FORWARD, "", name, stable_reason(reason), count=count)


def _row(
    kind: OpCountKind,
    phase: StepPhase,
    module: str,
    name: str,
    detail: str = "",
    *,
    implementation: str = "",
    count: int = 1,
    size_bytes: int = 0,
) -> OpCountRow:
    return OpCountRow(
        kind=kind,
        phase=phase,
        module=module,
        name=name,
        detail=detail,
        implementation=implementation,
        count=count,
        size_bytes=size_bytes,
    )
