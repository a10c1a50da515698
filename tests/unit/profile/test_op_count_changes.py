from __future__ import annotations

import pytest

from perfguard.profile.changes.op_counts import comparable, compare_op_counts
from perfguard.profile.op_counts.steady import UNPLACED
from perfguard.records.facts import Severity
from tests.op_count_rows import (
    ADAM,
    BACKWARD,
    BRGEMM,
    CONV_OPS,
    FORWARD,
    NHWC,
    OPTIMIZER,
    allocation,
    changes,
    compiled,
    conv,
    counts,
    elsewhere,
    miss,
    only,
    op,
    ops,
    reorder,
    said,
    told,
    where,
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
    assert change.fact.code == "calls.added"
    assert said(change) == {"ops": ("conv2d",), "with_backward": True}


def test_reorders_out_of_proportion_to_a_doubled_call_are_told_for_themselves():
    assert [rule for rule, _ in told([op("conv2d"), reorder(2)], [op("conv2d", 2), reorder(9)])] == [
        "reorders",
        "calls",
    ]


@pytest.mark.parametrize(
    ("phases", "with_backward"),
    [((FORWARD,), False), ((FORWARD, BACKWARD), True), ((BACKWARD,), False), ((OPTIMIZER,), False)],
    ids=["forward", "forward and backward", "backward", "optimizer"],
)
def test_calls_come_with_their_backward_where_both_changed(phases, with_backward):
    once, twice = ([op("relu", calls, phase=phase) for phase in phases] for calls in (1, 2))
    change = only(once, twice)
    assert (said(change)["with_backward"], change.before, change.after) == (with_backward, 1, 2)


def test_a_wrapper_counts_where_any_op_that_it_calls_changed():
    change = only([*ops("matmul bmm", 3), op("mm")], [*ops("matmul bmm", 4), op("mm")])
    assert (said(change)["ops"], change.before, change.after) == (("matmul",), 3, 4)


def test_the_same_change_in_many_modules_is_one_change():
    once = [one for stage in (1, 2, 3) for one in elsewhere([op("relu", 3)], f"ResNet.layer{stage}.0")]
    more = [one for stage in (1, 2, 3) for one in elsewhere([op("relu", 4)], f"ResNet.layer{stage}.0")]
    change = only(once, more)
    assert (change.module, change.before, change.after) == ("", 9, 12)
    assert where(change) == (("forward",), "ResNet", 3)


def test_several_ops_of_a_module_are_told_together_without_a_ratio():
    change = only(ops("relu add"), [op("relu", 2), op("add", 5)])
    assert (said(change)["ops"], change.before, change.after) == (("add", "relu"), 2, 7)


def test_new_and_removed_ops_are_told_with_their_number():
    added, removed = only([], ops("relu", 4)), only(ops("relu"), [])
    assert (added.fact.code, added.before, added.after) == ("ops.added", 0, 4)
    assert (removed.fact.code, removed.before, removed.after) == ("ops.removed", 1, 0)


def test_views_belong_to_the_op_that_they_come_with():
    assert said(only([], ops("relu view empty")))["ops"] == ("relu",)


def test_views_alone_are_told_too():
    change = only(ops("view", 10), ops("view", 12))
    assert (change.fact.code, said(change)["ops"], change.before, change.after) == ("calls.added", ("view",), 10, 12)


def test_more_executions_of_a_primitive_by_the_same_ops_are_told():
    change = only([op("lstm"), conv(BRGEMM, 12)], [op("lstm"), conv(BRGEMM, 24)])
    assert (change.fact.code, said(change)["ops"]) == ("calls.added", ("convolution FWD_D",))
    assert (change.before, change.after) == (12, 24)


def test_views_of_other_shapes_are_told_where_nothing_else_changed():
    assert only(ops("view", shapes="[2,3]"), ops("view", shapes="[6]")).rule == "shapes"
    assert said(only(ops("relu view", shapes="[2,3]"), ops("relu view", shapes="[6]")))["affected_ops"] == 1


def test_calls_of_libraries_that_could_not_be_placed_are_no_change_of_their_own_beside_others():
    lost = conv("", 28, module=UNPLACED, primitive="sgemm", direction="", memory="", problem="N,N,2,3,4")
    assert only([op("relu")], [op("relu", 2), lost]).rule == "calls"
    assert only([op("relu"), reorder()], [op("relu", 2), reorder(2), lost]).rule == "calls"
    change = only([], [lost])
    assert (change.fact.code, said(change)["ops"], change.after) == ("ops.added", ("sgemm",), 28)
    assert where(change) == (("forward",), UNPLACED, 1)


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

    before = [*step("features"), op("relu", module="Net.head")]
    calls, moved = changes(before, [*step("stem"), op("relu", 2, module="Net.head")])
    assert (calls.fact.code, moved.fact.code, moved.fact.severity) == ("calls.added", "ops.moved", Severity.INFO)
    assert said(moved) == {
        "source": "Net.features",
        "target": "Net.stem",
        "affected_ops": 4,
        "ops": ("conv2d", "convolution_backward"),
    }


def test_the_same_op_in_another_phase_has_not_moved():
    assert [rule for rule, _ in told(ops("relu"), ops("relu", phase=BACKWARD))] == ["calls", "calls"]


@pytest.mark.parametrize("moved", [1, 3])
def test_calls_that_came_where_others_moved_away_are_told_without_these(moved):
    before = [op("relu", moved, module="Net.a", shapes="[2,3]")]
    after = [op("relu", moved, module="Net.b", shapes="[2,3]"), op("relu", module="Net.a", shapes="[4,3]")]
    for first, second, told_so in ((before, after, ("ops.added", 0, 1)), (after, before, ("ops.removed", 1, 0))):
        found = [(change.fact.code, change.before, change.after) for change in changes(first, second)]
        assert sorted(found) == sorted([told_so, ("ops.moved", moved, moved)])


def test_allocations_that_only_went_elsewhere_say_so():
    change = only([allocation(2, 512, "Net.a")], [allocation(2, 512, "Net.b")])
    assert said(change) == {"size_after_bytes": 512, "is_elsewhere": True}
    assert where(change) == (("forward",), "Net", 2)


@pytest.mark.parametrize("there", [(5, 8192), (6, 4096)], ids=["other bytes", "other calls"])
def test_allocations_that_changed_do_not_move_along(there):
    def step(name, calls, size_bytes):
        return [op("relu", module=f"Net.{name}"), allocation(calls, size_bytes, f"Net.{name}")]

    rules = [rule for rule, _ in told(step("a", 5, 4096), step("b", *there))]
    assert sorted(rules) == ["allocations", "calls"]
    assert told(step("a", 5, 4096), step("b", 5, 4096)) == [("calls", "ops.moved")]


def test_views_of_one_phase_are_two_changes_where_some_came_and_others_went():
    found = changes([op("view", 10), op("expand", 2)], [op("view", 7), op("expand", 6)])
    assert [(change.fact.code, said(change)["ops"], change.before, change.after) for change in found] == [
        ("calls.added", ("expand",), 2, 6),
        ("calls.removed", ("view",), 10, 7),
    ]


def test_views_of_one_phase_are_one_change_with_those_that_stayed():
    before = [op("view", 10, shapes="[2,3]"), op("view", 2, shapes="[6]"), op("expand", 2), op("slice", 2)]
    after = [op("view", 10, shapes="[2,3]"), op("view", 3, shapes="[6]"), op("expand", 4), op("slice")]
    assert [
        (change.fact.code, said(change)["ops"], change.before, change.after) for change in changes(before, after)
    ] == [("calls.added", ("expand", "view"), 14, 17), ("calls.removed", ("slice",), 2, 1)]


def test_executions_are_one_change_for_each_primitive_beside_ops_of_that_name():
    before = [op("lstm"), conv(BRGEMM, 12), conv("brg", 4, primitive="matmul", direction="")]
    after = [op("lstm"), conv(BRGEMM, 24), conv("brg", 3, primitive="matmul", direction="")]
    assert [(said(change)["ops"], change.before, change.after) for change in changes(before, after)] == [
        (("convolution FWD_D",), 12, 24),
        (("matmul",), 4, 3),
    ]
    both = [op("lstm"), conv(BRGEMM, 24), conv("brg", 5, primitive="matmul", direction="")]
    assert [said(change)["ops"] for change in changes(before, both)] == [("convolution FWD_D",), ("matmul",)]


# Cache misses, allocations, compiler


def test_misses_of_the_primitive_cache_are_counted_by_the_step():
    came, went = only([], [miss()]), only([miss(3)], [])
    assert (came.fact.code, came.before, came.after) == ("cache_misses.changed", 0, 1)
    assert said(came) == {"primitives": ("convolution FWD_D",)}
    assert (went.before, went.after) == (3, 0)


def test_allocations_are_one_change_of_the_step():
    before = [allocation(10, 1 << 20), allocation(5, 1 << 20, "Net.head")]
    after = [allocation(12, 1 << 21), allocation(6, 1 << 20, "Net.head")]
    change = only(before, after)
    assert (change.rule, change.before, change.after) == ("allocations", 15, 18)
    sizes = {"size_before_bytes": 2 << 20, "size_after_bytes": 3 << 20, "more_bytes": 1 << 20}
    assert said(change) == {"calls_before": 15, **sizes, "is_elsewhere": False}


@pytest.mark.parametrize(
    ("calls", "more_bytes", "changed"), [(1, 63, False), (1, 64, True), (10, 64 * 10 - 1, False), (10, 64 * 10, True)]
)
def test_bytes_may_differ_by_less_than_the_alignment_of_each_allocation(calls, more_bytes, changed):
    found = changes([allocation(calls, 1 << 20)], [allocation(calls, (1 << 20) + more_bytes)])
    assert bool(found) is changed


def test_a_single_allocation_more_is_a_change():
    assert len(changes([allocation(10, 640)], [allocation(11, 640)])) == 1


@pytest.mark.parametrize(
    ("calls", "size_bytes", "bytes_said", "severity"),
    [
        (11, 640, {}, Severity.NOTABLE),
        (9, 640, {}, Severity.INFO),
        (11, 641, {"size_before_bytes": 640, "more_bytes": 1}, Severity.NOTABLE),
        (9, 641, {"size_before_bytes": 640, "more_bytes": 1}, Severity.NOTABLE),
        (11, 639, {"size_before_bytes": 640, "fewer_bytes": 1}, Severity.INFO),
    ],
)
def test_allocations_are_judged_by_their_bytes_and_by_their_number_where_these_are_the_same(
    calls, size_bytes, bytes_said, severity
):
    change = only([allocation(10, 640)], [allocation(calls, size_bytes)])
    always = {"calls_before": 10, "size_after_bytes": size_bytes, "is_elsewhere": False}
    assert (said(change), change.fact.severity) == ({**always, **bytes_said}, severity)


def test_graph_breaks_are_told_with_their_reasons():
    before = [compiled("graph_break", "call of print")]
    after = [*before, compiled("graph_break", "data-dependent branch (train.py:88)")]
    change, recompiles = only(before, after), only([], [compiled("recompile", calls=2)])
    assert (change.fact.code, change.before, change.after) == ("compile.changed", 1, 2)
    assert said(change) == {"event": "graph_break", "reasons": ("data-dependent branch (train.py:88)",)}
    assert (said(recompiles), recompiles.before, recompiles.after) == ({"event": "recompile"}, 0, 2)


def test_graph_breaks_for_another_reason_are_a_change():
    change = only([compiled("graph_break", "print")], [compiled("graph_break", "numpy")])
    assert (change.before, change.after, said(change)["reasons"]) == (1, 1, ("numpy",))


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


def test_of_changes_of_one_kind_the_one_of_most_calls_is_told_first():
    before = [op("relu", 100, module="Net.a"), op("add", 2, module="Net.b")]
    after = [op("relu", 101, module="Net.a"), op("add", 7, module="Net.b")]
    assert [said(change)["ops"] for change in changes(before, after)] == [("add",), ("relu",)]


def test_with_another_torch_every_change_names_the_upgrade():
    before, after = counts(ops("relu"), torch="2.12.0"), counts(ops("relu", 2), torch="2.13.0")
    (change,) = compare_op_counts(before, after)
    assert (said(change)["torch_before"], said(change)["torch_after"]) == ("2.12.0", "2.13.0")
    assert comparable(before, after) is None


def test_op_counts_of_another_case_or_instruction_set_are_not_comparable():
    here = counts()
    other = comparable(counts(case_id="step.other"), here)
    assert (other.code, other.values["counted"]) == ("op_counts.other_case", "step.other")
    narrow = comparable(counts(isa_class="avx2"), here)
    assert narrow.code == "op_counts.other_isa"
    assert (narrow.values["counted"], narrow.values["here"]) == ("avx2", "avx512_core_bf16")


def test_two_names_of_one_instruction_set_are_comparable():
    assert comparable(counts(isa_class="avx10_1_512"), counts(isa_class="avx512_core_fp16")) is None


def test_rows_that_no_perfguard_wrote_are_compared_all_the_same():
    odd = [op("relu", shapes="", dtypes="", layouts=""), conv("", memory="rubbish", problem="", attributes="")]
    assert changes(odd, odd) == ()
    assert len(changes(odd, [*odd, conv("x", memory=NHWC, problem="y")])) == 1
