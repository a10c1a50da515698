"""The table draws only what is on the screen, and only what changed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from textual.app import App

from perfguard.tui.drawing.spans import line
from perfguard.tui.tables.columns import Column, TableSpec, parse_filter
from perfguard.tui.themes import THEMES, styles_for
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Inks


@dataclass(frozen=True)
class Row:
    name: str
    value: int


class Probe:
    """Counts the cells that are drawn."""

    def __init__(self) -> None:
        self.drawn: list[str] = []

    def spec(self) -> TableSpec[Row]:
        def draw(row: Row, _: int):
            self.drawn.append(row.name)
            return line(str(row.value))

        return TableSpec(
            columns=(
                Column(id="name", head="name", draw=lambda row, _: line(row.name), width=8, stretch=1,
                       sort=lambda row: row.name),
                Column(id="value", head="value", draw=draw, width=8, sort=lambda row: row.value),
            ),
            key_of=lambda row: row.name,
            text_of=lambda row: row.name,
            empty="nothing here",
        )  # fmt: skip


def run(script, *, height: int = 12) -> None:
    probe = Probe()

    class TableApp(App[None]):
        inks = Inks(styles_for(THEMES[0]), is_ascii=False)

        def __init__(self) -> None:
            super().__init__()
            self.table: RowTable[Row] = RowTable(probe.spec())

        def compose(self):
            yield self.table

    async def main() -> None:
        app = TableApp()
        async with app.run_test(size=(40, height)) as pilot:
            await pilot.pause()
            await script(app.table, pilot, probe)

    asyncio.run(main())


def some(count: int) -> list[Row]:
    return [Row(f"row{index:05d}", index) for index in range(count)]


def test_only_rows_on_the_screen_are_drawn() -> None:
    async def script(table, pilot, probe) -> None:
        table.show(some(5000))
        await pilot.pause()
        assert len(set(probe.drawn)) == 11

    run(script)


def test_only_rows_that_changed_are_drawn_again() -> None:
    async def script(table, pilot, probe) -> None:
        rows = some(500)
        table.show(rows)
        await pilot.pause()
        probe.drawn.clear()
        rows[3] = Row("row00003", 99)
        rows[400] = Row("row00400", 99)
        table.show(rows)
        await pilot.pause()
        assert probe.drawn == ["row00003"]

    run(script)


def test_nothing_is_drawn_where_nothing_changed() -> None:
    async def script(table, pilot, probe) -> None:
        table.show(some(500))
        await pilot.pause()
        probe.drawn.clear()
        table.show(some(500))
        await pilot.pause()
        assert probe.drawn == []

    run(script)


def test_the_cursor_stays_with_its_row() -> None:
    async def script(table, pilot, probe) -> None:
        rows = some(30)
        table.show(rows)
        table.go_to("row00007")
        table.show([Row("new", 0), *rows])
        assert table.cursor_row == rows[7]
        table.show(rows[8:])
        assert table.cursor_row is not None
        table.show([])
        assert table.cursor_row is None
        assert table.cursor_key is None
        table.show(rows)
        assert table.cursor_row == rows[0]

    run(script)


def test_a_row_that_is_not_there_yet_gets_the_cursor_when_it_comes() -> None:
    async def script(table, pilot, probe) -> None:
        table.show(some(3))
        assert not table.go_to("row00005")
        table.show(some(9))
        assert table.cursor_key == "row00005"

    run(script)


def test_the_cursor_is_always_on_the_screen() -> None:
    async def script(table, pilot, probe) -> None:
        table.show(some(100))
        await pilot.pause()
        for action in ("scroll_end", "page_up", "scroll_up", "scroll_home", "page_down", "scroll_down"):
            getattr(table, f"action_{action}")()
            await pilot.pause()
            row = table.rows.index(table.cursor_row)
            assert round(table.scroll_y) <= row < round(table.scroll_y) + 11

    run(script)


def test_order_changes_only_when_it_may() -> None:
    async def script(table, pilot, probe) -> None:
        table.show(some(3))
        table.sort_by("value")
        changed = [Row("row00000", 9), Row("row00001", 5), Row("row00002", 1)]
        table.show(changed)
        assert [row.name for row in table.rows] == ["row00000", "row00001", "row00002"]
        table.show(changed, resort=True)
        assert [row.name for row in table.rows] == ["row00002", "row00001", "row00000"]
        table.sort_by("value", is_reversed=True)
        assert [row.value for row in table.rows] == [9, 5, 1]
        table.sort_by(None, is_reversed=True)
        table.show(changed)
        assert [row.name for row in table.rows] == ["row00002", "row00001", "row00000"]

    run(script)


def test_a_filter_and_its_absence() -> None:
    async def script(table, pilot, probe) -> None:
        table.show(some(20))
        table.set_filter(parse_filter("0001"))
        assert len(table.rows) == 11
        table.show(some(30))
        assert len(table.rows) == 11
        table.set_filter(None)
        assert len(table.rows) == 30

    run(script)


def test_the_terminals_cursor_follows_the_row() -> None:
    async def script(table, pilot, probe) -> None:
        table.show(some(50))
        table.focus()
        await pilot.pause()
        await pilot.press("j", "j")
        assert table.app.cursor_position.y == 3

    run(script)
