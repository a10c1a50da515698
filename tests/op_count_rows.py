"""Small op counts for the tests of their comparison."""

from __future__ import annotations

from perfguard.profile.changes.op_counts import compare_op_counts
from perfguard.profile.op_counts.details import op_detail_text, primitive_detail_text
from perfguard.profile.op_counts.steady import ALLOCATIONS, CACHE_MISS, op_counts_of
from perfguard.records.steps.ops import OpCountKind, OpCountRow, StepPhase
from tests.changed_values import replace

LOAD, FORWARD, LOSS, BACKWARD, OPTIMIZER = StepPhase
ADAM = {"module": "Adam", "phase": OPTIMIZER}
BRGEMM = "brg_conv_fwd:avx512_core_bf16"
CONV_OPS = "conv2d convolution _convolution mkldnn_convolution"
NHWC = "src:f32::blocked:acdb::f0 wei:f32:ap:blocked:Acdb16a::f0 dst:f32::blocked:acdb::f0"
NCHW = "src:f32::blocked:abcd::f0 wei:f32:ap:blocked:Acdb16a::f0 dst:f32::blocked:abcd::f0"
NHWC_BF16 = NHWC.replace("f32", "bf16")
TO_BLOCKED = "src:f32::blocked:abcd::f0 dst:f32:p:blocked:aBcd16b::f0"


def row(kind, name, detail="", *, module="", phase=FORWARD, implementation="", calls=1, size_bytes=0):
    return OpCountRow(
        kind=OpCountKind(kind),
        phase=phase,
        module=module,
        name=name,
        detail=detail,
        implementation=implementation,
        count=calls,
        size_bytes=size_bytes,
    )


def op(name, calls=1, *, module="Net.body", phase=FORWARD, shapes="[2,64,56,56]", dtypes="f32", layouts="contiguous"):
    detail = op_detail_text(shapes, dtypes, layouts)
    return row("op", f"aten::{name}", detail, module=module, phase=phase, calls=calls)


def ops(names, calls=1, **place):
    return [op(name, calls, **place) for name in names.split()]


def conv(
    implementation,
    calls=1,
    *,
    module="Net.body",
    phase=FORWARD,
    memory=NHWC,
    problem="mb2_ic64oc64",
    primitive="convolution",
    direction=None,
    attributes="",
):
    direction = ("FWD_D" if phase is FORWARD else "BWD_D") if direction is None else direction
    detail = primitive_detail_text(memory, problem, attributes)
    name = f"{primitive} {direction}".rstrip()
    return row("primitive", name, detail, module=module, phase=phase, implementation=implementation, calls=calls)


def reorder(calls=1, *, memory=TO_BLOCKED, **place):
    changes = {"primitive": "reorder", "direction": "", "problem": "2x64x56x56", "memory": memory} | place
    return conv("jit:uni", calls, **changes)


def miss(calls=1, primitive="convolution"):
    return row("primitive", CACHE_MISS, f"{primitive} FWD_D", module="Net.body", calls=calls)


def allocation(calls, size_bytes, module="Net.body"):
    return row("allocation", ALLOCATIONS, module=module, calls=calls, size_bytes=size_bytes)


def compiled(name, reason="", calls=1):
    return row("compile", name, reason, calls=calls)


def counts(*counted, torch="2.13.0", isa_class="avx512_core_bf16", case_id="step.net"):
    flat = [one for entry in counted for one in (entry if isinstance(entry, list) else [entry])]
    return op_counts_of(flat, case_id=case_id, isa_class=isa_class, torch=torch)


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
