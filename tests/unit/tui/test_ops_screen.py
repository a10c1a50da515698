"""The screen of ops by keys alone."""

from __future__ import annotations

import pytest

from perfguard.report.messages.catalog import describe
from perfguard.report.op_tree import OpLevel
from perfguard.tui.drawing.spans import plain
from tests.tui_runs import RED, a_run, a_watch, an_attribution, some_deltas


async def to_ops(driver) -> None:
    await driver.press("n", "3")


def picture(driver) -> str:
    return " ".join(" ".join(plain(content) for content in driver.app.view_screen.detail.text).split())


def test_the_op_counts_comes_first_and_the_cursor_stands_on_the_culprit(drive) -> None:
    async def script(driver) -> None:
        await to_ops(driver)
        rows = driver.app.view_screen.table.rows
        assert [row.node.level for row in rows[:2]] == [OpLevel.OP_COUNTS] * 2
        assert driver.app.view_screen.table.cursor_row.node.delta == some_deltas()[0]
        assert describe(an_attribution(RED, some_deltas()).culprits[0].fact) in picture(driver)
        assert "+700.0 µs" in driver.screen_text()

    drive(a_watch(), script)


def test_nodes_open_and_close(drive) -> None:
    async def script(driver) -> None:
        await to_ops(driver)
        table = driver.app.view_screen.table
        count = len(table.rows)
        await driver.press("right")
        assert table.rows[table._cursor + 1].node.level is OpLevel.IMPLEMENTATION
        await driver.press("left")
        assert len(table.rows) == count
        await driver.press("left")
        assert table.cursor_row.node.level is OpLevel.MODULE
        await driver.press("enter")
        assert len(table.rows) < count
        await driver.press("enter")
        assert len(table.rows) == count

    drive(a_watch(), script)


def test_all_nodes_open_and_close_at_once(drive) -> None:
    async def script(driver) -> None:
        await to_ops(driver)
        table = driver.app.view_screen.table
        await driver.press("asterisk")
        assert len(table.rows) > 50
        await driver.press("asterisk")
        assert len(table.rows) == 2 + 4

    drive(a_watch(), script)


@pytest.mark.parametrize(("key", "words"), [("t", "by total time"), ("o", "by own difference"), ("s", "by total time")])
def test_ops_are_sorted_by_keys(drive, key: str, words: str) -> None:
    async def script(driver) -> None:
        await to_ops(driver)
        culprit = driver.cursor()
        await driver.press(key)
        assert words in driver.screen_text()
        assert driver.cursor() == culprit
        await driver.press("S")
        assert "turned round" in driver.screen_text()

    drive(a_watch(), script)


def test_tree_or_list(drive) -> None:
    async def script(driver) -> None:
        await to_ops(driver)
        await driver.press("w")
        rows = driver.app.view_screen.table.rows
        assert rows[2].node.delta == some_deltas()[0]
        assert "list by difference" in driver.screen_text()
        assert "convolution_backward" in driver.cursor()

    drive(a_watch(), script)


WATERFALL, FLAME, OP = "other ops", "width: candidate's time", "aten::convolution_backward"


@pytest.mark.parametrize(
    ("size", "turns"),
    [((120, 40), [{OP, WATERFALL}, {OP, FLAME}, {OP, WATERFALL}]), ((80, 24), [{OP}, {WATERFALL}, {FLAME}, {OP}])],
)
def test_pictures_stand_beside_the_op_or_take_turns_with_it(drive, size, turns) -> None:
    async def script(driver) -> None:
        await to_ops(driver)
        for shown in turns:
            text = driver.screen_text()
            assert {part for part in (WATERFALL, FLAME, OP) if part in text} == shown
            await driver.press("f")

    drive(a_watch(), script, size=size)


def test_a_filter_finds_ops_anywhere_in_the_tree(drive) -> None:
    async def script(driver) -> None:
        await to_ops(driver)
        await driver.press("slash", *"batch_norm", "enter")
        leaves = [row.node for row in driver.app.view_screen.table.rows if row.node.delta is not None]
        assert leaves
        assert all("batch_norm" in node.delta.key.op for node in leaves)
        await driver.press("escape")
        assert "convolution_backward" in driver.screen_text()

    drive(a_watch(), script)


def test_many_ops_are_paged_until_all_are_asked_for(drive) -> None:
    watch = a_watch()
    watch.ops = {RED: some_deltas(1500)}

    async def script(driver) -> None:
        await to_ops(driver)
        await driver.press("w")
        assert len(driver.app.view_screen.table.rows) == 500
        assert "the first 500 of 1,502 rows (A: all)" in driver.screen_text()
        await driver.press("A")
        assert len(driver.app.view_screen.table.rows) == 1502

    drive(watch, script)


def test_a_case_without_compared_ops_says_what_to_do(drive) -> None:
    async def script(driver) -> None:
        await driver.press("3")
        assert f"n shows {RED}, whose were" in driver.screen_text()
        await driver.press("f", "w", "asterisk", "right", "left", "t", "A", "enter")

    drive(a_watch(), script)


def test_from_a_case_without_ops_one_key_leads_to_one_with_ops(drive) -> None:
    async def script(driver) -> None:
        await driver.press("3", "n")
        assert driver.app.session.selected == RED
        assert "convolution_backward" in driver.cursor()

    drive(a_watch(), script)


def test_ops_that_come_later_are_shown_when_they_come(drive) -> None:
    from tests.changed_values import replace

    run = a_run()
    cases = tuple(replace(case, attribution=None) for case in run.cases)

    async def script(driver) -> None:
        await to_ops(driver)
        assert "were not compared" in driver.screen_text()
        await driver.tick()
        assert "convolution_backward" in driver.cursor()

    drive(a_watch(replace(run, cases=cases), run), script)


def test_the_next_flag_is_op_counts_row_or_an_op_that_is_blamed(drive) -> None:
    async def script(driver) -> None:
        await to_ops(driver)
        culprit = driver.cursor()
        await driver.press("n")
        assert driver.cursor() == "op_counts/0"
        await driver.press("n", "n")
        assert driver.cursor() == culprit
        await driver.press("N")
        assert driver.cursor() == "op_counts/1"

    drive(a_watch(), script)
