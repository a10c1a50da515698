"""What the rules about memory formats, reorders, copies and casts say."""

from __future__ import annotations

import pytest

from perfguard.profile.advice import casts, channels_last_untried, copies, layout_lost, mixed_layouts, reorders
from perfguard.records.steps.findings import Severity
from tests.finding_evidence import BACKWARD, FORWARD, conv, evidence, op, reorder

IMAGE = "[2,64,56,56]"
PAIR = f"{IMAGE} {IMAGE}"


def only(module, *items, **more):
    (finding,) = module.RULE.find(evidence(*items, **more))
    return finding


def nothing(module, *items, **more):
    return module.RULE.find(evidence(*items, **more)) == []


def test_lost_convolutions_are_counted_by_calls_with_the_copies_around_them():
    finding = only(
        layout_lost,
        conv(10, calls=50),
        conv(4, reads="contiguous", calls=3, module="Net.layer3.conv1"),
        op("copy_", 2, module="Net.layer3.conv1", shapes=PAIR, source="model.py:31"),
        op("convolution_backward", 6, module="Net.layer3.conv1", phase=BACKWARD, shapes=PAIR),
        op("relu", 20, module="Net.layer3.conv1", shapes=IMAGE),
    )
    assert finding.seen == (
        "3 of 53 convolutions of a step read tensors that are not channels_last",
        "copies at these places take 2.000 ms a step",
    )
    assert finding.where == "in forward and backward of Net.layer3.conv1 (model.py:31)"
    assert finding.share == pytest.approx(0.12)
    assert finding.severity is Severity.NOTABLE
    assert [key.op for key in finding.ops] == ["aten::convolution_backward", "aten::convolution", "aten::copy_"]


def test_weights_in_channels_last_are_enough_to_want_it():
    finding = only(layout_lost, conv(10, reads="contiguous", calls=7))
    assert finding.seen[0].startswith("7 of 7 ")


@pytest.mark.parametrize("shape", [{"size": 1}, {"reads": "channels_last"}])
def test_a_tensor_that_fits_both_layouts_has_lost_nothing(shape):
    assert nothing(layout_lost, conv(10), conv(10, **{"reads": "contiguous", "module": "Net.squeeze", **shape}))


def test_a_lost_layout_that_costs_next_to_nothing_is_not_told():
    assert nothing(layout_lost, conv(10), conv(0.5, reads="contiguous", module="Net.late"))


def test_a_contiguous_model_has_lost_no_layout():
    plain = conv(30, reads="contiguous", weights="contiguous")
    assert nothing(layout_lost, plain)
    assert only(channels_last_untried, plain).severity is Severity.HINT


def test_all_convolutions_that_take_the_share_are_counted_also_those_of_either_layout():
    plain = conv(20, reads="contiguous", weights="contiguous", module="Net.second")
    told = only(channels_last_untried, plain, conv(10, reads="contiguous", weights="contiguous", size=1)).seen[0]
    assert told.startswith("2 convolutions a step, 1 of them surely contiguous and none channels_last; together they")
    assert only(channels_last_untried, plain).seen[0].startswith("1 convolution a step, none of them channels_last; ")


def test_a_model_with_few_convolutions_need_not_change_its_layout():
    assert nothing(channels_last_untried, conv(9, reads="contiguous", weights="contiguous"))


def test_one_channels_last_convolution_is_a_model_that_has_tried():
    plain = conv(30, reads="contiguous", weights="contiguous", module="Net.other")
    assert nothing(channels_last_untried, plain, conv(1))


def test_convolutions_of_one_dimension_have_no_channels_last():
    sequences = op("convolution", 30, shapes="[2,64,512] [64,64,3]")
    assert nothing(channels_last_untried, sequences)
    assert nothing(layout_lost, conv(10), sequences)


def test_a_trace_without_strides_says_nothing_of_layouts():
    shapes = "[2,64,56,56] [64,64,3,3]"
    unknown = op("convolution", 30, shapes=shapes, layouts="contiguous")
    blind = type(unknown)(
        key=type(unknown.key)(phase=FORWARD, module="", op="aten::convolution", shapes=shapes, dtypes="", layouts=""),
        calls=1,
        self_s=0.03,
    )
    assert nothing(channels_last_untried, blind)


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
    assert nothing(mixed_layouts, op("mul", 20, shapes=shapes, layouts=layouts))


def test_mixed_ops_are_named_longest_first():
    mixed = {"shapes": PAIR, "layouts": "contiguous channels_last", "phase": BACKWARD}
    finding = only(mixed_layouts, op("add_", 2, **mixed), op("threshold_backward", 6, calls=3, module="Net.a", **mixed))
    assert finding.seen == ("4 calls a step of threshold_backward and add_: 8 % of it",)


def test_a_copy_between_layouts_is_no_mixture():
    assert nothing(mixed_layouts, op("copy_", 20, shapes=PAIR, layouts="contiguous channels_last"))


def test_reorders_are_told_with_count_bytes_share_and_layouts():
    finding = only(
        reorders, reorder(6, calls=12), reorder(1, calls=2, memory="src:f32::blocked:a::f0 dst:f32::blocked:b::f0")
    )
    assert finding.seen == (
        "14 reorders a step write 21.4 MiB",
        "they take 7.000 ms, 7 % of the step",
        "most of the time between abcd → aBcd16b of f32 and a → b of f32",
    )
    assert finding.where == "in forward of Net.body"
    assert finding.severity is Severity.NOTABLE


def test_reorders_that_no_op_could_be_found_for_have_no_place():
    assert only(reorders, reorder(8, phase=None, module="")).where == ""


def test_copies_say_between_which_layouts():
    finding = only(
        copies,
        op("copy_", 9, calls=3, shapes=PAIR, layouts="channels_last contiguous"),
        op("copy_", 2, shapes=PAIR, layouts="contiguous strided", module="Net.b"),
    )
    assert finding.seen == ("4 copies a step take 11 % of it, most of the time contiguous → channels_last of f32",)


def test_casts_say_between_which_dtypes():
    finding = only(casts, op("copy_", 9, calls=160, shapes=PAIR, dtypes="bf16 f32"))
    assert finding.seen == ("160 casts a step take 9 % of it, most of the time f32 → bf16",)


def test_copies_of_unknown_dtypes_are_neither():
    unknown = op("copy_", 20, shapes="[8] [8]")
    unknown = type(unknown)(
        key=type(unknown.key)(phase=FORWARD, module="", op="aten::copy_", shapes="[8] [8]", dtypes="", layouts=""),
        calls=1,
        self_s=0.02,
    )
    assert nothing(copies, unknown)
    assert nothing(casts, unknown)
