"""Driving the application without a terminal, and pictures of its screens to compare with."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perfguard.tui.drawing.head import status_line
from perfguard.tui.drawing.spans import plain
from perfguard.tui.launch import TuiOptions

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture(autouse=True)
def _a_plain_environment(monkeypatch):
    """A terminal with all colours, whatever the test runs in; textual reads its settings when it is imported."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TEXTUAL_THEME", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    # How long a pilot watches whether the process is idle; a test presses many keys.
    monkeypatch.setattr("textual._wait.SLEEP_GRANULARITY", 0.005)
    monkeypatch.setattr("textual._wait.SLEEP_IDLE", 0.0025)


_AT_REST = 8  # Equal pictures, one after the other


@pytest.fixture(autouse=True, scope="package")
def _style_sheets_parsed_once():
    """Applications of tests share parsed style sheets; parsing them took a quarter of a test's time."""
    from textual.css.stylesheet import Stylesheet

    parse, parsed = Stylesheet._parse_rules, {}

    def parse_once(sheet, *what, **more):
        key = (*sorted(sheet._variables.items()), *what, *more.items())
        if key not in parsed:
            parsed[key] = parse(sheet, *what, **more)
        return parsed[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Stylesheet, "_parse_rules", parse_once)
        yield


@dataclass
class Clock:
    """A clock that moves only when a test moves it."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Driver:
    """Hands and eyes on a running application."""

    app: object
    pilot: object
    clock: Clock = field(default_factory=Clock)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        """Wait for threads and messages, then let the screen be painted."""
        for _ in range(2):
            await self.app.workers.wait_for_complete()
            await self.pilot.pause()
        await asyncio.sleep(1 / 50)  # textual lays a screen out up to 60 times a second
        await self.pilot.pause()

    async def tick(self, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.app.tick()
        await self.settle()

    async def resize(self, width: int, height: int) -> None:
        await self.pilot.resize_terminal(width, height)
        await self.settle()

    @property
    def mode(self) -> str:
        return self.app.current_mode

    def screen_text(self) -> str:
        """What is on the screen, line by line."""
        size = self.app.size
        strips = self.app.screen._compositor.render_strips(size)
        return "\n".join(strip.text for strip in strips)

    async def picture(self) -> str:
        """The screen as SVG, once it has come to rest: a layout may cause another one, on a slow host much later."""
        pictures: list[str] = []
        while len(pictures) < _AT_REST or len(set(pictures[-_AT_REST:])) > 1:
            assert len(pictures) < 50 * _AT_REST, "the screen does not come to rest"
            await asyncio.sleep(1 / 50)
            await self.pilot.pause()
            pictures.append(normalised(self.app.export_screenshot(title="perfguard", simplify=True)))
        return pictures[-1]

    def cursor(self) -> str | None:
        """Key of the row under the cursor."""
        return self.app.view_screen.table.cursor_key

    def status(self) -> str:
        return plain(status_line(self.app.session.view, self.app._facts(), 200))


@pytest.fixture
def drive():
    """Run an application over a watch and let a script press its keys: `drive(watch, script, size=…)`."""

    def run(
        watch,
        script: Callable[[Driver], Awaitable[None]],
        *,
        size: tuple[int, int] = (120, 40),
        options: TuiOptions | None = None,
    ) -> None:
        from perfguard.tui.app import PerfguardApp

        clock = Clock()

        async def main() -> None:
            app = PerfguardApp(watch, options or TuiOptions(interval_s=3600.0), clock=clock, cpu_clock=lambda: 0.0)
            app.animation_level = "none"
            async with app.run_test(size=size) as pilot:
                driver = Driver(app=app, pilot=pilot, clock=clock)
                await driver.settle()
                await script(driver)

        asyncio.run(main())

    return run


@pytest.fixture
def check_picture():
    """Compare the screen with the stored SVG of a name; `PERFGUARD_UPDATE_SNAPSHOTS=1` stores it anew."""

    async def check(driver: Driver, name: str) -> None:
        drawn = await driver.picture()
        stored = SNAPSHOTS / f"{name}.svg"
        if os.environ.get("PERFGUARD_UPDATE_SNAPSHOTS"):
            SNAPSHOTS.mkdir(exist_ok=True)
            stored.write_text(drawn, encoding="utf-8")
        assert stored.is_file(), f"{stored} is missing; PERFGUARD_UPDATE_SNAPSHOTS=1 makes it"
        assert drawn == stored.read_text(encoding="utf-8"), (
            f"{name} looks otherwise than {stored}:\n{driver.screen_text()}"
        )

    return check


def normalised(svg: str) -> str:
    """Without what differs from one export to the next, and without addresses that a viewer would fetch."""
    svg = re.sub(r"terminal-\d+-", "terminal-", svg)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return "\n".join(row.rstrip() for row in svg.splitlines()) + "\n"
