from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.profile.libraries.mkl_join import place_by_size
from perfguard.profile.libraries.verbose import PrimitiveCall, parse_mkl_verbose
from perfguard.profile.trace.op_spans import NO_OP, OpSpans
from perfguard.records.steps.ops import OpKey, StepPhase
from tests.changed_values import replace

LENGTH_NS = 100_000
GAP_NS = 5_000


def key_of(op: str, shapes: str, dtype: str = "f32") -> OpKey:
    dtypes = " ".join([dtype] * len(shapes.split()))
    return OpKey(phase=StepPhase.FORWARD, module="", op=f"aten::{op}", shapes=shapes, dtypes=dtypes, layouts="")


def spans_of(*keys: OpKey) -> OpSpans:
    """Ops one after the other, each as long."""
    starts = np.arange(len(keys), dtype=np.int64) * (LENGTH_NS + GAP_NS)
    return OpSpans(
        start_ns=starts,
        end_ns=starts + LENGTH_NS,
        thread=np.zeros(len(keys), dtype=np.int64),
        key=np.arange(len(keys)),
        keys=keys,
    )


def calls_of(*calls: str, time: str = "5us") -> list[PrimitiveCall]:
    lines = [f"MKL_VERBOSE {call} {time} CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:1" for call in calls]
    log = parse_mkl_verbose(lines)
    assert log.malformed == 0
    return list(log.calls)


def placed(spans: OpSpans, calls: list[PrimitiveCall], rows: list[int] | None = None) -> list[int]:
    return place_by_size(spans, np.arange(len(spans.keys)), calls, rows or [NO_OP] * len(calls))


def gemm(m: int, n: int, k: int, routine: str = "SGEMM") -> str:
    return f"{routine}(N,N,{m},{n},{k},0x1,0x2,{m},0x3,{k},0x4,0x5,{m})"


MM = key_of("mm", "[4,16] [16,8]")
ADDMM = key_of("addmm", "[8] [4,32] [32,8]")
BMM = key_of("bmm", "[6,16,8] [6,8,12]")
SMALL_BMM = key_of("bmm", "[6,4,4] [6,4,4]")
ATTENTION = key_of("_scaled_dot_product_flash_attention_for_cpu", "[2,4,16,8] [2,4,16,8] [2,4,16,8]")
CONVOLUTION = key_of("_slow_conv2d_forward", "[3,8,16,16] [16,8,3,3] [16]")
CONVOLUTION_BACKWARD = key_of("_slow_conv2d_backward", "[3,16,8,8] [3,8,16,16] [16,8,3,3]")
BATCH = "SGEMM_BATCH(N,N,0x1,0x2,0x3,0x4,0x5,0x6,0x7,0x8,0x9,0xa,0xb,0xc,0xd)"


def test_a_call_belongs_to_the_op_of_its_size_whichever_way_round_it_is_computed():
    assert placed(spans_of(MM, ADDMM), calls_of(gemm(8, 4, 16), gemm(4, 8, 32))) == [0, 1]


@pytest.mark.parametrize(
    ("key", "call"),
    [
        (key_of("addmv_", "[4] [4,16] [16]"), "SGEMV(t,16,4,0x1,0x2,16,0x3,1,0x4,0x5,1)"),
        (key_of("dot", "[64] [64]"), "SDOT(64,0x1,1,0x2,1)"),
        (key_of("_fft_r2c", "[4,64]"), "FFT(srfo64*4,input_strides:{0,1},tLim:1,desc:0x1)"),
        (BMM, BATCH),
        (key_of("mm", "[4,16] [16,8]", "f64"), gemm(8, 4, 16, "DGEMM")),
        (key_of("mm", "[4,16] [16,8]", "c64"), gemm(8, 4, 16, "CGEMM")),
    ],
)
def test_routines_and_the_ops_that_call_them(key, call):
    assert placed(spans_of(ADDMM, key), calls_of(call)) == [1]


@pytest.mark.parametrize(
    ("key", "call"),
    [
        (key_of("mm", "[4,16] [16,8]", "f64"), gemm(8, 4, 16)),
        (key_of("mm", "[4,16] [16,8]", "bf16"), gemm(8, 4, 16)),
        (key_of("mm", ""), gemm(8, 4, 16)),
        (key_of("mul", "[4,16] [16,8]"), gemm(8, 4, 16)),
        (MM, gemm(8, 4, 17)),
        (MM, BATCH),
        (BMM, gemm(12, 16, 8)),
        (MM, "SGETRF(16,16,0x1,16,0x2,0)"),
    ],
)
def test_a_call_that_no_op_can_have_made_stays_unplaced(key, call):
    assert placed(spans_of(key), calls_of(call)) == [NO_OP]


@pytest.mark.parametrize(
    "key",
    [
        key_of("mm", "[4,16] [16,8] [4,8]"),
        key_of("addmm", "[8] [4,16] [16,8] [4,8]"),
        key_of("addmm", "[4,8] [4,16] [16,8] [4,8]"),
        key_of("addmm", "[] [4,16] [16,8]"),
    ],
)
def test_the_tensor_that_a_compiled_product_is_written_to_is_no_operand(key):
    assert placed(spans_of(ADDMM, CONVOLUTION_BACKWARD, key, ATTENTION), calls_of(gemm(8, 4, 16))) == [2]


def test_equal_ops_get_their_calls_in_order():
    assert placed(spans_of(MM, ADDMM, MM), calls_of(*[gemm(8, 4, 16)] * 2)) == [0, 2]


def test_convolutions_as_products_make_one_call_for_each_image_and_backward_two():
    spans = spans_of(CONVOLUTION, ADDMM, CONVOLUTION, CONVOLUTION_BACKWARD, CONVOLUTION_BACKWARD)
    forward, backward = gemm(64, 16, 72), gemm(72, 16, 64)
    assert placed(spans, calls_of(*[forward] * 6, *[backward] * 12)) == [0] * 3 + [2] * 3 + [3] * 6 + [4] * 6


def test_a_convolution_whose_input_has_no_gradient_makes_half_as_many_calls():
    spans = spans_of(CONVOLUTION, CONVOLUTION_BACKWARD)
    assert placed(spans, calls_of(*[gemm(64, 16, 72)] * 6)) == [0] * 3 + [1] * 3


def test_calls_that_cannot_be_shared_out_evenly_stay_unplaced():
    assert placed(spans_of(MM, MM), calls_of(*[gemm(8, 4, 16)] * 3)) == [NO_OP] * 3


def test_an_op_makes_no_calls_that_take_longer_than_itself():
    assert placed(spans_of(MM, MM), calls_of(*[gemm(8, 4, 16)] * 4, time="60us")) == [NO_OP] * 4


def test_small_batches_are_computed_by_torch_itself():
    assert placed(spans_of(SMALL_BMM, BMM), calls_of(BATCH)) == [1]


def test_an_op_that_called_onednn_did_not_call_mkl():
    first, mkl = calls_of(gemm(8, 4, 16), gemm(8, 4, 16))
    onednn = replace(first, library="onednn", primitive="matmul")
    assert placed(spans_of(MM, MM), [onednn, mkl], [0, NO_OP]) == [0, 1]


def test_calls_are_not_dealt_out_to_ops_before_those_whose_calls_stand_before_them():
    first, mkl = calls_of(gemm(8, 4, 16), gemm(8, 4, 16))
    onednn = replace(first, library="onednn", primitive="matmul")
    assert placed(spans_of(MM, ADDMM), [onednn, mkl], [1, NO_OP]) == [1, NO_OP]


def test_blocks_of_attention_lie_between_the_products_around_it():
    spans = spans_of(MM, ATTENTION, ADDMM, ATTENTION)
    calls = calls_of(gemm(8, 4, 16), *[gemm(16, 16, 8)] * 5, gemm(8, 4, 32), *[gemm(16, 16, 8)] * 3)
    assert placed(spans, calls) == [0, 1, 1, 1, 1, 1, 2, 3, 3, 3]


def test_between_two_ops_that_may_both_have_made_a_call_nothing_is_guessed():
    spans = spans_of(MM, ATTENTION, ATTENTION, ADDMM)
    calls = calls_of(gemm(8, 4, 16), gemm(16, 16, 8), gemm(8, 4, 32))
    assert placed(spans, calls) == [0, NO_OP, 3]


def test_two_attentions_side_by_side_share_calls_as_their_blocks_do():
    backward = key_of(f"{ATTENTION.op.removeprefix('aten::')}_backward", "[2,4,16,8] [2,4,16,8]")
    assert placed(spans_of(ATTENTION, backward), calls_of(*[gemm(16, 16, 8)] * 14)) == [0] * 4 + [1] * 10
    assert placed(spans_of(ATTENTION, backward), calls_of(*[gemm(16, 16, 8)] * 15)) == [NO_OP] * 15


def test_the_same_convolution_with_another_stride_is_told_by_the_order():
    strided = key_of("_slow_conv2d_backward", "[1,16,4,4] [1,8,8,8] [16,8,3,3]")
    plain = key_of("_slow_conv2d_backward", "[1,16,8,8] [1,8,8,8] [16,8,3,3]")
    forward = key_of("_slow_conv2d_forward", "[1,8,8,8] [16,8,3,3] [16]")
    spans = spans_of(forward, MM, forward, strided, plain)
    large, small = gemm(64, 16, 72), gemm(16, 16, 72)
    calls = calls_of(large, gemm(8, 4, 16), small, small, small, large, large)
    assert placed(spans, calls) == [0, 1, 2, 3, 3, 4, 4]


def test_attention_in_bf16_calls_both_libraries():
    attention = key_of("_scaled_dot_product_flash_attention_for_cpu", "[2,4,16,8] [2,4,16,8]", "bf16")
    first, mkl, last = calls_of(*[gemm(16, 16, 8, "GEMM_BF16BF16F32")] * 3)
    onednn = [replace(call, library="onednn", primitive="matmul") for call in (first, last)]
    assert placed(spans_of(MM, attention), [onednn[0], mkl, onednn[1]], [1, NO_OP, 1]) == [1, 1, 1]


def test_nothing_is_placed_where_there_are_no_ops_or_no_calls():
    assert placed(spans_of(MM), []) == []
    assert place_by_size(spans_of(MM), np.array([], dtype=np.intp), calls_of(gemm(8, 4, 16)), [NO_OP]) == [NO_OP]


OPS = (MM, ADDMM, BMM, SMALL_BMM, ATTENTION, CONVOLUTION, CONVOLUTION_BACKWARD, key_of("add", "[4,16] [16,8]"))
CALLS = (gemm(8, 4, 16), gemm(8, 4, 32), gemm(64, 16, 72), gemm(16, 16, 8), BATCH, "SDOT(64,0x1,1,0x2,1)", "SGETRF()")


@settings(deadline=None)
@given(st.lists(st.sampled_from(OPS), max_size=10), st.lists(st.sampled_from(CALLS), max_size=16))
def test_whatever_is_called_calls_keep_their_order_and_belong_to_ops_that_multiply(keys, lines):
    spans, calls = spans_of(*keys), calls_of(*lines)
    rows = [row for row in placed(spans, calls) if row != NO_OP]
    assert rows == sorted(rows)
    assert all(keys[row].op != "aten::add" for row in rows)
