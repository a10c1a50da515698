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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from perfguard.profile.op_counts.details import op_detail_text, primitive_detail_text, stable_reason
from perfguard.records.steps.ops import OpCountKind, OpCountRow, OpCounts, StepPhase

CACHE_MISS = "cache_miss"
"""Name of the rows that count primitives which had to be made; their detail says of which primitive."""
ALLOCATIONS = "allocations"
"""Name of the rows that count allocations."""

UNPLACED = "(unplaced)"
"""Module of library calls of which it is not known what op made them."""

ROW_ORDER = attrgetter("kind", "phase", "module", "name", "detail", "implementation")
"""Sorts rows; two rows of op counts differ in it."""

_NOT_OPS = ("autograd::", "torch::autograd::", "profiler::", "perfguard::", "module:")
_SCRATCHPAD = "attr-scratchpad:"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedOp:
    """Calls of one op at one place."""

    phase: StepPhase
    """Part of the step."""
    module: str
    """Path of the module, numbers and all; empty outside modules."""
    op: str
    """As in the trace; what is no op is passed over."""
    shapes: str = ""
    """`[2,64,56,56] [64,64,1,1]`."""
    dtypes: str = ""
    """`bf16 bf16`."""
    layouts: str = ""
    """`channels_last contiguous`."""
    calls: int = 1
    """How often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPrimitive:
    """Executions of one primitive, or one that had to be made."""

    phase: StepPhase
    """Part of the step."""
    module: str
    """Path of the module; empty outside modules."""
    primitive: str
    """`convolution`; for MKL the routine."""
    direction: str = ""
    """benchdnn's word; empty where it has none."""
    implementation: str = ""
    """`brg_conv_fwd:avx512_core`; empty for MKL."""
    memory: str = ""
    """Memory descriptors as logged."""
    problem: str = ""
    """The problem; the routine's arguments for MKL."""
    attributes: str = ""
    """As logged; the scratchpad's mode is left out."""
    made: bool = False
    """Whether this was a creation that the primitive cache could not serve, not an execution."""
    calls: int = 1
    """How often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedAllocation:
    """Allocations at one place."""

    phase: StepPhase
    """Part of the step."""
    module: str
    """Path of the module; empty outside modules."""
    size_bytes: int
    """All of them together, as asked for."""
    calls: int = 1
    """How many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileEvent:
    """Something that torch.compile did."""

    name: str
    """`graph_break`, `recompile`, …"""
    reason: str = ""
    """Its own words."""
    phase: StepPhase = StepPhase.FORWARD
    """Part of the step."""
    module: str = ""
    """Path of the compiled module; empty where unknown."""
    calls: int = 1
    """How often."""


_Counted = CountedOp | CountedPrimitive | CountedAllocation | CompileEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """All that one steady step executed, in any order."""

    ops: Sequence[CountedOp] = ()
    """Ops."""
    primitives: Sequence[CountedPrimitive] = ()
    """Primitives of oneDNN, routines of MKL."""
    allocations: Sequence[CountedAllocation] = ()
    """Allocations."""
    compile_events: Sequence[CompileEvent] = ()
    """Events of the compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyOpCounts:
    """What several steps of one process have in common."""

    op_counts: OpCounts
    """Rows that every step counts alike."""
    varying: tuple[OpCountRow, ...]
    """Rows that they do not, with the largest count: nothing exact can be said of them. Empty for most models."""


def op_counts_of(step: StepCounts, *, case_id: str, isa_class: str, torch: str) -> OpCounts:
    """Count one step.

    Args:
        step: What it executed.
        case_id: The case.
        isa_class: The widest instruction set of the *machine*, in oneDNN's words. One that a variable caps is not it:
            the cap would make the op counts incomparable instead of showing what it did.
        torch: torch's version.
    """
    counts: Counter[OpCountRow] = Counter()
    sizes: Counter[OpCountRow] = Counter()
    for op in step.ops:
        if is_op(op.op):
            counts[_op_row(op)] += op.calls
    for primitive in step.primitives:
        counts[_primitive_row(primitive)] += primitive.calls
    for allocation in step.allocations:
        row = _row(OpCountKind.ALLOCATION, allocation, ALLOCATIONS)
        counts[row] += allocation.calls
        sizes[row] += allocation.size_bytes
    for event in step.compile_events:
        row = _row(OpCountKind.COMPILE, event, event.name, stable_reason(event.reason))
        counts[row] += event.calls
    rows = (replace(row, count=count, size_bytes=sizes[row]) for row, count in counts.items() if count > 0)
    return OpCounts(case_id=case_id, isa_class=isa_class, torch=torch, rows=sorted_rows(rows))


def steady(steps: Sequence[OpCounts]) -> SteadyOpCounts:
    """Keep what all steps of a process count alike.

    Args:
        steps: At least one; of one case, in any order.
    """
    first, *others = steps
    common = set(first.rows).intersection(*(step.rows for step in others))
    varying: dict[OpCountRow, OpCountRow] = {}
    for row in (row for step in steps for row in step.rows if row not in common):
        place = replace(row, count=0, size_bytes=0)
        varying[place] = max(varying.get(place, row), row, key=attrgetter("count", "size_bytes"))
    return SteadyOpCounts(op_counts=replace(first, rows=sorted_rows(common)), varying=sorted_rows(varying.values()))


def sorted_rows(rows: Iterable[OpCountRow]) -> tuple[OpCountRow, ...]:
    """Rows in the order of op counts."""
    return tuple(sorted(rows, key=ROW_ORDER))


def pattern_of(module: str) -> str:
    """`ResNet.layer3.*.conv1` for `ResNet.layer3.5.conv1`: numbers count the copies of one thing."""
    return ".".join("*" if part.isdigit() else part for part in module.split("."))


def is_op(name: str) -> bool:
    """Whether an event is an op of torch or of an extension, such as `aten::mul` or `torchvision::nms`."""
    return "::" in name and not name.startswith(_NOT_OPS) and " " not in name


def _op_row(op: CountedOp) -> OpCountRow:
    return _row(OpCountKind.OP, op, op.op, op_detail_text(op.shapes, op.dtypes, op.layouts))


def _primitive_row(primitive: CountedPrimitive) -> OpCountRow:
    name = f"{primitive.primitive} {primitive.direction}".rstrip()
    if primitive.made:
        # Not the problem: where shapes keep changing, it is another one in each step, and the count is what is steady.
        return _row(OpCountKind.PRIMITIVE, primitive, CACHE_MISS, name)
    attributes = " ".join(word for word in primitive.attributes.split() if not word.startswith(_SCRATCHPAD))
    detail = primitive_detail_text(primitive.memory, primitive.problem, attributes)
    return _row(OpCountKind.PRIMITIVE, primitive, name, detail, primitive.implementation)


def _row(kind: OpCountKind, counted: _Counted, name: str, detail: str = "", implementation: str = "") -> OpCountRow:
    """A row that counts nothing yet."""
    return OpCountRow(
        kind=kind,
        phase=counted.phase,
        module=pattern_of(counted.module),
        name=name,
        detail=detail,
        implementation=implementation,
        count=0,
    )
