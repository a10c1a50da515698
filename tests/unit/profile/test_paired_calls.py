"""Calls that became other calls at their place: which belong together, and what is said of the difference."""

from __future__ import annotations

import pytest

from perfguard.profile.changes.op_counts import classify
from perfguard.records.facts import Severity
from tests.op_count_rows import (
    BACKWARD,
    BRGEMM,
    NCHW,
    NHWC,
    NHWC_BF16,
    TO_BLOCKED,
    changes,
    conv,
    counts,
    miss,
    only,
    op,
    ops,
    reorder,
    said,
    told,
)

NARROW = "brg_conv_fwd:avx2"
ATTRIBUTES = "attr-fpmath:bf16"
OTHER_WEIGHTS = NHWC.replace("Acdb16a", "Acdb8a")
REORDER = {"primitive": "reorder", "direction": "", "problem": "2x64x56x56"}


def known(before, after):
    """What is said of each change, by its code."""
    return {change.fact.code: said(change) for change in changes(before, after)}


# What differs


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (conv(BRGEMM), conv(BRGEMM, memory=NCHW), "layout.lost"),
        (conv(BRGEMM, memory=NCHW), conv(BRGEMM), "layout.gained"),
        (conv(BRGEMM), conv(BRGEMM, memory=OTHER_WEIGHTS), "layout.changed"),
        (conv(BRGEMM), conv(BRGEMM, memory=NCHW, problem="mb4"), "shapes.changed"),
        (conv(BRGEMM), conv(BRGEMM, memory=NHWC_BF16), "dtype.changed"),
        (conv(BRGEMM), conv(BRGEMM, memory=NHWC_BF16, problem="mb4"), "shapes.changed"),
        (conv(BRGEMM), conv("jit:avx2", memory=NCHW), "layout.lost"),
        (conv(BRGEMM), conv("jit:avx2", memory=NHWC_BF16), "dtype.changed"),
        (conv(BRGEMM), conv("jit:avx2", memory=OTHER_WEIGHTS), "implementation.changed"),
        (conv(BRGEMM), conv("jit:avx2", memory=NCHW, problem="mb4"), "implementation.changed"),
        (conv(BRGEMM), conv(BRGEMM, problem="mb4", attributes=ATTRIBUTES), "implementation.changed"),
        (conv(BRGEMM), conv("ref:any", memory=NCHW), "implementation.changed"),
        (conv("gemm:jit", memory=NCHW), conv(BRGEMM), "implementation.changed"),
        (op("add"), op("add", shapes="[4]", dtypes="bf16", layouts="strided"), "shapes.changed"),
        (op("add"), op("add", dtypes="bf16", layouts="strided"), "dtype.changed"),
        (op("add"), op("add", layouts="strided"), "layout.changed"),
    ],
)
def test_of_what_differs_between_two_calls_that_is_told_which_explains_the_rest(before, after, code):
    assert only([before], [after]).fact.code == code


def test_ops_pair_by_their_shapes_before_their_dtypes():
    before = [op("add", shapes="[2]", dtypes="f32"), op("add", shapes="[4]", dtypes="bf16")]
    after = [op("add", shapes="[2]", dtypes="bf16"), op("add", shapes="[4]", dtypes="f32")]
    assert {code for _, code in told(before, after)} == {"dtype.changed"}


def test_primitives_pair_by_their_problem_before_their_attributes():
    before = [conv("v:avx2", 3, problem="mb2"), conv("w:avx2", 2, problem="mb4", attributes=ATTRIBUTES)]
    after = [conv("x:avx2", 3, problem="mb2", attributes=ATTRIBUTES), conv("y:avx2", 2, problem="mb4")]
    choice = {"primitive": "convolution", "lost": "v:avx2", "gained": "x:avx2", "others": 1, "calls": 5}
    assert said(only(before, after)) == choice


def test_ops_of_another_name_place_or_phase_are_no_pair():
    before = op("add", shapes="[2]")
    others = [op("mul", shapes="[4]"), op("add", shapes="[4]", module="Net.a"), op("add", shapes="[4]", phase=BACKWARD)]
    for other in others:
        assert {code for _, code in told([before], [other])} == {"ops.added", "ops.removed"}


def test_views_of_other_shapes_follow_what_else_changed_at_their_place():
    change = only([op("relu"), op("view", shapes="[2]")], [op("relu", 2), op("view", shapes="[4]")])
    assert (change.fact.code, said(change)["ops"]) == ("calls.added", ("relu",))


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        (
            op("add", layouts="channels_last"),
            [op("add"), reorder(2), *ops("clone copy_")],
            "add add clone copy_ reorder",
        ),
        (op("add"), [op("add", dtypes="bf16"), *ops("to copy_", dtypes="f32 bf16")], "add add copy_ to"),
    ],
    ids=["layout", "dtype"],
)
def test_a_change_explains_its_calls_with_what_they_needed(before, after, names):
    (change,) = classify(counts([before]), counts(after))
    assert sorted(row.name.removeprefix("aten::") for row in change.rows) == names.split()


# Implementations


@pytest.mark.parametrize(
    ("lost", "gained", "severity"),
    [
        (BRGEMM, "gemm:jit", Severity.GRAVE),
        (BRGEMM, NARROW, Severity.NOTABLE),
        (BRGEMM, "jit:avx512_core_bf16", Severity.NOTABLE),
        (NARROW, BRGEMM, Severity.INFO),
        ("gemm:jit", BRGEMM, Severity.INFO),
    ],
)
def test_how_grave_another_choice_is(lost, gained, severity):
    change = only([conv(lost, 3)], [conv(gained, 3)])
    assert (change.fact.severity, change.before, change.after) == (severity, 3, 3)
    assert said(change) == {"primitive": "convolution", "lost": lost, "gained": gained, "calls": 3}


def test_a_choice_that_was_not_logged_and_attributes_that_went_have_names():
    unknown = only([conv("")], [conv(BRGEMM)])
    assert (said(unknown)["lost"], said(unknown)["gained"]) == ("none", BRGEMM)
    plain = only([conv(BRGEMM, attributes=ATTRIBUTES)], [conv(BRGEMM)])
    assert (said(plain)["lost"], said(plain)["gained"]) == (ATTRIBUTES, "no attributes")


def test_reorders_pair_by_the_layouts_between_which_they_lead():
    change = only([reorder(4)], [conv("jit:avx2", 4, memory=TO_BLOCKED, **REORDER)])
    assert (change.fact.code, said(change)["primitive"]) == ("implementation.changed", "reorder")
    assert told([reorder(4)], [conv("jit:avx2", 4, memory=NHWC, **REORDER)]) == [("reorders", "reorders.changed")]


def test_cache_misses_of_another_primitive_are_no_pair():
    assert told([miss(2)], [miss(2, "matmul")]) == [("cache-misses", "cache_misses.changed")]


# Layouts


@pytest.mark.parametrize(
    ("before", "after", "code", "severity", "counts"),
    [
        ("channels_last", "contiguous", "layout.lost", Severity.NOTABLE, (5, 0)),
        ("contiguous", "channels_last", "layout.gained", Severity.INFO, (0, 5)),
        ("contiguous", "strided", "layout.changed", Severity.NOTABLE, (5, 5)),
    ],
)
def test_channels_last_is_lost_or_gained_and_other_layouts_are_neither(before, after, code, severity, counts):
    change = only([op("add", 5, layouts=before)], [op("add", 5, layouts=after)])
    assert (change.fact.code, change.fact.severity, (change.before, change.after)) == (code, severity, counts)
    assert said(change) == {"lost": before, "gained": after, "affected_ops": 5, "ops": ("add",)}


def test_more_tensors_in_channels_last_are_a_gain_whatever_they_were():
    before, after = "channels_last contiguous contiguous", "contiguous channels_last channels_last"
    assert told([op("cat", layouts=before)], [op("cat", layouts=after)]) == [("layout", "layout.gained")]
    assert told([op("cat", layouts=after)], [op("cat", layouts=before)]) == [("layout", "layout.lost")]
    moved = only([op("cat", layouts="channels_last contiguous")], [op("cat", layouts="contiguous channels_last")])
    assert moved.fact.code == "layout.changed"


def test_reorders_and_copies_belong_to_channels_last_alone():
    lost = known([op("add", layouts="channels_last")], [op("add"), reorder(2), *ops("clone copy_", 3)])
    assert lost == {
        "layout.lost": {
            "lost": "channels_last",
            "gained": "contiguous",
            "affected_ops": 1,
            "ops": ("add",),
            "extra_reorders": 2,
            "extra_copies": 3,
        }
    }
    other = known([op("add")], [op("add", layouts="strided"), reorder(2), *ops("clone copy_", 3)])
    assert set(other) == {"layout.changed", "copies.added", "reorders.added"}


def test_the_kernels_of_a_lost_memory_format_are_those_of_the_most_calls():
    before = [conv(BRGEMM, 2, problem="mb2"), conv(BRGEMM, 7, problem="mb4"), conv(BRGEMM, 9, problem="mb8")]
    after = [
        conv("jit:avx512_core", 2, problem="mb2", memory=NCHW),
        conv("jit:avx2", 7, problem="mb4", memory=NCHW),
        conv(BRGEMM, 9, problem="mb8", memory=NCHW),
    ]
    change = only(before, after)
    assert said(change) == {
        "lost": "acdb",
        "gained": "abcd",
        "affected_primitives": 18,
        "ops": ("convolution",),
        "kernel_lost": BRGEMM,
        "kernel_gained": "jit:avx2",
    }


def test_of_several_layouts_the_one_of_the_most_calls_is_named():
    before = [op("add", 5, layouts="contiguous"), op("mul", 2, layouts="blocked"), op("div", 9, layouts="strided")]
    after = [op("add", 5, layouts="strided"), op("mul", 2, layouts="strided"), op("div", 9, layouts="strided")]
    change = only(before, after)
    assert (said(change)["lost"], said(change)["gained"]) == ("contiguous", "strided")
    assert said(change)["ops"] == ("add", "mul")


def test_where_strides_alone_differ_no_layout_is_named():
    change = only([conv(BRGEMM)], [conv(BRGEMM, memory=NHWC.replace("::f0 wei", "::f1 wei"))])
    assert (change.fact.code, said(change)) == ("layout.changed", {"affected_primitives": 1, "ops": ("convolution",)})


# Dtypes


@pytest.mark.parametrize(
    ("before", "after", "lost", "gained"),
    [
        ("f32 f32 bf16", "f32 bf16 bf16", "f32", "bf16"),
        ("f32 bf16", "bf16 f32", "f32 bf16", "bf16 f32"),
        ("f32 s64", "f32", "s64", "none"),
        ("f32", "f32 s64", "none", "s64"),
        ("s64 f32", "u8 bf16", "f32/s64", "bf16/u8"),
    ],
)
def test_a_dtype_is_told_by_what_only_one_side_has(before, after, lost, gained):
    change = only([op("add", 3, dtypes=before)], [op("add", 3, dtypes=after)])
    assert (change.fact.code, change.before, change.after) == ("dtype.changed", 3, 3)
    assert said(change) == {"lost": lost, "gained": gained, "affected_ops": 3, "ops": ("add",)}


@pytest.mark.parametrize(
    ("cast", "casts", "others"),
    [
        (ops("to _to_copy copy_", 4, dtypes="f32 bf16"), {"extra_casts": 4}, set()),
        (ops("to copy_", 4, dtypes="f32 bf16"), {"extra_casts": 4}, set()),
        ([op("copy_", 4, dtypes="bf16 f32")], {"extra_casts": 4}, set()),
        ([op("copy_", 4, dtypes="f32 f32")], {}, {"copies.added"}),
        ([op("relu", 4, dtypes="f32 bf16")], {}, {"calls.added"}),
        ([reorder(4)], {}, {"reorders.added"}),
        (ops("to _to_copy copy_", 4, dtypes="f32 bf16", module="Net"), {"extra_casts": 4}, set()),
        (ops("to _to_copy copy_", 4, dtypes="f32 bf16", module="Net.other"), {}, {"copies.added"}),
    ],
    ids=[
        "all of a cast",
        "without the middle",
        "a copy",
        "of one dtype",
        "no copy",
        "a reorder",
        "around",
        "elsewhere",
    ],
)
def test_casts_belong_to_another_dtype_and_what_is_none_does_not(cast, casts, others):
    found = known([op("add"), op("relu")], [op("add", dtypes="bf16"), op("relu"), *cast])
    values = found.pop("dtype.changed")
    assert values == {"lost": "f32", "gained": "bf16", "affected_ops": 1, "ops": ("add",), **casts}
    assert set(found) == others


# Shapes


@pytest.mark.parametrize(
    ("before", "after", "example"),
    [
        ("[2,8] [4]", "[2,8] [6]", "[4] → [6]"),
        ("[2,8] [4]", "[4,8] [6]", "[2,8] → [4,8]"),
        ("[2,8]", "[2,8] [6]", "[2,8] → [2,8] [6]"),
        ("", "[6]", "none → [6]"),
        ("[6]", "", "[6] → none"),
    ],
)
def test_other_shapes_are_told_by_the_first_tensor_that_differs(before, after, example):
    change = only([op("add", shapes=before)], [op("add", shapes=after)])
    assert said(change) == {"affected_ops": 1, "ops": ("add",), "examples": (f"add {example}",)}


def test_each_op_of_the_earliest_phase_has_its_most_frequent_change_as_an_example():
    def step(batch):
        return [
            op("add", 2, shapes=f"[{batch},2]"),
            op("add", 9, shapes=f"[{batch},9]"),
            op("conv2d", 5, shapes=f"[{batch},5]"),
            op("convolution", 20, shapes=f"[{batch},5]"),
            op("mm", 30, shapes=f"[{batch},3]", phase=BACKWARD),
        ]

    change = only(step(2), step(4))
    assert said(change) == {
        "affected_ops": 46,
        "ops": ("add", "conv2d", "mm"),
        "examples": ("add [2,9] → [4,9]", "conv2d [2,5] → [4,5]"),
    }


@pytest.mark.parametrize(("rows", "before", "after"), [(16, 1, 16), (8, 2, 16)])
def test_a_loop_over_rows_is_one_change_with_its_calls(rows, before, after):
    whole = [op("cross_entropy_loss", before, shapes=f"[{rows},10]")]
    loop = [op("cross_entropy_loss", after, shapes="[1,10]")]
    change = said(only(whole, loop))
    assert (change["examples"], change["calls_before"], change["calls_after"]) == (
        (f"cross_entropy_loss [{rows},10] → [1,10]",),
        before,
        after,
    )
    back = said(only(loop, whole))
    assert (back["calls_before"], back["calls_after"]) == (after, before)


def test_other_problems_of_primitives_are_told_where_no_op_differs():
    change = only([conv(BRGEMM, 6, problem="mb2")], [conv(BRGEMM, 6, problem="mb4")])
    assert (change.fact.code, change.before, change.after) == ("shapes.changed", 6, 6)
    assert said(change) == {
        "affected_primitives": 6,
        "ops": ("convolution",),
        "examples": ("convolution FWD_D mb2 → mb4",),
    }


def test_copies_of_other_shapes_are_told_only_where_nothing_else_has_other_shapes():
    both = only(ops("add clone", 3, shapes="[2]"), ops("add clone", 3, shapes="[4]"))
    assert said(both) == {"affected_ops": 3, "ops": ("add",), "examples": ("add [2] → [4]",)}
    alone = only(ops("clone", 3, shapes="[2]"), ops("clone", 3, shapes="[4]"))
    assert said(alone)["ops"] == ("clone",)
