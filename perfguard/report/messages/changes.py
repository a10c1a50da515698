"""Messages of changes in what a step executes: a headline each; `perfguard.report.culprits` adds place and cost."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.records.facts import Fact
from perfguard.report.messages.message import Message
from perfguard.report.messages.template import fill

_AFFECTED = "[[{affected_ops:op}]][[{affected_primitives:primitive}]]"
_MOVED = (
    "[[, {extra_reorders:extra reorder}]][[, {fewer_reorders:fewer reorder}]]"
    "[[, {extra_copies:extra copy}]][[, {fewer_copies:fewer copy}]]"
    "[[, {extra_casts:extra cast}]][[, {fewer_casts:fewer cast}]]"
)
_LAYOUT = "[[ in {affected_ops:op}]][[ in {affected_primitives:primitive}]][[ ({ops:names})]]"
_KERNEL = "[[; {kernel_lost} → {kernel_gained}]]"
_EVENTS = {
    "graph_break": "Graph breaks",
    "recompile": "Recompiles",
    "unique_graphs": "Compiled graphs",
    "frames": "Frames seen by the compiler",
}
FUSED_KINDS = {
    "attention": "Attention",
    "norm": "Normalization",
    "recurrent": "Recurrent layer",
    "activation": "Activation",
    "loss": "Loss",
    "linear": "Linear layer",
}


def _compile(found: Fact) -> str:
    name = _EVENTS.get(str(found.values["event"]), str(found.values["event"]).replace("_", " "))
    is_same = found.values["before"] == found.values["after"]
    number = "{after}, for other reasons" if is_same else "{before} → {after}"
    return f"{name}: {fill(number + '[[ ({reasons:names})]]', found)}"


def _fusions() -> dict[str, Message]:
    found = {}
    for kind, name in FUSED_KINDS.items():
        found[f"{kind}.unfused"] = Message(
            text=f"{name} no longer fused: {{lost:ops}} → {{gained:ops}}",
            about=f"{name}: what one op did at once is done in pieces.",
        )
        found[f"{kind}.fused"] = Message(
            text=f"{name} now fused: {{lost:ops}} → {{gained:ops}}",
            about=f"{name}: one op does at once what was done in pieces.",
        )
    return found


CHANGES: Mapping[str, Message] = {
    "optimizer.unfused": Message(
        text="{op} no longer fused: {lost:ops} → {after} {gained:ops}",
        about="An optimizer no longer updates all parameters in one op: `fused=True` was lost, or a parameter is on "
        "another device or of another dtype.",
    ),
    "optimizer.fused": Message(
        text="{op} now fused: {before} {lost:ops} → {gained:ops}",
        about="An optimizer updates all parameters in one op.",
    ),
    "optimizer.changed": Message(
        text="{op} executes other ops: [[{before} {lost:ops} → ]][[{after} {gained:ops}]]",
        about="An optimizer executes other ops than before, neither fused nor unfused by that.",
    ),
    "optimizer.replaced": Message(text="Optimizer replaced: {replaced} → {op}", about="Another optimizer updates."),
    "optimizer.parameters_changed": Message(
        text="{op} updates {before} tensors of {elements_before} elements → {after} of {elements_after}",
        about="An optimizer does the same for other parameters.",
    ),
    **_fusions(),
    "implementation.changed": Message(
        text="{primitive}: {lost} → {gained}[[ and {others} more]][[, {calls:call}]][[, {tensors}]]",
        about="oneDNN runs primitives with other kernels, for example with a narrower instruction set.",
    ),
    "library.changed": Message(
        text="{lost} → {gained}, {calls:call}",
        about="Ops that a library ran are run by another one, or by torch's own loops.",
    ),
    "convolution.changed": Message(
        text="Convolution: {lost:ops} → {gained:ops}, {calls:call}",
        about="torch computes convolutions with another op.",
    ),
    "layout.lost": Message(
        text="channels_last lost[[, now {gained}]]" + _LAYOUT + _MOVED + _KERNEL,
        about="Tensors are no longer channels-last, so kernels are slower or need reorders.",
    ),
    "layout.gained": Message(
        text="channels_last gained" + _LAYOUT + _MOVED + _KERNEL, about="Tensors are channels-last now."
    ),
    "layout.changed": Message(
        text="Other layout[[: {lost} → {gained}]]" + _LAYOUT + _MOVED, about="Tensors have another memory layout."
    ),
    "dtype.changed": Message(
        text="{gained} instead of {lost}" + _LAYOUT + _MOVED, about="Ops compute in another dtype."
    ),
    "shapes.changed": Message(
        text="Other shapes" + "[[ in {affected_ops:op}]][[ in {affected_primitives:primitive}]]"
        "[[: {examples:names}]]" + _MOVED,
        about="Ops compute on tensors of other shapes.",
    ),
    "copies.added": Message(
        text="{number:extra copy}[[ ({by}[[ of {tensor}]])]]", about="Tensors are copied that were not before."
    ),
    "copies.removed": Message(
        text="{number:fewer copy}[[ ({by}[[ of {tensor}]])]]", about="Tensors are copied less often."
    ),
    "reorders.added": Message(
        text="{number:extra reorder}[[ ({layouts:names}[[, {written_bytes}]])]]",
        about="oneDNN converts tensors into another memory layout that it did not convert before.",
    ),
    "reorders.removed": Message(
        text="{number:fewer reorder}[[ ({layouts:names}[[, {written_bytes}]])]]", about="oneDNN converts fewer tensors."
    ),
    "reorders.changed": Message(
        text="{number:reorder} between other layouts", about="As many reorders as before, between other layouts."
    ),
    "ops.added": Message(text="{ops:names} added ({after:call})", about="Ops that the baseline did not call."),
    "ops.removed": Message(text="{ops:names} removed ({before:call})", about="Ops that are no longer called."),
    "ops.replaced": Message(
        text="{before} {lost:ops} → {after} {gained:ops}", about="Ops gave way to other ones at the same place."
    ),
    "ops.moved": Message(
        text=_AFFECTED + " moved from {source} to {target}[[ and {others} more places]][[ ({ops:names})]]",
        about="The same ops are called in other modules: a renamed module, for example.",
    ),
    "calls.added": Message(
        text="{ops:names} called more often: {before} → {after}", about="Ops are called more often."
    ),
    "calls.removed": Message(text="{ops:names} called less often: {before} → {after}", about="Fewer calls of ops."),
    "allocations.changed": Message(
        text="Allocations: [[{calls_before} → ]]{after} per step, [[{size_before_bytes} → ]]{size_after_bytes}"
        "[[ ({more_bytes} more)]][[ ({fewer_bytes} less)]]{is_elsewhere?, at other places|}",
        about="A step allocates more or less memory, or more or less often.",
    ),
    "cache_misses.changed": Message(
        text="Primitive-cache misses: {before} → {after} per step[[ ({primitives:names})]]",
        about="oneDNN makes primitives again in steady steps: shapes keep changing, or its cache is too small.",
    ),
    "compile.changed": Message(
        text=_compile, about="Graph breaks, recompiles or other events of `torch.compile`, counted in the whole run."
    ),
    "op.slower": Message(
        text="{ops:ops} [[{changed_ratio} ]]slower[[ on {tensors}]]",
        about="An op takes longer, although it is called as before.",
    ),
    "op.faster": Message(
        text="{ops:ops} [[{changed_ratio} ]]faster[[ on {tensors}]]",
        about="An op takes less time, although it is called as before.",
    ),
    "python.time": Message(
        text="{is_more?More|Less} Python time",
        about="Time outside all ops: the interpreter, dispatch, and code that torch does not see.",
    ),
    "cost.moved": Message(
        text="{moved_s} moved from {source} in {source_module} to {target} in {target_module}, not a culprit",
        about="A cost left one op and came to another, and the step took as long as before.",
    ),
    "ops.went_the_other_way": Message(
        text="the few profiled steps went the other way, so they explain little",
        about="The profiled steps contradict the verdict, which rests on many more steps.",
    ),
    "ops.differ_in_few_steps": Message(
        text="unchanged over all blocks; only the few profiled steps differ",
        about="The profiled steps differ, and the case is unchanged.",
    ),
    "op_counts.other_case": Message(
        text="op counts are of {counted}, not of {case_id}", about="Stored op counts are of another case."
    ),
    "op_counts.other_isa": Message(
        text="op counts are of a machine with [[{counted}]]{counted?|unknown instruction sets}, this one has "
        "[[{here}]]{here?|unknown ones}: libraries choose other kernels → perfguard baseline update",
        about="Stored op counts are of a machine with other instruction sets.",
    ),
    "trace.no_shapes": Message(
        text="{trace} has no shapes and the other trace has, so no op matches; record both alike",
        about="One of two traces was recorded without shapes.",
    ),
}
"""What changed in what a step executes, and what is to know of a comparison of ops."""
