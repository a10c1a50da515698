from __future__ import annotations

import pytest
from perfguard.profile.changes.census_diff import comparable, compare_censuses, upgrade

from perfguard.profile.op_counts.census import UNPLACED
from tests.census_rows import (
    ADAM,
    BACKWARD,
    BRGEMM,
    CONV_OPS,
    NHWC,
    allocation,
    census,
    changes,
    compiled,
    conv,
    elsewhere,
    miss,
    only,
    op,
    ops,
    reorder,
    told,
)


def test_the_same_counts_are_no_change():
    rows = [*ops(CONV_OPS), conv(BRGEMM), reorder(2), allocation(3, 4096), compiled("graph_break")]
    assert changes(rows, rows) == ()


# Calls


def test_a_doubled_call_is_named_by_its_outermost_op_with_its_backward_and_its_reorders():
    back = {"phase": BACKWARD}
    once = [*ops(CONV_OPS), op("convolution_backward", **back), conv(BRGEMM), reorder(2)]
    twice = [*ops(CONV_OPS, 2), op("convolution_backward", 2, **back), conv(BRGEMM, 2), reorder(4)]
    change = only(once, twice)
    assert (change.rule, change.before, change.after) == ("calls", 1, 2)
    assert change.sentence == "conv2d called twice as often (1 → 2) in forward of Net.body, and in its backward"


def test_reorders_out_of_proportion_to_a_doubled_call_are_told_for_themselves():
    assert [rule for rule, _ in told([op("conv2d"), reorder(2)], [op("conv2d", 2), reorder(9)])] == [
        "reorders",
        "calls",
    ]


def test_the_same_change_in_many_modules_is_one_change():
    once = [one for stage in (1, 2, 3) for one in elsewhere([op("relu", 3)], f"ResNet.layer{stage}.0")]
    more = [one for stage in (1, 2, 3) for one in elsewhere([op("relu", 4)], f"ResNet.layer{stage}.0")]
    change = only(once, more)
    assert change.module == ""
    assert change.sentence == "relu called 12 instead of 9 times in forward of ResNet, at 3 places"


def test_several_ops_of_a_module_are_told_together_without_a_ratio():
    change = only(ops("relu add"), [op("relu", 2), op("add", 5)])
    assert change.sentence == "add and relu called 7 instead of 2 times, all together in forward of Net.body"


def test_new_and_removed_ops_are_told_with_their_number():
    assert only([], ops("relu", 4)).sentence == "relu new (4 calls) in forward of Net.body"
    assert only(ops("relu"), []).sentence == "relu no longer called (1 call) in forward of Net.body"


def test_views_belong_to_the_op_that_they_come_with():
    assert only([], ops("relu view empty")).sentence.startswith("relu new (1 call)")


def test_views_alone_are_told_too():
    assert (
        only(ops("view", 10), ops("view", 12)).sentence == "view called 12 instead of 10 times in forward of Net.body"
    )


def test_more_executions_of_a_primitive_by_the_same_ops_are_told():
    change = only([op("lstm"), conv(BRGEMM, 12)], [op("lstm"), conv(BRGEMM, 24)])
    assert change.sentence == "convolution FWD_D executed twice as often (12 → 24) in forward of Net.body"


def test_views_of_other_shapes_are_told_where_nothing_else_changed():
    assert only(ops("view", shapes="[2,3]"), ops("view", shapes="[6]")).rule == "shapes"
    assert only(ops("relu view", shapes="[2,3]"), ops("relu view", shapes="[6]")).sentence.startswith("1 op on other")


def test_calls_of_libraries_that_could_not_be_placed_are_no_change_of_their_own_beside_others():
    lost = conv("", 28, module=UNPLACED, primitive="sgemm", direction="", memory="", problem="N,N,2,3,4")
    assert only([op("relu")], [op("relu", 2), lost]).rule == "calls"
    assert only([], [lost]).sentence == "sgemm new (28 calls) in forward of (unplaced)"


# Moves


def test_a_renamed_module_is_one_harmless_change_told_last():
    def step(stem):
        place = {"module": f"Net.{stem}"}
        return [
            *ops(f"{CONV_OPS} empty contiguous clone copy_", 2, **place),
            op("convolution_backward", 2, phase=BACKWARD, **place),
            conv(BRGEMM, 2, **place),
            reorder(3, **place),
            allocation(5, 4096, f"Net.{stem}"),
        ]

    assert told(
        [*step("features"), op("relu", module="Net.head")], [*step("stem"), op("relu", 2, module="Net.head")]
    ) == [
        ("calls", "relu called twice as often (1 → 2) in forward of Net.head"),
        ("calls", "4 ops moved from Net.features to Net.stem: conv2d and convolution_backward"),
    ]


def test_the_same_op_in_another_phase_has_not_moved():
    assert [rule for rule, _ in told(ops("relu"), ops("relu", phase=BACKWARD))] == ["calls", "calls"]


def test_allocations_that_only_went_elsewhere_say_so():
    change = only([allocation(2, 512, "Net.a")], [allocation(2, 512, "Net.b")])
    assert change.sentence == "allocations: 2 a step, 512 B, at other places, in forward of Net, at 2 places"


# Cache misses, allocations, compiler


def test_misses_of_the_primitive_cache_are_counted_by_the_step():
    assert only([], [miss()]).sentence == "steady-state primitive-cache misses: 1 a step (convolution FWD_D)"
    assert only([miss(3)], []).sentence.startswith("steady-state primitive-cache misses: 3 → 0 a step")


def test_allocations_are_one_change_of_the_step():
    before = [allocation(10, 1 << 20), allocation(5, 1 << 20, "Net.head")]
    after = [allocation(12, 1 << 21), allocation(6, 1 << 20, "Net.head")]
    change = only(before, after)
    assert (change.rule, change.before, change.after) == ("allocations", 15, 18)
    assert change.sentence == (
        "allocations: 15 → 18 a step, 2.0 MiB → 3.0 MiB (1.0 MiB more), in forward of Net, at 2 places"
    )


@pytest.mark.parametrize(("more_bytes", "changed"), [(63, False), (64 * 10 - 1, False), (64 * 10, True)])
def test_bytes_may_differ_by_less_than_the_alignment_of_each_allocation(more_bytes, changed):
    calls = 1 if more_bytes < 64 else 10
    found = changes([allocation(calls, 1 << 20)], [allocation(calls, (1 << 20) + more_bytes)])
    assert bool(found) is changed


def test_a_single_allocation_more_is_a_change():
    assert len(changes([allocation(10, 640)], [allocation(11, 640)])) == 1


def test_graph_breaks_are_told_with_their_reasons():
    before = [compiled("graph_break", "call of print")]
    after = [*before, compiled("graph_break", "data-dependent branch (train.py:88)")]
    assert only(before, after).sentence == "graph breaks: 1 → 2 (data-dependent branch (train.py:88))"
    assert only([], [compiled("recompile", calls=2)]).sentence == "recompiles: 0 → 2"


def test_graph_breaks_for_another_reason_are_a_change():
    change = only([compiled("graph_break", "print")], [compiled("graph_break", "numpy")])
    assert change.sentence == "graph breaks: as many, for other reasons (numpy)"


# Order and comparability


def test_the_gravest_is_told_first_and_improvements_last():
    before = [conv(BRGEMM), reorder(5, module="Net.stem"), op("relu", module="Net.head"), op("_fused_adam_", **ADAM)]
    after = [conv("ref:any"), op("relu", 2, module="Net.head"), op("mul_", 9, **ADAM), miss(), allocation(1, 512)]
    assert [change.rule for change in changes(before, after)] == [
        "implementation",
        "fusion",
        "cache-misses",
        "calls",
        "allocations",
        "reorders",
    ]


def test_with_another_torch_every_change_names_the_upgrade():
    before, after = census(ops("relu"), torch="2.12.0"), census(ops("relu", 2), torch="2.13.0")
    (change,) = compare_censuses(before, after)
    assert change.sentence.endswith("(torch 2.12.0 → 2.13.0)")
    assert comparable(before, after) is None
    assert upgrade(before, before) is None


def test_censuses_of_another_case_or_instruction_set_are_not_comparable():
    here = census()
    assert "step.other" in comparable(census(case_id="step.other"), here)
    reason = comparable(census(isa_class="avx2"), here)
    assert "avx2" in reason
    assert "avx512_core_bf16" in reason
    assert "perfguard baseline update" in reason


def test_two_names_of_one_instruction_set_are_comparable():
    assert comparable(census(isa_class="avx10_1_512"), census(isa_class="avx512_core_fp16")) is None


def test_rows_that_no_perfguard_wrote_are_compared_all_the_same():
    odd = [op("relu", shapes="", dtypes="", layouts=""), conv("", memory="rubbish", problem="", attributes="")]
    assert changes(odd, odd) == ()
    assert len(changes(odd, [*odd, conv("x", memory=NHWC, problem="y")])) == 1
