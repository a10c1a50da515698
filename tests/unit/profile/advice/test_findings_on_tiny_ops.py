"""What the rules about fragmented steps and losses in low precision say."""

from __future__ import annotations

import pytest

from perfguard.records.facts import Severity
from tests.finding_evidence import BACKWARD, LOAD, LOSS, nothing, only, op, python, told

PRODUCTS = op("linear", 30, calls=400)
"""Ops that are not tiny, in forward, where Python calls them."""


def tiny(calls, us=5.0, *, module="Net.loss", phase=LOSS):
    return op("mul", calls * us * 1e-3, calls=calls, module=module, phase=phase, shapes="[64]")


def test_tiny_ops_are_told_with_python_and_their_places():
    finding = only(
        "fragmented_trace",
        tiny(4_000),
        tiny(1_000, module="Net.layers.0.box", phase=BACKWARD),
        tiny(1_000, module="Net.layers.1.box", phase=BACKWARD),
        python(12, module="Net"),
        PRODUCTS,
    )
    assert told(finding, "calls", "below_s", "tiny_share", "python_share") == (6_000, 1e-5, 0.3, 0.12)
    assert told(finding, "has_profiler_cost") is True
    assert [tuple(each.values.values()) for each in finding.seen[1:]] == [
        ("loss", "Net.loss", pytest.approx(0.2)),
        ("forward", "Net", pytest.approx(0.12)),
        ("backward", "Net.layers.*.box", pytest.approx(0.1)),
    ]
    assert finding.severity is Severity.NOTABLE
    assert finding.share == pytest.approx(0.42)


def test_the_profilers_own_cost_is_taken_off_before_anything_is_told():
    assert nothing("fragmented_trace", tiny(6_000), python(10), event_s=4e-6)
    finding = only("fragmented_trace", tiny(6_000), PRODUCTS, python(30, calls=1_000), event_s=1e-6)
    assert told(finding, "has_profiler_cost") is False


def test_ops_whose_typical_step_held_a_burst_are_tiny_by_their_fastest():
    slowed = tiny(2_000, us=20)
    assert nothing("fragmented_trace", slowed)
    finding = only("fragmented_trace", slowed, shortest_call_s={slowed.key: 5e-6})
    assert told(finding, "calls") == 2_000


def test_python_that_no_call_explains_makes_no_step_fragmented():
    """50 ms before six ops are files or waiting, however many tiny ops there are elsewhere."""
    assert nothing("fragmented_trace", tiny(1_000), op("randn", 1, calls=6, phase=LOAD), python(50, phase=LOAD))


@pytest.mark.parametrize(
    "step",
    [[tiny(100), python(50)], [tiny(3_000), python(10)], [tiny(2_000, us=20)]],
    ids=["few", "a small part", "not tiny"],
)
def test_other_steps_are_not_fragmented(step):
    assert nothing("fragmented_trace", *step)


def test_a_loss_in_low_precision_is_about_accuracy():
    finding = only(
        "low_precision_loss",
        op("sum", 1, phase=LOSS, shapes="[4096]", dtypes="bf16"),
        op("_log_softmax", 1, calls=2, phase=LOSS, shapes="[64,1000]", dtypes="f16"),
    )
    assert finding.severity is Severity.INFO
    assert told(finding, "calls", "ops") == (3, ("_log_softmax (f16)", "sum (bf16)"))


def test_a_loss_that_autocast_converts_is_left_alone():
    logits = {"phase": LOSS, "shapes": "[64,1000]"}
    assert nothing(
        "low_precision_loss",
        op("cross_entropy_loss", 1, dtypes="bf16", **logits),
        op("mse_loss", 1, dtypes="bf16", **logits),
        op("mse_loss", 1, dtypes="f32", **logits),
        op("_log_softmax", 1, dtypes="f32", **logits),
    )


def test_a_reduction_in_both_dtypes_is_told_for_the_calls_that_nothing_converts():
    sums = {"phase": LOSS, "shapes": "[64]"}
    assert nothing("low_precision_loss", op("sum", 1, calls=2, dtypes="bf16", **sums), op("sum", 1, calls=2, **sums))
    assert not nothing(
        "low_precision_loss", op("sum", 1, calls=3, dtypes="bf16", **sums), op("sum", 1, calls=2, **sums)
    )


@pytest.mark.parametrize(
    "total",
    [
        op("sum", 1, phase=LOSS, shapes="[1]", dtypes="bf16"),
        op("mul", 1, phase=LOSS, shapes="[4096]", dtypes="bf16"),
        op("sum", 1, phase=LOSS, shapes="[4096]"),
        op("sum", 1, phase=BACKWARD, shapes="[4096]", dtypes="bf16"),
        op("sum", 1, phase=LOSS),
    ],
    ids=["of one value", "no reduction", "f32", "in backward", "no tensor"],
)
def test_other_ops_of_a_loss_are_left_alone(total):
    assert nothing("low_precision_loss", total)
