"""The differences of a case's ops as a tree: phase, module, op, shapes, what carried it out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import Enum

from msgspec import Struct, field

from perfguard.records.steps.ops import Attribution, ChangeClass, OpCountChange, OpDelta, OpKey, StepPhase
from perfguard.report.culprits import change_text
from perfguard.units import format_number


class OpLevel(str, Enum):
    """What a row of the tree stands for."""

    OP_COUNTS = "op_counts"
    PHASE = "phase"
    MODULE = "module"
    OP = "op"
    SHAPES = "shapes"
    IMPLEMENTATION = "implementation"


class OpNode(Struct, frozen=True, kw_only=True):
    """One row, and what is below it."""

    key: str  # Names it within its case
    level: OpLevel  # What it stands for
    name: str  # What it is called
    baseline_s: float = 0.0  # Seconds in a step of the baseline, everything below included
    candidate_s: float = 0.0  # The same of the candidate
    own_delta_s: float = 0.0  # Difference of the ops directly in it, without modules below
    children: tuple[OpNode, ...] = ()  # What is below it
    delta: OpDelta | None = None  # The op itself, for the innermost rows
    op_counts: OpCountChange | None = None  # What changed, for rows of op counts
    changed: int = 0  # Ops below that are not unchanged

    @property
    def delta_s(self) -> float:
        """Candidate minus baseline."""
        return self.candidate_s - self.baseline_s


class OpRow(Struct, frozen=True, kw_only=True):
    """A node where it stands in the list that is shown."""

    node: OpNode  # The node
    depth: int  # Levels above it
    is_open: bool  # Whether what is below it follows
    share: float | None  # Its part of the step's difference; None where the step did not change


class Frame(Struct, frozen=True, kw_only=True):
    """One frame of a flame graph with what it calls."""

    name: str  # Phase, module or op
    value_s: float  # Seconds in a step of the candidate, everything below included
    delta_s: float  # Candidate minus baseline
    below: tuple[Frame, ...] = ()  # What it calls, largest first


class _Branch(Struct):
    """A module while the tree grows."""

    modules: dict[str, _Branch] = field(default_factory=dict)
    ops: dict[str, list[OpDelta]] = field(default_factory=dict)


def op_count_nodes(changes: Sequence[OpCountChange]) -> tuple[OpNode, ...]:
    """Rows of changed op counts, worst first."""
    return tuple(
        OpNode(key=f"op_counts/{index}", level=OpLevel.OP_COUNTS, name=change_text(change), op_counts=change, changed=1)
        for index, change in enumerate(changes)
    )


def tree_of(deltas: Iterable[OpDelta]) -> tuple[OpNode, ...]:
    """Nodes of the phases, in the order of a step; modules that hold only one module share its row."""
    phases: dict[StepPhase, _Branch] = {}
    for delta in deltas:
        branch = phases.setdefault(delta.key.phase, _Branch())
        for name in filter(None, delta.key.module.split(".")):
            branch = branch.modules.setdefault(name, _Branch())
        branch.ops.setdefault(delta.key.op, []).append(delta)
    return tuple(
        _inner(phase.value, OpLevel.PHASE, phase.value, phases[phase]) for phase in StepPhase if phase in phases
    )


def flat_nodes(deltas: Iterable[OpDelta]) -> tuple[OpNode, ...]:
    """One node for each op at each place, `addmm in ResNet.fc`, in the order given."""
    return tuple(
        _leaf(
            key_of(delta.key),
            OpLevel.OP,
            f"{delta.key.op.removeprefix('aten::')} in {delta.key.module or delta.key.phase.value}",
            delta,
        )
        for delta in deltas
    )


def key_of(key: OpKey) -> str:
    """The key of an op's innermost node in the tree."""
    return f"{key.phase.value}/{key.module}/{key.op}/{tensors_of(key)}"


def first_culprit(attribution: Attribution | None) -> str | None:
    """The node to look at first: the first op of the largest culprit."""
    for culprit in attribution.culprits if attribution is not None else ():
        if culprit.ops:
            return key_of(culprit.ops[0])
    return None


def path_to(nodes: Sequence[OpNode], key: str) -> tuple[str, ...] | None:
    """Keys from the root to a node, itself included; None where it is not there."""
    for node in nodes:
        if node.key == key:
            return (key,)
        below = path_to(node.children, key)
        if below is not None:
            return (node.key, *below)
    return None


def frames_of(nodes: Sequence[OpNode], name: str) -> Frame:
    """The tree as frames of a flame graph, below one for the whole step."""
    below = _frames(nodes)
    value_s, delta_s = sum(frame.value_s for frame in below), sum(frame.delta_s for frame in below)
    return Frame(name=name, value_s=value_s, delta_s=delta_s, below=below)


def _frames(nodes: Iterable[OpNode]) -> tuple[Frame, ...]:
    return tuple(
        Frame(name=node.name, value_s=max(0.0, node.candidate_s), delta_s=node.delta_s, below=_frames(node.children))
        for node in sorted(nodes, key=lambda node: -node.candidate_s)
    )


def _inner(key: str, level: OpLevel, name: str, branch: _Branch) -> OpNode:
    """A phase or module: its modules, then its ops."""
    modules = [_module(key, name_below, below) for name_below, below in branch.modules.items()]
    ops = [_op(f"{key}/" if level is OpLevel.PHASE else key, op, deltas) for op, deltas in branch.ops.items()]
    return _summed(key, level, name, (*modules, *ops), own=ops)


def _module(parent: str, name: str, branch: _Branch) -> OpNode:
    """A module; where it holds nothing but one other module, both share a row."""
    separator = "." if "/" in parent else "/"
    key, shown = f"{parent}{separator}{name}", name
    while len(branch.modules) == 1 and not branch.ops:
        (name, branch), *_ = branch.modules.items()
        key, shown = f"{key}.{name}", f"{shown}.{name}"
    return _inner(key, OpLevel.MODULE, shown, branch)


def _op(parent: str, op: str, deltas: Sequence[OpDelta]) -> OpNode:
    """An op at one place; rows for its shapes only where there are several."""
    if len(deltas) == 1:
        return _leaf(key_of(deltas[0].key), OpLevel.OP, op.removeprefix("aten::"), deltas[0])
    children = tuple(
        _leaf(key_of(delta.key), OpLevel.SHAPES, tensors_of(delta.key) or "no tensors", delta) for delta in deltas
    )
    return _summed(f"{parent}/{op}", OpLevel.OP, op.removeprefix("aten::"), children, own=children)


def _leaf(key: str, level: OpLevel, name: str, delta: OpDelta) -> OpNode:
    """One op; what carried it out is a row below it, where that is known."""
    below = OpNode(key=f"{key}/implementation", level=OpLevel.IMPLEMENTATION, name=delta.detail, delta=delta)
    baseline_s, candidate_s = (s if math.isfinite(s) else 0.0 for s in (delta.baseline_s, delta.candidate_s))
    return OpNode(
        key=key,
        level=level,
        name=name,
        baseline_s=baseline_s,
        candidate_s=candidate_s,
        own_delta_s=candidate_s - baseline_s,
        children=(below,) if delta.detail else (),
        delta=delta,
        changed=int(delta.change is not ChangeClass.UNCHANGED),
    )


def _summed(key: str, level: OpLevel, name: str, children: tuple[OpNode, ...], *, own: Sequence[OpNode]) -> OpNode:
    return OpNode(
        key=key,
        level=level,
        name=name,
        baseline_s=sum(child.baseline_s for child in children),
        candidate_s=sum(child.candidate_s for child in children),
        own_delta_s=sum(node.delta_s for node in own),
        children=children,
        changed=sum(child.changed for child in children),
    )


def tensors_of(key: OpKey) -> str:
    """Shapes, dtypes and layouts of an op; empty where the trace has none."""
    return " ".join(filter(None, (key.shapes, key.dtypes, key.layouts)))


def calls_text(delta: OpDelta) -> str:
    """`1 → 1,240`, or one number where it is the same."""
    before, after = format_number(delta.baseline_calls), format_number(delta.candidate_calls)
    return before if before == after else f"{before} → {after}"
