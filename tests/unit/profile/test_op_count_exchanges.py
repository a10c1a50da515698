"""Work that other ops or libraries do: exact boundaries of the rules about fused ops, optimizers and convolutions."""

from __future__ import annotations

import pytest

from perfguard.profile.changes.fusions import exchange_code
from perfguard.profile.libraries.join import NO_LIBRARY
from perfguard.records.facts import Severity
from tests.op_count_rows import (
    ADAM,
    BACKWARD,
    BRGEMM,
    OPTIMIZER,
    changes,
    conv,
    miss,
    only,
    op,
    ops,
    reorder,
    said,
    told,
)

FLASH = "_scaled_dot_product_flash_attention_for_cpu"
MATMUL = "brg_matmul:avx512_core"
SMALL, LARGE = {"shapes": "[2,3]"}, {"shapes": "[4,3]"}


def codes(before, after):
    return sorted(code for _, code in told(before, after))


def both_ways(before, after):
    """The only change, and the only one with the sides exchanged."""
    return only(before, after), only(after, before)


def exchanged(change):
    return said(change)["lost"], said(change)["gained"], change.before, change.after, change.fact.severity


def product(calls=1, *, implementation=MATMUL, problem="2x3:3x4", **place):
    return conv(implementation, calls, primitive="matmul", direction="", problem=problem, **place)


def of_mkl(calls=1, *, routine="sgemm", **place):
    return conv("", calls, primitive=routine, direction="", problem="N,N,2,3,4", memory="", **place)


# Fused ops


def test_a_single_norm_in_pieces_is_told_by_the_ops_that_changed_that_way_the_most_called_first():
    legit = "_native_batch_norm_legit"
    before = [
        op("batch_norm", 3),
        op(legit),
        op(f"{legit}_no_training", 2, **SMALL),
        op("add", 2),
        op("sub", 4, **SMALL),
    ]
    after = [op(f"{legit}_no_training", 2, **LARGE), op("sub", 4, **LARGE), op("mul", 5), op("div")]
    unfused, fused = both_ways(before, after)
    whole, pieces = ("batch_norm", legit), ("mul", "div")
    assert (unfused.fact.code, *exchanged(unfused)) == ("norm.unfused", whole, pieces, 4, 6, Severity.NOTABLE)
    assert (fused.fact.code, *exchanged(fused)) == ("norm.fused", pieces, whole, 6, 4, Severity.INFO)


def test_one_call_of_a_fused_op_that_became_one_piece_is_a_fusion():
    assert [change.fact.code for change in both_ways(ops("gelu"), ops("tanh"))] == [
        "activation.unfused",
        "activation.fused",
    ]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        # Another name of the fused op, called as often.
        (ops("batch_norm"), ops("_native_batch_norm_legit mul"), ["ops.added", "ops.removed"]),
        # Its pieces have other shapes, and are as many.
        ([op("batch_norm"), op("mul", **SMALL)], [op("mul", **LARGE)], ["ops.removed", "shapes.changed"]),
        # Without a product attention is not in pieces.
        (ops(FLASH), ops("_softmax"), ["ops.added", "ops.removed"]),
    ],
    ids=["another name", "other shapes", "no core"],
)
def test_a_fused_op_that_changed_otherwise_was_not_taken_to_pieces(before, after, found):
    assert codes(before, after) == found
    opposite = {"ops.added": "ops.removed", "ops.removed": "ops.added"}
    assert codes(after, before) == sorted(opposite.get(code, code) for code in found)


@pytest.mark.parametrize(
    ("lost", "gained", "code"),
    [
        ("clone copy_", "", "copies.removed"),
        ("", "clone copy_", "copies.added"),
        ("clone mul", "", "ops.removed"),
        ("", "clone mul", "ops.added"),
        ("thnn_conv2d add", "mkldnn_convolution", "convolution.changed"),
        ("thnn_conv2d", "relu", "ops.replaced"),
        ("relu", "thnn_conv2d", "ops.replaced"),
        ("layer_norm", "mul view", "norm.unfused"),
        ("mul view", "layer_norm", "norm.fused"),
        ("layer_norm", "bmm view", "ops.replaced"),
        ("add", "mul", "ops.replaced"),
    ],
)
def test_ops_that_took_the_place_of_others_are_told_as_what_both_show(lost, gained, code):
    assert exchange_code(lost.split(), gained.split()) == code


# Optimizers


@pytest.mark.parametrize(
    ("lost", "gained", "code", "severity"),
    [
        ("_fused_adam_", "_foreach_mul_", "optimizer.unfused", Severity.NOTABLE),
        ("_fused_adam_", "mul_", "optimizer.unfused", Severity.NOTABLE),
        ("_foreach_mul_", "mul_", "optimizer.changed", Severity.NOTABLE),
        ("mul_", "_foreach_mul_", "optimizer.changed", Severity.INFO),
        ("mul_", "_fused_adam_", "optimizer.fused", Severity.INFO),
    ],
)
def test_only_an_optimizer_that_does_more_work_is_worth_a_look(lost, gained, code, severity):
    change = only([op(lost, **ADAM)], [op(gained, **ADAM)])
    assert (change.fact.code, change.fact.severity) == (code, severity)


def test_an_optimizer_that_only_one_side_has_hides_no_other():
    sgd = {"module": "SGD", "phase": OPTIMIZER}
    before, after = [op("_fused_sgd_", **sgd)], [op("mul_", 3, **sgd), op("_fused_adam_", **ADAM)]
    assert [(change.module, change.fact.code) for change in changes(before, after)] == [
        ("SGD", "optimizer.unfused"),
        ("Adam", "ops.added"),
    ]


@pytest.mark.parametrize(
    ("elements", "elements_after", "severity"), [(64, 65, Severity.NOTABLE), (65, 64, Severity.INFO)]
)
def test_other_parameters_are_told_by_the_longest_list(elements, elements_after, severity):
    def step(count):
        return [op("_foreach_add_", shapes=f"{{4:{count}}}", **ADAM), op("_foreach_mul_", shapes="{2:8}", **ADAM)]

    change = only(step(elements), step(elements_after))
    assert (change.fact.code, change.before, change.after) == ("optimizer.parameters_changed", 4, 4)
    assert said(change) == {"elements_before": elements, "elements_after": elements_after}
    assert change.fact.severity is severity


def test_an_optimizer_of_the_same_parameters_has_other_calls_or_shapes():
    def step(calls, shapes="{4:64}"):
        return [op("_foreach_mul_", calls, shapes=shapes, **ADAM)]

    assert told(step(1), step(2)) == [("calls", "calls.added")]
    assert told(step(1), step(1, "")) == told(step(1, ""), step(1)) == [("shapes", "shapes.changed")]


# Convolutions


@pytest.mark.parametrize(
    ("lost", "gained", "severity"),
    [
        ("mkldnn_convolution", "thnn_conv2d", Severity.GRAVE),
        ("mkldnn_convolution slow_conv_dilated2d", "thnn_conv2d", Severity.GRAVE),
        ("thnn_conv2d", "mkldnn_convolution", Severity.INFO),
        ("thnn_conv2d", "mkldnn_convolution slow_conv_dilated2d", Severity.INFO),
        ("thnn_conv2d", "slow_conv_dilated2d", Severity.NOTABLE),
        ("mkldnn_convolution slow_conv3d", "mkldnn_convolution slow_conv_dilated2d", Severity.NOTABLE),
    ],
)
def test_only_convolutions_that_leave_onednn_are_grave(lost, gained, severity):
    stays = set(lost.split()) & set(gained.split())
    change = only(ops(lost), ops(gained))
    assert (change.fact.code, change.fact.severity) == ("convolution.changed", severity)
    assert set(said(change)["lost"]) == set(lost.split()) - stays


def test_a_convolution_in_another_op_is_told_with_the_larger_number_of_calls():
    more, fewer = both_ways(ops("mkldnn_convolution", 2), ops("thnn_conv2d", 3))
    assert (said(more)["calls"], more.before, more.after) == (3, 2, 3)
    assert (said(fewer)["calls"], fewer.before, fewer.after) == (3, 3, 2)


def test_a_convolution_of_other_shapes_is_neither_lost_nor_gained():
    before = [op("mkldnn_convolution"), op("thnn_conv2d", 2, **SMALL)]
    after = [op("slow_conv_dilated2d"), op("thnn_conv2d", 2, **LARGE)]
    for change in both_ways(before, after):
        assert {*said(change)["lost"], *said(change)["gained"]} == {"mkldnn_convolution", "slow_conv_dilated2d"}
        assert said(change)["calls"] == 1


def test_what_is_no_part_of_a_convolution_is_told_beside_it():
    back = {"phase": BACKWARD}
    before = [op("mkldnn_convolution"), conv(BRGEMM), conv(BRGEMM, **back)]
    after = [*ops("thnn_conv2d empty"), *ops("_slow_conv2d_backward sum", **back), of_mkl()]
    assert told(before, after) == [("implementation", "convolution.changed")]
    assert [(change.fact.code, said(change).get("ops")) for change in changes(before, [*after, op("sum")])] == [
        ("convolution.changed", None),
        ("ops.added", ("sum",)),
    ]
    assert [said(change).get("ops") for change in changes(before, [*after, op("mul", **back)])] == [None, ("mul",)]


# Libraries


@pytest.mark.parametrize(
    ("before", "after", "values", "severity"),
    [
        ([product(3)], [], (f"matmul {MATMUL}", NO_LIBRARY, 3), Severity.GRAVE),
        ([], [product(3)], (NO_LIBRARY, f"matmul {MATMUL}", 3), Severity.INFO),
        ([product(3)], [of_mkl(2)], (f"matmul {MATMUL}", "sgemm of MKL", 3), Severity.NOTABLE),
        ([of_mkl(2)], [product(3)], ("sgemm of MKL", f"matmul {MATMUL}", 3), Severity.NOTABLE),
        (
            [product(3), product(2, implementation="gemm:jit"), of_mkl(4, routine="dgemm")],
            [of_mkl(4, routine="dgemm")],
            (f"matmul {MATMUL}", NO_LIBRARY, 5),
            Severity.GRAVE,
        ),
    ],
    ids=["to none", "from none", "to MKL", "from MKL", "the most frequent"],
)
def test_the_same_ops_in_another_library_are_named_by_their_most_frequent_call(before, after, values, severity):
    change = only([op("linear"), *before], [op("linear"), *after])
    assert (change.fact.code, change.fact.severity) == ("library.changed", severity)
    assert (said(change)["lost"], said(change)["gained"], said(change)["calls"]) == values


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ([op("linear"), product()], [op("linear", 2)], ["calls.added"]),
        ([op("view"), product()], [op("view", 2)], ["library.changed"]),
        ([product()], [product(2)], ["calls.added"]),
        ([product()], [product(2), product(problem="8x3:3x4")], ["calls.added"]),
        ([], [reorder()], ["reorders.added"]),
        ([], [miss()], ["cache_misses.changed"]),
    ],
    ids=["ops that compute changed", "views changed", "more calls", "other problems too", "reorders", "misses"],
)
def test_calls_of_libraries_are_another_library_only_where_the_same_ops_make_them(before, after, found):
    assert codes(before, after) == found
