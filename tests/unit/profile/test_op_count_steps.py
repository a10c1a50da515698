from __future__ import annotations

import pytest

from perfguard.profile.libraries.join import JoinedStep
from perfguard.profile.op_counts.steady import UNPLACED, counts_of_steps, op_counts_of
from perfguard.profile.trace.context import context_of
from perfguard.profile.trace.trace import read_trace
from perfguard.records.steps.ops import OpCountKind, OpKey, StepPhase
from tests.library_calls import onednn_call
from tests.profile_traces import TraceBuilder, training_step

FORWARD, BACKWARD = StepPhase.FORWARD, StepPhase.BACKWARD
CONV = OpKey(phase=FORWARD, module="Net.0.conv", op="aten::conv2d", shapes="", dtypes="", layouts="")


def counts(tmp_path, builder, **more):
    trace = read_trace(builder.write(tmp_path / "trace.json"))
    return counts_of_steps(trace, context_of(trace), **more)


def rows(step):
    return op_counts_of(step, case_id="step.net", isa_class="avx2", torch="2.13.0").rows


def call(*, primitive="convolution", **changes):
    fields = {
        "memory": "src:f32::blocked:acdb::f0",
        "attributes": "attr-scratchpad:user",
        "auxiliary": "alg:convolution_direct",
        "problem": "mb2_ic3",
    }
    return onednn_call(primitive, None, 1, **(fields | changes))


def joined(*calls_and_keys):
    return JoinedStep(
        calls=tuple(found for found, _ in calls_and_keys), keys=tuple(key for _, key in calls_and_keys), offset_s=0.0
    )


@pytest.fixture
def one_step():
    builder = TraceBuilder()
    training_step(builder)
    return builder


def test_every_op_of_a_step_is_counted_at_its_place(tmp_path, one_step):
    (step,) = counts(tmp_path, one_step)
    assert {(row.phase.value, row.module, row.name) for row in rows(step)} == {
        ("load", "", "aten::randn"),
        ("forward", "Net.conv", "aten::conv2d"),
        ("forward", "Net.conv", "aten::convolution"),
        ("loss", "MSELoss", "aten::mse_loss"),
        ("loss", "", "aten::ones_like"),
        ("backward", "MSELoss", "aten::mse_loss_backward"),
        ("backward", "Net.conv", "aten::convolution_backward"),
        ("backward", "Net.conv", "aten::detach"),
        ("backward", "", "aten::linalg_vector_norm"),
        ("optimizer", "Adam", "aten::_fused_adam_"),
    }
    assert {row.kind for row in rows(step)} == {OpCountKind.OP}


def test_tensors_are_part_of_what_is_counted(tmp_path, one_step):
    (step,) = counts(tmp_path, one_step)
    (conv,) = [row for row in rows(step) if row.name == "aten::conv2d"]
    assert conv.detail == "[2,3,8,8] [4,3,3,3] | f32 f32 | contiguous contiguous"


def test_equal_steps_have_equal_counts(tmp_path):
    builder = TraceBuilder()
    training_step(builder)
    builder.wait(100)
    training_step(builder, first_sequence=10)
    first, second = counts(tmp_path, builder)
    assert rows(first) == rows(second)


def test_steps_that_differ_have_different_counts(tmp_path):
    builder = TraceBuilder()
    training_step(builder)
    with builder.step():
        builder.leaf("aten::randn", 9)
    first, second = counts(tmp_path, builder)
    assert rows(first) != rows(second)


def test_allocations_are_counted_where_they_happen_and_memory_given_back_is_not(tmp_path):
    builder = TraceBuilder()
    with builder.step(), builder.module("Net"):
        for size_bytes in (256, 512, -256):
            with builder.op("aten::empty"):
                builder.wait(1)
                builder.allocation(size_bytes)
                builder.wait(1)
    (step,) = counts(tmp_path, builder)
    (row,) = [row for row in rows(step) if row.kind is OpCountKind.ALLOCATION]
    assert (row.phase, row.module, row.count, row.size_bytes) == (FORWARD, "Net", 2, 768)


def test_primitives_are_counted_at_the_place_of_their_op(tmp_path, one_step):
    (step,) = counts(tmp_path, one_step, joined=[joined((call(), CONV), (call(), CONV))])
    (row,) = [row for row in rows(step) if row.kind is OpCountKind.PRIMITIVE]
    assert (row.phase, row.module, row.name, row.count) == (FORWARD, "Net.*.conv", "convolution FWD_D", 2)
    assert row.implementation == call().implementation
    assert row.detail == "src:f32::blocked:acdb::f0 | mb2_ic3 | alg:convolution_direct"


def test_attributes_of_a_primitive_count_but_for_the_scratchpad(tmp_path, one_step):
    fused = call(attributes="attr-scratchpad:user attr-post-ops:eltwise_relu", auxiliary="")
    (step,) = counts(tmp_path, one_step, joined=[joined((fused, CONV))])
    (row,) = [row for row in rows(step) if row.kind is OpCountKind.PRIMITIVE]
    assert row.detail == "src:f32::blocked:acdb::f0 | mb2_ic3 | attr-post-ops:eltwise_relu"


def test_cache_misses_of_changing_shapes_are_one_row_with_the_number_of_them(tmp_path, one_step):
    misses = [(call(operation="create:cache_miss", problem=f"l{length}"), CONV) for length in (80, 83)]
    (step,) = counts(tmp_path, one_step, joined=[joined(*misses)])
    (row,) = [row for row in rows(step) if row.kind is OpCountKind.PRIMITIVE]
    assert (row.name, row.detail, row.implementation, row.count) == ("cache_miss", "convolution FWD_D", "", 2)


def test_a_compilers_reason_keeps_neither_addresses_nor_folders_nor_line_breaks(tmp_path, one_step):
    reason = "call of <f at 0x7f12ab34cd56>\n  at /home/ann/src/train.py:88"
    (step,) = counts(tmp_path, one_step, compile_events={f"graph_break: {reason}": 2, "frames": 3})
    (row,) = [row for row in rows(step) if row.kind is OpCountKind.COMPILE]
    assert (row.name, row.detail, row.count) == ("graph_break", "call of <f at 0x…> at train.py:88", 2)


def test_only_creations_that_missed_the_cache_count(tmp_path, one_step):
    made = joined((call(operation="create:cache_miss"), CONV), (call(operation="create:cache_hit"), CONV))
    (step,) = counts(tmp_path, one_step, joined=[made])
    assert [row.name for row in rows(step) if row.kind is OpCountKind.PRIMITIVE] == ["cache_miss"]


def test_a_call_of_no_known_op_goes_by_its_direction_and_has_no_module(tmp_path, one_step):
    unplaced = joined((call(), None), (call(prop_kind="backward_weights"), None))
    (step,) = counts(tmp_path, one_step, joined=[unplaced])
    found = [row for row in rows(step) if row.kind is OpCountKind.PRIMITIVE]
    assert {(row.phase, row.module) for row in found} == {(FORWARD, UNPLACED), (BACKWARD, UNPLACED)}


def test_settings_of_mkl_are_no_part_of_its_work(tmp_path, one_step):
    products = [
        (call(library="mkl", primitive="sgemm", memory="", attributes=f"CNR:OFF NThr:{threads}", auxiliary=""), CONV)
        for threads in (1, 2)
    ]
    (step,) = counts(tmp_path, one_step, joined=[joined(*products)])
    (row,) = [row for row in rows(step) if row.kind is OpCountKind.PRIMITIVE]
    assert (row.count, row.detail) == (2, " | mb2_ic3")
