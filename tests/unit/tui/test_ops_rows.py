"""The tree of ops: what is above what, what is shown, in which order."""

from __future__ import annotations

import pytest

from perfguard.records.steps.ops import ChangeClass, StepPhase
from perfguard.report.op_tree import OpLevel, first_culprit, flat_nodes, key_of, op_count_nodes, path_to, tree_of
from perfguard.tui.drawing.spans import ASCII, UNICODE, plain
from perfguard.tui.tables.columns import parse_filter, place_columns
from perfguard.tui.tables.ops import OpsView, Order, ops_table, rows_of
from tests.tui_runs import OP_COUNTS, RED, a_delta, an_attribution, some_deltas


def names(rows) -> list[str]:
    return [f"{'  ' * row.depth}{row.node.name}" for row in rows]


def everything(nodes) -> frozenset[str]:
    return frozenset(key for node in nodes for key in (node.key, *everything(node.children)))


def test_modules_that_hold_only_one_module_share_a_row() -> None:
    tree = tree_of(
        [a_delta("aten::mul", module="Net.block.inner"), a_delta("aten::add", module="Net.block.inner.deep")]
    )
    rows, _ = rows_of(tree, OpsView(opened=everything(tree)), 1.0)
    assert names(rows) == ["backward", "  Net.block.inner", "    deep", "      add", "    mul"]


def test_an_op_with_several_shapes_has_a_row_for_each() -> None:
    tree = tree_of([a_delta("aten::mul", shapes="[1]"), a_delta("aten::mul", shapes="[2]", delta_s=3e-4)])
    rows, _ = rows_of(tree, OpsView(opened=everything(tree)), 1.0)
    assert [row.node.level for row in rows] == [
        OpLevel.PHASE, OpLevel.MODULE, OpLevel.OP, OpLevel.SHAPES, OpLevel.SHAPES,
    ]  # fmt: skip
    assert rows[2].node.delta_s == pytest.approx(4e-4)
    assert rows[3].node.name.startswith("[2]")


def test_what_carried_an_op_out_is_a_row_below_it() -> None:
    tree = tree_of([a_delta("aten::conv", detail="brg → ref")])
    rows, _ = rows_of(tree, OpsView(opened=everything(tree)), 1.0)
    assert rows[-1].node.level is OpLevel.IMPLEMENTATION
    assert rows[-1].node.name == "brg → ref"


def test_phases_keep_the_order_of_a_step_and_sums_add_up() -> None:
    deltas = some_deltas()
    tree = tree_of(deltas)
    assert [node.name for node in tree] == ["forward", "loss", "backward", "optimizer"]
    assert sum(node.delta_s for node in tree) == pytest.approx(sum(delta.delta_s for delta in deltas))


def test_every_key_is_its_rows_own() -> None:
    tree = tree_of(some_deltas(300))
    rows, total = rows_of(tree, OpsView(opened=everything(tree), most=None), 1.0)
    assert len({row.node.key for row in rows}) == len(rows) == total


def test_the_op_counts_comes_first_whatever_the_order() -> None:
    nodes = (*op_count_nodes(OP_COUNTS), *tree_of(some_deltas()))
    for order in Order:
        for is_reversed in (False, True):
            rows, _ = rows_of(nodes, OpsView(order=order, is_reversed=is_reversed), 1.0)
            assert [row.node.level for row in rows[:3]] == [OpLevel.OP_COUNTS, OpLevel.OP_COUNTS, OpLevel.PHASE]


def test_a_list_is_sorted_by_the_size_of_the_difference() -> None:
    deltas = [a_delta("a", delta_s=1e-5), a_delta("b", delta_s=-9e-4), a_delta("c", delta_s=5e-4)]
    rows, _ = rows_of(flat_nodes(deltas), OpsView(), 1.0)
    assert [row.node.delta.key.op for row in rows] == ["b", "c", "a"]


def test_five_hundred_rows_are_shown_until_somebody_asks_for_all() -> None:
    nodes = flat_nodes(some_deltas(1200))
    shown, total = rows_of(nodes, OpsView(), 1.0)
    assert (len(shown), total) == (500, 1200)
    shown, total = rows_of(nodes, OpsView(most=None), 1.0)
    assert (len(shown), total) == (1200, 1200)


def test_a_filter_opens_what_is_above_the_rows_that_it_accepts() -> None:
    tree = tree_of(some_deltas())
    rows, _ = rows_of(tree, OpsView(accepts=parse_filter("convolution_backward").accepts), 1.0)
    assert names(rows) == ["backward", "  ResNet", "    layer1.conv1", "      convolution_backward"]


def test_a_filter_finds_kinds_of_change() -> None:
    tree = tree_of(some_deltas())
    rows, _ = rows_of(tree, OpsView(accepts=parse_filter("other implementation").accepts), 1.0)
    assert rows[-1].node.delta.change is ChangeClass.OTHER_IMPLEMENTATION


def test_the_first_culprit_is_found_in_the_tree() -> None:
    deltas = some_deltas()
    key = first_culprit(an_attribution(RED, deltas))
    assert key == key_of(deltas[0].key)
    path = path_to(tree_of(deltas), key)
    assert path is not None
    assert path[-1] == key
    assert first_culprit(None) is None
    assert path_to(tree_of(deltas), "nowhere") is None


def test_shares_are_parts_of_the_steps_difference() -> None:
    deltas = [a_delta("a", delta_s=3e-4), a_delta("b", delta_s=1e-4)]
    rows, _ = rows_of(flat_nodes(deltas), OpsView(), 4e-4)
    assert [row.share for row in rows] == pytest.approx([0.75, 0.25])
    assert rows_of(flat_nodes(deltas), OpsView(), 0.0)[0][0].share is None


def test_unknown_times_of_an_op_that_is_new_count_as_none() -> None:
    tree = tree_of([a_delta("a", baseline_s=float("nan"), phase=StepPhase.LOSS)])
    assert tree[0].baseline_s == 0.0


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
def test_every_cell_of_the_table_can_be_drawn(width: int) -> None:
    deltas = some_deltas()
    nodes = (*op_count_nodes(OP_COUNTS), *tree_of(deltas))
    spec = ops_table(UNICODE, -1e-4, 7e-4)
    rows, _ = rows_of(nodes, OpsView(opened=everything(nodes)), 7e-4)
    places = place_columns(spec.columns, width)
    drawn = [[plain(place.column.draw(row, place.width)) for place in places] for row in rows]
    assert any("convolution_backward" in cells[0] for cells in drawn) or width < 40


def drawn_bars(deltas_s: list[float], width: int = 12) -> list[str]:
    deltas = [a_delta(f"op{index}", delta_s=delta_s) for index, delta_s in enumerate(deltas_s)]
    bar = next(column for column in ops_table(ASCII, min(deltas_s), max(deltas_s)).columns if column.id == "bar")
    rows, _ = rows_of(flat_nodes(deltas), OpsView(), 1.0)
    return [plain(bar.draw(row, width)) for row in rows]


def test_bars_are_drawn_to_one_scale_on_both_sides_of_zero() -> None:
    assert drawn_bars([8e-4, -3e-4]) == ["   |########", "###|        "]


def test_bars_of_one_sign_have_the_whole_width() -> None:
    assert drawn_bars([11e-4, 5e-4]) == ["|###########", "|#####      "]
    assert drawn_bars([-11e-4, -5e-4]) == ["###########|", "      #####|"]


def test_without_a_difference_there_is_no_bar() -> None:
    assert drawn_bars([0.0]) == [""]
