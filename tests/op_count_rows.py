"""Small op counts for the tests of their comparison."""

from __future__ import annotations

from dataclasses import replace

from perfguard.profile.changes.op_counts import compare_op_counts
from perfguard.profile.op_counts.steady import (
    CompileEvent,
    CountedAllocation,
    CountedOp,
    CountedPrimitive,
    StepCounts,
    op_counts_of,
)
from perfguard.records.steps.ops import StepPhase

LOAD, FORWARD, LOSS, BACKWARD, OPTIMIZER = StepPhase
ADAM = {"module": "Adam", "phase": OPTIMIZER}
BRGEMM = "brg_conv_fwd:avx512_core_bf16"
CONV_OPS = "conv2d convolution _convolution mkldnn_convolution"
NHWC = "src:f32::blocked:acdb::f0 wei:f32:ap:blocked:Acdb16a::f0 dst:f32::blocked:acdb::f0"
NCHW = "src:f32::blocked:abcd::f0 wei:f32:ap:blocked:Acdb16a::f0 dst:f32::blocked:abcd::f0"
NHWC_BF16 = NHWC.replace("f32", "bf16")
TO_BLOCKED = "src:f32::blocked:abcd::f0 dst:f32:p:blocked:aBcd16b::f0"


def op(name, calls=1, *, module="Net.body", phase=FORWARD, shapes="[2,64,56,56]", dtypes="f32", layouts="contiguous"):
    return CountedOp(
        phase=phase, module=module, op=f"aten::{name}", shapes=shapes, dtypes=dtypes, layouts=layouts, calls=calls
    )


def ops(names, calls=1, **place):
    return [op(name, calls, **place) for name in names.split()]


def conv(implementation, calls=1, *, module="Net.body", phase=FORWARD, memory=NHWC, problem="mb2_ic64oc64", **more):
    fields = {"primitive": "convolution", "direction": "FWD_D" if phase is FORWARD else "BWD_D"} | more
    return CountedPrimitive(
        phase=phase, module=module, implementation=implementation, memory=memory, problem=problem, calls=calls, **fields
    )


def reorder(calls=1, *, memory=TO_BLOCKED, **place):
    changes = {"primitive": "reorder", "direction": "", "problem": "2x64x56x56", "memory": memory} | place
    return conv("jit:uni", calls, **changes)


def miss(calls=1, primitive="convolution"):
    return conv("jit:avx2", calls, primitive=primitive, made=True)


def allocation(calls, size_bytes, module="Net.body"):
    return CountedAllocation(phase=FORWARD, module=module, size_bytes=size_bytes, calls=calls)


def compiled(name, reason="", calls=1):
    return CompileEvent(name=name, reason=reason, calls=calls)


def counts(*counted, torch="2.13.0", isa_class="avx512_core_bf16", case_id="step.net"):
    flat = [one for entry in counted for one in (entry if isinstance(entry, list) else [entry])]
    step = StepCounts(
        ops=[one for one in flat if isinstance(one, CountedOp)],
        primitives=[one for one in flat if isinstance(one, CountedPrimitive)],
        allocations=[one for one in flat if isinstance(one, CountedAllocation)],
        compile_events=[one for one in flat if isinstance(one, CompileEvent)],
    )
    return op_counts_of(step, case_id=case_id, isa_class=isa_class, torch=torch)


def elsewhere(counted, module):
    return [replace(one, module=module) for one in (counted if isinstance(counted, list) else [counted])]


def changes(before, after):
    return compare_op_counts(counts(before), counts(after))


def told(before, after):
    return [(change.rule, change.fact.code) for change in changes(before, after)]


def only(before, after):
    (change,) = changes(before, after)
    return change


def said(change):
    """What a fact says beside its code and its counts: where, and the values that the change alone has."""
    general = ("before", "after", "phases", "places")
    return {
        name: value for name, value in change.fact.values.items() if name not in general and value not in (None, ())
    }


def where(change):
    return change.fact.values["phases"], change.fact.subject.op, change.fact.values["places"]
