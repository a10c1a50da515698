"""Filters and the order of rows, by keys alone."""

from __future__ import annotations

from textual import events

from tests.tui_runs import RED, a_watch


def test_a_filter_shows_what_it_accepts_and_escape_shows_all(drive) -> None:
    async def script(driver) -> None:
        await driver.press("slash", *"kernel", "enter")
        shown = [row.case_id for row in driver.app.view_screen.table.rows]
        assert shown
        assert all("kernel" in case_id for case_id in shown)
        assert "/kernel" in driver.status()
        await driver.press("j")
        assert driver.cursor() == shown[1]
        await driver.press("escape")
        assert len(driver.app.view_screen.table.rows) == len(driver.app.session.cases)

    drive(a_watch(), script)


def test_what_is_typed_right_behind_the_filters_key_is_its_text(drive) -> None:
    async def script(driver) -> None:
        for key, character in (("slash", "/"), ("6", "6"), ("slash", "/"), ("q", "q")):
            driver.app.post_message(events.Key(key, character))  # all in the queue before anything is handled
        await driver.press("enter")
        assert driver.app.view_screen.filter.text == "6/q"
        assert driver.app.current_mode == "live"

    drive(a_watch(), script)


def test_an_inverse_filter_shows_all_other_rows(drive) -> None:
    async def script(driver) -> None:
        await driver.press("slash", "exclamation_mark", *"kernel")
        assert all("kernel" not in row.case_id for row in driver.app.view_screen.table.rows)
        await driver.press("escape")

    drive(a_watch(), script)


def test_a_filter_that_is_no_pattern_says_so(drive) -> None:
    async def script(driver) -> None:
        await driver.press("slash", *"resnet", "left_square_bracket")
        assert "no regular expression" in driver.status()
        assert [row.case_id for row in driver.app.view_screen.table.rows] == [RED]

    drive(a_watch(), script)


def test_a_filter_that_accepts_nothing_says_how_to_see_all(drive) -> None:
    async def script(driver) -> None:
        await driver.press("slash", *"zzz", "enter")
        assert "no row matches 'zzz'; esc shows all" in driver.screen_text()
        await driver.press("y", "n", "enter", "down")

    drive(a_watch(), script)


def test_rows_are_sorted_by_column_and_turned_round(drive) -> None:
    async def script(driver) -> None:
        table = driver.app.view_screen.table
        await driver.press("s")
        ids = [row.case_id for row in table.rows]
        assert ids == sorted(ids)
        await driver.press("S")
        assert [row.case_id for row in table.rows] == sorted(ids, reverse=True)
        assert "order turned round" in driver.status()

    drive(a_watch(), script)


def test_the_cursor_stays_with_its_case_when_rows_change_places(drive) -> None:
    async def script(driver) -> None:
        await driver.press("n")
        for _ in range(9):
            await driver.press("s")
            assert driver.cursor() == RED

    drive(a_watch(), script)
