"""What the rules about memory formats, reorders, copies and casts say."""

from __future__ import annotations

import pytest

from perfguard.records.facts import Severity
from tests.finding_evidence import BACKWARD, FORWARD, conv, nothing, only, op, place_of, reorder, told

IMAGE = "[2,64,56,56]"
PAIR = f"{IMAGE} {IMAGE}"


def test_lost_convolutions_are_counted_by_calls_with_the_copies_around_them():
    finding = only(
        "layout_lost",
        conv(10, calls=50),
        conv(4, reads="contiguous", calls=3, module="Net.layer3.conv1"),
        op("copy_", 2, module="Net.layer3.conv1", shapes=PAIR, source="model.py:31"),
        op("convolution_backward", 6, module="Net.layer3.conv1", phase=BACKWARD, shapes=PAIR),
        op("relu", 20, module="Net.layer3.conv1", shapes=IMAGE),
    )
    assert told(finding, "lost", "convolutions", "copies_s") == (3, 53, 0.002)
    assert place_of(finding) == ("forward backward", "Net.layer3.conv1", 1, "model.py:31")
    assert finding.share == pytest.approx(0.12)
    assert finding.severity is Severity.NOTABLE
    assert [key.op for key in finding.ops] == ["aten::convolution_backward", "aten::convolution", "aten::copy_"]


def test_weights_in_channels_last_are_enough_to_want_it():
    finding = only("layout_lost", conv(10, reads="contiguous", calls=7))
    assert told(finding, "lost", "convolutions") == (7, 7)


@pytest.mark.parametrize("shape", [{"size": 1}, {"reads": "channels_last"}])
def test_a_tensor_that_fits_both_layouts_has_lost_nothing(shape):
    assert nothing("layout_lost", conv(10), conv(10, **{"reads": "contiguous", "module": "Net.squeeze", **shape}))


def test_a_lost_layout_that_costs_next_to_nothing_is_not_told():
    assert nothing("layout_lost", conv(10), conv(0.5, reads="contiguous", module="Net.late"))


def test_a_contiguous_model_has_lost_no_layout():
    plain = conv(30, reads="contiguous", weights="contiguous")
    assert nothing("layout_lost", plain)
    assert only("channels_last_untried", plain).severity is Severity.INFO


def test_all_convolutions_that_take_the_share_are_counted_also_those_of_either_layout():
    plain = conv(20, reads="contiguous", weights="contiguous", module="Net.second")
    either = conv(10, reads="contiguous", weights="contiguous", size=1)
    assert told(only("channels_last_untried", plain, either), "convolutions", "contiguous") == (2, 1)
    assert told(only("channels_last_untried", plain), "convolutions", "contiguous") == (1, 1)


def test_a_model_with_few_convolutions_need_not_change_its_layout():
    assert nothing("channels_last_untried", conv(9, reads="contiguous", weights="contiguous"))


def test_one_channels_last_convolution_is_a_model_that_has_tried():
    plain = conv(30, reads="contiguous", weights="contiguous", module="Net.other")
    assert nothing("channels_last_untried", plain, conv(1))


def test_convolutions_of_one_dimension_have_no_channels_last():
    sequences = op("convolution", 30, shapes="[2,64,512] [64,64,3]")
    assert nothing("channels_last_untried", sequences)
    assert nothing("layout_lost", conv(10), sequences)


def test_a_trace_without_strides_says_nothing_of_layouts():
    shapes = "[2,64,56,56] [64,64,3,3]"
    unknown = op("convolution", 30, shapes=shapes, layouts="contiguous")
    blind = type(unknown)(
        key=type(unknown.key)(phase=FORWARD, module="", op="aten::convolution", shapes=shapes, dtypes="", layouts=""),
        calls=1,
        self_s=0.03,
    )
    assert nothing("channels_last_untried", blind)


@pytest.mark.parametrize(
    ("shapes", "layouts"),
    [
        (PAIR, "channels_last channels_last"),
        (PAIR, "contiguous strided"),
        (f"{IMAGE} [1,64,1,1]", "channels_last contiguous"),
        (f"{IMAGE} [2,64,1,1]", "channels_last contiguous"),
    ],
)
def test_tensors_of_one_layout_or_of_several_shapes_are_not_mixed(shapes, layouts):
    assert nothing("mixed_layouts", op("mul", 20, shapes=shapes, layouts=layouts))


def test_mixed_ops_are_named_longest_first():
    mixed = {"shapes": PAIR, "layouts": "contiguous channels_last", "phase": BACKWARD}
    finding = only(
        "mixed_layouts", op("add_", 2, **mixed), op("threshold_backward", 6, calls=3, module="Net.a", **mixed)
    )
    assert told(finding, "calls", "ops") == (4, ("threshold_backward", "add_"))
    assert finding.share == pytest.approx(0.08)


def test_a_copy_between_layouts_is_no_mixture():
    assert nothing("mixed_layouts", op("copy_", 20, shapes=PAIR, layouts="contiguous channels_last"))


def test_reorders_are_told_with_count_bytes_share_and_layouts():
    finding = only(
        "reorders", reorder(6, calls=12), reorder(1, calls=2, memory="src:f32::blocked:a::f0 dst:f32::blocked:b::f0")
    )
    assert told(finding, "kind", "calls", "time_s", "written_bytes") == ("reorders", 14, 0.007, 22_478_848)
    assert told(finding, "between") == ("abcd → aBcd16b (f32)", "a → b (f32)")
    assert finding.share == pytest.approx(0.07)
    assert place_of(finding) == ("forward", "Net.body", 1, None)
    assert finding.severity is Severity.NOTABLE


def test_reorders_that_no_op_could_be_found_for_have_no_place():
    assert only("reorders", reorder(8, phase=None, module="")).phases == ()


def test_copies_say_between_which_layouts():
    finding = only(
        "copies",
        op("copy_", 9, calls=3, shapes=PAIR, layouts="channels_last contiguous"),
        op("copy_", 2, shapes=PAIR, layouts="contiguous strided", module="Net.b"),
    )
    assert told(finding, "kind", "calls", "time_s") == ("copies", 4, 0.011)
    assert told(finding, "between") == ("contiguous → channels_last (f32)",)


def test_casts_say_between_which_dtypes():
    finding = only("casts", op("copy_", 9, calls=160, shapes=PAIR, dtypes="bf16 f32"))
    assert told(finding, "kind", "calls", "between") == ("casts", 160, ("f32 → bf16",))


def test_copies_of_unknown_dtypes_are_neither():
    unknown = op("copy_", 20, shapes="[8] [8]")
    unknown = type(unknown)(
        key=type(unknown.key)(phase=FORWARD, module="", op="aten::copy_", shapes="[8] [8]", dtypes="", layouts=""),
        calls=1,
        self_s=0.02,
    )
    assert nothing("copies", unknown)
    assert nothing("casts", unknown)
