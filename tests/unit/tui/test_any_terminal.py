"""Small terminals, terminals without colour or Unicode, runs that are not well: a message in place, no traceback."""

from __future__ import annotations

import pytest

from perfguard.records.facts import recorded_text
from perfguard.tui.launch import TuiOptions
from perfguard.tui.themes import THEMES
from perfguard.watch.view.run_view import RunState, RunView
from tests.tui_runs import RED, a_history, a_run, a_watch


def options(**fields) -> TuiOptions:
    return TuiOptions(interval_s=3600.0, read_history=a_history, **fields)


@pytest.mark.parametrize("size", [(20, 5), (29, 40), (200, 7), (1, 1), (3, 3)])
def test_a_terminal_that_is_too_small_says_so(drive, size: tuple[int, int]) -> None:
    async def script(driver) -> None:
        await driver.resize(*size)
        if size[0] >= 20:
            assert "too small" in " ".join(driver.screen_text().split())
        await driver.press("2", "3", "j", "question_mark", "escape", "slash", "x", "escape", "6")
        await driver.resize(120, 40)
        assert "too small" not in driver.screen_text()
        assert "what happened" in driver.screen_text()

    drive(a_watch(), script)


@pytest.mark.parametrize("size", [(30, 8), (40, 12), (60, 16), (80, 24), (120, 40), (200, 60)])
def test_every_screen_has_room_in_every_terminal(drive, size: tuple[int, int]) -> None:
    async def script(driver) -> None:
        for key in "123456":
            await driver.press("n", key)
            rows = driver.screen_text().splitlines()
            assert len(rows) == size[1]
            assert f"[{key} " in rows[0]
            assert driver.app.view_screen.table.size.height >= 2

    drive(a_watch(), script, size=size, options=options())


def test_eighty_columns_lose_nothing_of_the_selected_case(drive) -> None:
    async def script(driver) -> None:
        await driver.press("n")
        drawn = driver.screen_text()
        for expected in (
            RED,
            "12.40 ms → candidate 13.10 ms",
            "+5.65 % [4.19, 7.14]",
            "8 blocks, 96 samples",
            "▲ regressed",
        ):
            assert expected in drawn

    drive(a_watch(), script, size=(80, 24))


def test_forty_columns_lose_nothing_of_the_selected_case(drive) -> None:
    from perfguard.tui.drawing.spans import plain

    async def script(driver) -> None:
        await driver.press("n", "tab", "z")
        text = " ".join(plain(content).strip() for content in driver.app.view_screen.detail.text)
        for expected in (RED, "12.40 ms → candidate 13.10 ms", "[4.19, 7.14]", "96 samples", "▲ regressed"):
            assert expected in text

    drive(a_watch(), script, size=(40, 24))


def test_ascii_means_ascii(drive) -> None:
    async def script(driver) -> None:
        for key in "123456":
            await driver.press("n", key, "f")
            strange = {character for character in driver.screen_text() if not character.isascii()}
            assert strange == set()

    drive(a_watch(), script, options=options(is_ascii=True))


def test_no_color_takes_all_colours_away(drive, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def script(driver) -> None:
        await driver.press("n")
        for line_filter in driver.app.get_line_filters():
            assert type(line_filter).__name__ == "NoColor"
        size = driver.app.size
        for strip in driver.app.screen._compositor.render_strips(size):
            for segment in strip:
                style = segment.style
                assert style is None or style.color is None or style.color.is_default
                assert style is None or style.bgcolor is None or style.bgcolor.is_default

    drive(a_watch(), script)


def test_the_cursors_row_is_marked_without_colour(drive, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def script(driver) -> None:
        await driver.press("n")
        marked = [row for row in driver.screen_text().splitlines() if "▸ " in row]
        assert len(marked) == 1
        assert "step.resnet" in marked[0]

    drive(a_watch(), script)


@pytest.mark.parametrize("term", ["linux", "xterm-16color", "dumb", "unknown"])
def test_a_terminal_with_few_colours_gets_its_own_ones(drive, monkeypatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("COLORTERM")

    async def script(driver) -> None:
        assert driver.app.theme == "perfguard-ansi"
        assert "▲ regressed" in driver.screen_text()

    drive(a_watch(), script)


@pytest.mark.parametrize("theme", [*(theme.name for theme in THEMES), "nord", "textual-light", "ansi-light"])
def test_every_theme_shows_the_run(drive, theme: str) -> None:
    async def script(driver) -> None:
        assert driver.app.theme == theme
        assert "▲ regressed" in driver.screen_text()
        driver.app.theme = "perfguard-light"
        await driver.settle()
        assert "▲ regressed" in driver.screen_text()

    drive(a_watch(), script, options=options(theme=theme))


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (RunView(run_id=None, state=RunState.WAITING), "waiting for the fir"),
        (a_run(state=RunState.GONE, problems=(recorded_text("the folder vanished"),)), "its folder vanished"),
        (a_run(state=RunState.SILENT), "it probably died"),
        (a_run(problems=(recorded_text("line 412 is corrupt: not a JSON line"),)), "line 412 is corrupt"),
        (a_run(mode="rounds", is_identical=None), "measuring"),
    ],
)
@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
def test_a_run_that_is_not_well_is_shown_as_far_as_it_is_known(drive, view: RunView, words: str, size) -> None:
    async def script(driver) -> None:
        for key in "1234561":
            await driver.press(key)
        assert words[:16] in driver.screen_text()

    drive(a_watch(view), script, size=size, options=options())


def test_strange_characters_in_names_do_not_move_the_terminal(drive) -> None:
    from tests.changed_values import replace

    run = a_run()
    cases = (replace(run.cases[2], case_id="bad\x1b[2J\tname\n日本語"), *run.cases)

    async def script(driver) -> None:
        drawn = driver.screen_text()
        assert "\x1b" not in drawn
        assert "日本語" in drawn

    drive(a_watch(replace(run, cases=cases)), script)


def test_a_click_puts_the_cursor_and_a_second_one_opens(drive) -> None:
    async def script(driver) -> None:
        table = driver.app.view_screen.table
        await driver.pilot.click(table, offset=(10, 4))
        await driver.settle()
        assert driver.cursor() == RED
        await driver.pilot.click(table, offset=(10, 4))
        await driver.settle()
        assert driver.mode == "compare"

    drive(a_watch(), script)


def test_heads_screens_and_keys_can_be_clicked(drive) -> None:
    async def script(driver) -> None:
        table = driver.app.view_screen.table
        await driver.pilot.click(table, offset=(4, 1))
        assert table.sort_id == "case"
        await driver.pilot.click(table, offset=(4, 1))
        assert table.is_reversed
        head = driver.screen_text().splitlines()[0]
        await driver.pilot.click("#head", offset=(head.index("Log"), 0))
        await driver.settle()
        assert driver.mode == "log"
        keys = driver.screen_text().splitlines()[-1]
        await driver.pilot.click("#keys", offset=(keys.index("pause"), 0))
        await driver.settle()
        assert driver.app.pace.is_paused

    drive(a_watch(), script)
