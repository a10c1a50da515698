"""What computed an op, and when it is certain that no library did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfguard.profile.libraries.join import NO_LIBRARY, join_step, runners
from perfguard.profile.libraries.verbose import PrimitiveCall, parse_mkl_verbose, parse_verbose
from perfguard.profile.trace.context import context_of
from perfguard.profile.trace.op_spans import OpSpans, spans_of
from perfguard.profile.trace.trace import read_trace
from perfguard.records.steps.ops import OpKey, StepPhase
from tests.library_calls import BASE_NS, US, onednn_call

DATA = Path(__file__).parents[2] / "data" / "profile"
BOTH = ("onednn", "mkl")
MATMUL = "brg_matmul:avx512_core_bf16"


def key_of(name: str, dtypes: str) -> OpKey:
    shapes = "[128,768] [768,3072]"
    return OpKey(phase=StepPhase.FORWARD, module="Net", op=f"aten::{name}", shapes=shapes, dtypes=dtypes, layouts="")


MM, ADDMM, RELU = key_of("mm", "bf16 bf16"), key_of("addmm", "f32 f32"), key_of("relu", "bf16 bf16")
KEYS = (MM, ADDMM, RELU)
OPS = OpSpans(
    start_ns=np.array([0, 200, 400]) * US,
    end_ns=np.array([100, 300, 500]) * US,
    thread=np.zeros(3, dtype=np.int64),
    key=np.arange(3),
    keys=KEYS,
    base_ns=BASE_NS,
)


def call(primitive: str, at_us: float | None, **fields: object) -> PrimitiveCall:
    return onednn_call(primitive, at_us, 20, **{"implementation": MATMUL, **fields})


def sgemm(sizes: str = "3072,128,768", **fields: object) -> PrimitiveCall:
    return call("sgemm", None, library="mkl", implementation="", problem=f"N,N,{sizes}", **fields)


def found(*calls: PrimitiveCall, logged: tuple[str, ...] = BOTH) -> dict[OpKey, tuple[str, ...]]:
    return runners([join_step(OPS, calls)], logged)


def test_an_op_is_computed_by_what_it_called_or_by_no_library():
    calls = (call("matmul", 20), sgemm(line=1))
    assert found(*calls) == {MM: (MATMUL,), ADDMM: ("sgemm of MKL",), RELU: (NO_LIBRARY,)}


def test_of_an_op_whose_primitive_was_only_made_nothing_is_known():
    made = found(call("matmul", 20, operation="create:cache_miss"))
    assert made == {ADDMM: (NO_LIBRARY,), RELU: (NO_LIBRARY,)}


def test_reorders_count_only_where_there_is_nothing_else():
    calls = (call("reorder", 10), call("matmul", 40, line=1), call("reorder", 420, implementation="jit:uni", line=2))
    assert found(*calls) == {MM: (MATMUL,), ADDMM: (NO_LIBRARY,), RELU: ("reorder jit:uni",)}


@pytest.mark.parametrize("logged", [(), ("onednn",), ("mkl",)])
def test_without_the_logs_of_both_libraries_silence_proves_nothing(logged):
    assert found(call("matmul", 20), logged=logged) == {MM: (MATMUL,)}


def test_a_call_of_onednn_that_was_not_placed_may_be_any_ops():
    assert found(call("matmul", 20), call("matmul", 350, line=1)) == {MM: (MATMUL,)}


def test_a_product_of_mkl_that_was_not_placed_is_no_op_of_another_dtype():
    assert found(sgemm("1,2,3")) == {MM: (NO_LIBRARY,), RELU: (NO_LIBRARY,)}


def test_a_reorder_that_was_not_placed_computes_nothing():
    assert found(call("reorder", 350))[MM] == (NO_LIBRARY,)


def test_an_op_that_called_a_library_in_one_step_did_not_leave_it():
    steps = [join_step(OPS, calls) for calls in ([call("matmul", 20)], [])]
    assert runners(steps, BOTH)[MM] == (MATMUL,)
    assert runners([], BOTH) == {}


def test_every_op_of_a_recorded_step_is_known_by_what_ran_it():
    lines = (DATA / "joined_step.log").read_text().splitlines(keepends=True)
    logs = parse_verbose(lines), parse_mkl_verbose(lines)
    trace = read_trace(DATA / "joined_step.json.gz")
    spans = spans_of(trace, context_of(trace), 0)
    known = runners([join_step(spans, [call for log in logs for call in log.calls])], BOTH)
    assert set(known) == set(spans.keys)
    at = {(key.op, key.module, key.phase.value): names for key, names in known.items()}
    assert at["aten::addmm", "Net.block.linear1", "forward"] == ("sgemm of MKL",)
    assert all(":" in name for name in at["aten::mkldnn_convolution", "Net.stem", "forward"])
    assert at["aten::conv2d", "Net.stem", "forward"] == (NO_LIBRARY,)
