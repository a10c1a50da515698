from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.profile.op_counts.details import op_detail, op_detail_text, primitive_detail, primitive_detail_text
from perfguard.profile.op_counts.steady import (
    CompileEvent,
    CountedAllocation,
    CountedOp,
    CountedPrimitive,
    StepCounts,
    is_op,
    op_counts_of,
    pattern_of,
    steady,
)
from perfguard.records.steps.ops import OpCountKind, StepPhase

FORWARD, BACKWARD = StepPhase.FORWARD, StepPhase.BACKWARD
NHWC = "src:f32::blocked:acdb::f0 wei:f32:ap:blocked:Acdb16a::f0 bia:undef::undef:::: dst:f32::blocked:acdb::f0"
NCHW_OLD = "src_f32::blocked:abcd:f0 wei_f32:a:blocked:Acdb16a:f0 dst_f32::blocked:abcd:f0"


def count(**step):
    return op_counts_of(StepCounts(**step), case_id="step.net", isa_class="avx512_core", torch="2.13.0")


def conv(module, **changes):
    fields = {"phase": FORWARD, "module": module, "op": "aten::conv2d", "shapes": "[2,3] [4,3]", "dtypes": "f32 f32"}
    return CountedOp(**(fields | changes))


@pytest.mark.parametrize(
    ("module", "pattern"),
    [
        ("ResNet.layer3.5.conv1", "ResNet.layer3.*.conv1"),
        ("Bert.encoder.11.attention.0", "Bert.encoder.*.attention.*"),
        ("Adam", "Adam"),
        ("", ""),
    ],
)
def test_numbers_of_a_path_become_a_pattern_and_digits_in_names_stay(module, pattern):
    assert pattern_of(module) == pattern


def test_equal_calls_in_all_copies_of_a_block_are_one_row():
    counts = count(ops=[conv("Net.layer1.0.conv1"), conv("Net.layer1.1.conv1", calls=2), conv("Net.layer2.0.conv1")])
    assert [(row.module, row.count) for row in counts.rows] == [("Net.layer1.*.conv1", 3), ("Net.layer2.*.conv1", 1)]


def test_calls_that_differ_in_shape_dtype_layout_or_phase_are_rows_of_their_own():
    different = [{}, {"shapes": "[9]"}, {"dtypes": "bf16 bf16"}, {"layouts": "strided strided"}, {"phase": BACKWARD}]
    counts = count(ops=[conv("Net.conv", **changes) for changes in different])
    assert [row.count for row in counts.rows] == [1] * 5


@pytest.mark.parametrize(
    "name",
    [
        "autograd::engine::evaluate_function: ConvolutionBackward0",
        "torch::autograd::AccumulateGrad",
        "ConvolutionBackward0",
        "module:Net.conv1",
        "perfguard::step",
        "profiler::_record_function_enter_new",
        "Optimizer.step#Adam.step",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "(python)",
    ],
)
def test_nodes_of_autograd_annotations_and_python_are_not_counted(name):
    assert not is_op(name)
    assert count(ops=[conv("Net", op=name)]).rows == ()


@pytest.mark.parametrize("name", ["aten::_fused_adam_", "torchvision::nms", "mkldnn::_linear_pointwise"])
def test_ops_of_other_libraries_are_counted(name):
    assert count(ops=[conv("Net", op=name)]).rows[0].name == name


def test_a_primitive_is_counted_by_direction_problem_memory_and_implementation():
    call = CountedPrimitive(
        phase=BACKWARD,
        module="Net.4.conv",
        primitive="convolution",
        direction="BWD_W",
        implementation="brg_conv_bwd_w:avx512_core",
        memory=NHWC,
        problem="mb2_ic3oc8",
        attributes="attr-scratchpad:user",
    )
    (row,) = count(primitives=[call, call]).rows
    assert (row.kind, row.name, row.implementation, row.count, row.module) == (
        OpCountKind.PRIMITIVE,
        "convolution BWD_W",
        "brg_conv_bwd_w:avx512_core",
        2,
        "Net.*.conv",
    )
    assert row.detail == f"{NHWC} | mb2_ic3oc8"


def test_attributes_of_a_primitive_count_but_for_the_scratchpad():
    call = CountedPrimitive(
        phase=FORWARD,
        module="",
        primitive="matmul",
        attributes="attr-scratchpad:user attr-post-ops:eltwise_relu",
        memory="src:f32::blocked:ab::f0",
        problem="2x3:3x4",
    )
    (row,) = count(primitives=[call]).rows
    assert row.detail == "src:f32::blocked:ab::f0 | 2x3:3x4 | attr-post-ops:eltwise_relu"


def test_cache_misses_of_changing_shapes_are_one_row_with_the_number_of_them():
    misses = [
        CountedPrimitive(
            phase=FORWARD, module="Net", primitive="deconvolution", direction="FWD_D", problem=f"l{length}", made=True
        )
        for length in (80, 83)
    ]
    (row,) = count(primitives=misses).rows
    assert (row.name, row.detail, row.implementation, row.count) == ("cache_miss", "deconvolution FWD_D", "", 2)


def test_allocations_of_a_place_are_one_row_with_their_bytes():
    made = [
        CountedAllocation(phase=FORWARD, module="Net.0", size_bytes=256),
        CountedAllocation(phase=FORWARD, module="Net.1", size_bytes=768, calls=2),
    ]
    (row,) = count(allocations=made).rows
    assert (row.kind, row.module, row.count, row.size_bytes) == (OpCountKind.ALLOCATION, "Net.*", 3, 1024)


def test_a_compilers_reason_keeps_neither_addresses_nor_folders_nor_line_breaks():
    event = CompileEvent(name="graph_break", reason="call of <f at 0x7f12ab34cd56>\n  at /home/ann/src/train.py:88")
    (row,) = count(compile_events=[event]).rows
    assert row.detail == "call of <f at 0x…> at train.py:88"


def test_nothing_counted_is_an_empty_op_counts():
    assert count().rows == ()


@given(st.randoms(use_true_random=False))
def test_the_order_of_calls_does_not_matter(random):
    ops = [conv(f"Net.{n % 3}.conv", calls=n + 1, shapes=f"[{n % 2}]") for n in range(8)]
    shuffled = list(ops)
    random.shuffle(shuffled)
    assert count(ops=shuffled) == count(ops=ops)


def test_steps_that_agree_are_steady():
    counts = count(ops=[conv("Net.conv")])
    assert steady([counts, counts]).op_counts == counts
    assert steady([counts]).varying == ()


def test_what_steps_count_otherwise_is_left_out_and_named_with_its_largest_count():
    steps = [count(ops=[conv("Net.a"), conv("Net.b", calls=calls)]) for calls in (1, 3, 2)]
    found = steady(steps)
    assert [row.module for row in found.op_counts.rows] == ["Net.a"]
    assert [(row.module, row.count) for row in found.varying] == [("Net.b", 3)]


def test_what_only_some_steps_do_is_not_steady():
    found = steady([count(ops=[conv("Net.a")]), count(ops=[conv("Net.a"), conv("Net.b")])])
    assert [row.module for row in found.varying] == ["Net.b"]


def test_an_ops_detail_is_read_as_it_was_written():
    text = op_detail_text("[2,3] [4]", "bf16 f32", "channels_last contiguous")
    detail = op_detail(text)
    assert (detail.shapes, detail.dtypes, detail.layouts) == ("[2,3] [4]", "bf16 f32", "channels_last contiguous")
    assert detail.channels_last == 1
    assert op_detail_text("", "", "") == ""
    assert op_detail("").shapes == ""


def test_a_primitives_detail_is_read_as_it_was_written():
    detail = primitive_detail(primitive_detail_text(NHWC, "mb2_ic3oc8", "attr-fpmath:bf16"))
    assert (detail.memory, detail.problem, detail.attributes) == (NHWC, "mb2_ic3oc8", "attr-fpmath:bf16")


def test_descriptors_of_both_generations_are_read():
    new, old = (primitive_detail(primitive_detail_text(memory, "p")) for memory in (NHWC, NCHW_OLD))
    assert [(d.argument, d.dtype, d.tag) for d in new.descriptors] == [
        ("src", "f32", "acdb"),
        ("wei", "f32", "Acdb16a"),
        ("bia", "undef", ""),
        ("dst", "f32", "acdb"),
    ]
    assert [(d.argument, d.dtype, d.tag) for d in old.descriptors] == [
        ("src", "f32", "abcd"),
        ("wei", "f32", "Acdb16a"),
        ("dst", "f32", "abcd"),
    ]
    assert (new.channels_last, old.channels_last) == (2, 0)


def test_gradients_count_as_activations_and_weights_do_not():
    memory = "diff_src:bf16::blocked:acdb::f0 wei:bf16::blocked:acdb::f0 diff_dst:bf16::blocked:aBcd16b::f0"
    assert primitive_detail(memory).channels_last == 1


def test_descriptors_that_cannot_be_read_are_passed_over():
    detail = primitive_detail("rubbish src:f32 :: src_f999::blocked:ab:f0")
    assert [(d.argument, d.dtype, d.tag) for d in detail.descriptors] == [("src", "f32", "")]


def test_a_reorder_tells_its_layouts_and_what_it_writes():
    memory = "src:f32::blocked:abcd::f0 dst:bf16:p:blocked:aBcd16b::f0"
    detail = primitive_detail(primitive_detail_text(memory, "2x64x56x56"))
    assert detail.tags == "abcd → aBcd16b"
    assert detail.written_bytes == 2 * 64 * 56 * 56 * 2
    assert primitive_detail(primitive_detail_text(memory, "mb2_ic3")).written_bytes == 0
