"""Reorders and copies that nothing else explains: which of them are reported, with layouts, bytes and tensors."""

from __future__ import annotations

import pytest

from perfguard.profile.changes.op_counts import classify
from tests.op_count_rows import BACKWARD, changes, counts, only, op, ops, reorder, said, where

FROM_CHANNELS_LAST = "src:f32::blocked:acdb::f0 dst:f32::blocked:abcd::f0"
TO_BLOCKED, TO_PLAIN = "abcd → aBcd16b", "acdb → abcd"
WRITTEN_BYTES = 2 * 64 * 56 * 56 * 4


def plain(calls):
    return reorder(calls, memory=FROM_CHANNELS_LAST)


@pytest.mark.parametrize(
    ("before", "after", "number", "layouts", "written"),
    [
        ([], [reorder(1)], 1, (TO_BLOCKED,), 1),
        ([reorder(1)], [], -1, (TO_BLOCKED,), 1),
        ([], [reorder(1), plain(3)], 4, (TO_PLAIN, TO_BLOCKED), 4),
        ([], [reorder(2), plain(2)], 4, (TO_BLOCKED, TO_PLAIN), 4),
        ([plain(1)], [reorder(3)], 2, (TO_BLOCKED,), 3),
        ([plain(3)], [reorder(1)], -2, (TO_PLAIN,), 3),
    ],
)
def test_reorders_are_told_by_the_layouts_of_those_that_came_or_went_the_most_frequent_first(
    before, after, number, layouts, written
):
    change = only(before, after)
    assert (change.fact.code, change.after - change.before) == (
        f"reorders.{'added' if number > 0 else 'removed'}",
        number,
    )
    assert said(change) == {"number": abs(number), "layouts": layouts, "written_bytes": written * WRITTEN_BYTES}


def test_reorders_of_unknown_memory_have_no_layouts_and_no_bytes():
    assert said(only([], [reorder(2, memory="")])) == {"number": 2}


CLONE, CONTIGUOUS = "clone copy_", "contiguous clone copy_"


@pytest.mark.parametrize(
    ("before", "after", "code", "told"),
    [
        ([], ops(CONTIGUOUS, 2), "copies.added", (2, "contiguous", "f32 [2,64,56,56]")),
        (ops(CONTIGUOUS), [], "copies.removed", (1, "contiguous", "f32 [2,64,56,56]")),
        (ops(CONTIGUOUS), ops(CLONE, 2), "copies.added", (1, "clone", "f32 [2,64,56,56]")),
        (ops(CLONE, 2), ops(CONTIGUOUS), "copies.removed", (1, "clone", "f32 [2,64,56,56]")),
        (
            [],
            [*ops("to _to_copy copy_", 1, shapes="[2,3]"), *ops("to _to_copy copy_", 3, shapes="[4,5]")],
            "copies.added",
            (4, "to", "f32 [4,5]"),
        ),
        ([], ops("copy_", shapes="[2,3] [3]", dtypes="bf16 f32"), "copies.added", (1, "copy_", "bf16 [2,3]")),
        ([], ops("copy_", shapes="", dtypes="bf16 f32"), "copies.added", (1, "copy_", "bf16")),
        ([], ops("copy_", shapes="[2,3]", dtypes=""), "copies.added", (1, "copy_", "[2,3]")),
    ],
)
def test_copies_are_told_by_the_outermost_op_that_came_or_went_and_its_most_frequent_tensor(before, after, code, told):
    change = only(before, after)
    assert change.fact.code == code
    assert said(change) == dict(zip(("number", "by", "tensor"), told, strict=True))


def test_copies_of_each_phase_are_one_change_for_more_and_one_for_fewer():
    def copies(calls, module, **phase):
        return op("copy_", calls, module=f"Net.{module}", **phase)

    before = [copies(3, "a"), copies(5, "b"), copies(1, "a", phase=BACKWARD)]
    after = [copies(4, "a"), copies(2, "b"), copies(2, "a", phase=BACKWARD), copies(1, "c")]
    found = [(change.fact.code, change.before, change.after, *where(change)) for change in changes(before, after)]
    assert found == [
        ("copies.added", 3, 5, ("forward",), "Net", 2),
        ("copies.added", 1, 2, ("backward",), "Net.a", 1),
        ("copies.removed", 5, 2, ("forward",), "Net.b", 1),
    ]


def test_a_lost_memory_format_explains_movements_in_the_modules_around_it_alone():
    inner, around, beside = ({"module": f"Net.layer1{name}"} for name in (".conv", "", ".relu"))
    before = [op("conv2d", layouts="channels_last", **inner), reorder(5, **around)]
    movements = [op("copy_", 2, **inner), op("copy_", 3, **around), reorder(4, **around)]
    after = [op("conv2d", **inner), *movements, op("copy_", 7, **beside)]
    copied, lost = sorted(classify(counts(before), counts(after)), key=lambda change: change.record.rule)
    assert (lost.record.fact.code, copied.record.fact.code) == ("layout.lost", "copies.added")
    told = {"extra_copies": 5, "fewer_reorders": 1}
    assert {name: value for name, value in said(lost.record).items() if name in told} == told
    assert {(row.name, row.place.module) for row in lost.rows} == {
        ("aten::conv2d", "Net.layer1.conv"),
        ("aten::copy_", "Net.layer1.conv"),
        ("aten::copy_", "Net.layer1"),
        ("reorder", "Net.layer1"),
    }
    assert (said(copied.record)["number"], copied.record.module) == (7, "Net.layer1.relu")
