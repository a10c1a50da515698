from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.profile.op_counts.details import op_detail, op_detail_text, primitive_detail, primitive_detail_text
from perfguard.profile.op_counts.steady import is_op, op_counts_of, pattern_of
from perfguard.records.steps.ops import OpCountKind, StepPhase
from tests.op_count_rows import allocation, op

FORWARD, BACKWARD = StepPhase.FORWARD, StepPhase.BACKWARD
NHWC = "src:f32::blocked:acdb::f0 wei:f32:ap:blocked:Acdb16a::f0 bia:undef::undef:::: dst:f32::blocked:acdb::f0"
NCHW_OLD = "src_f32::blocked:abcd:f0 wei_f32:a:blocked:Acdb16a:f0 dst_f32::blocked:abcd:f0"


def count(*rows):
    return op_counts_of(rows, case_id="step.net", isa_class="avx512_core", torch="2.13.0")


def conv(module, **changes):
    return op("conv2d", **({"module": module, "shapes": "[2,3] [4,3]", "dtypes": "f32 f32", "layouts": ""} | changes))


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
    counts = count(conv("Net.layer1.0.conv1"), conv("Net.layer1.1.conv1", calls=2), conv("Net.layer2.0.conv1"))
    assert [(row.module, row.count) for row in counts.rows] == [("Net.layer1.*.conv1", 3), ("Net.layer2.*.conv1", 1)]


def test_calls_that_differ_in_shape_dtype_layout_or_phase_are_rows_of_their_own():
    different = [{}, {"shapes": "[9]"}, {"dtypes": "bf16 bf16"}, {"layouts": "strided strided"}, {"phase": BACKWARD}]
    counts = count(*(conv("Net.conv", **changes) for changes in different))
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


@pytest.mark.parametrize("name", ["aten::_fused_adam_", "torchvision::nms", "mkldnn::_linear_pointwise"])
def test_ops_of_other_libraries_are_counted(name):
    assert is_op(name)


def test_allocations_of_a_place_are_one_row_with_their_bytes():
    (row,) = count(allocation(1, 256, "Net.0"), allocation(2, 768, "Net.1")).rows
    assert (row.kind, row.module, row.count, row.size_bytes) == (OpCountKind.ALLOCATION, "Net.*", 3, 1024)


def test_nothing_counted_is_an_empty_op_counts():
    assert count().rows == ()


@given(st.randoms(use_true_random=False))
def test_the_order_of_calls_does_not_matter(random):
    ops = [conv(f"Net.{n % 3}.conv", calls=n + 1, shapes=f"[{n % 2}]") for n in range(8)]
    shuffled = list(ops)
    random.shuffle(shuffled)
    assert count(*shuffled) == count(*ops)


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
