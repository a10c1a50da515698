"""Every screen as a picture, from a recorded run that is played up to its end with a clock that stands still."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfguard.tui.launch import TuiOptions
from perfguard.watch.sources.event_sources import ReplaySource
from perfguard.watch.view.watching import RunWatch
from tests.made_trainings import write_training
from tests.simulated_tuning import a_tuning
from tests.task_records import write_task_run
from tests.tui_runs import a_fleet, a_history
from tests.unit.report.test_task_runs import PLAN, RUNS

RECORDING = Path(__file__).parents[2] / "data" / "runs" / "paired"


def a_replay(at: float = 1.0, recording: Path = RECORDING) -> RunWatch:
    """A recording, standing at a part of its length."""
    source = ReplaySource(recording, clock=lambda: 0.0)
    source.seek(source.length_s * at)
    return RunWatch(source, clock=lambda: 0.0)


def options(**fields) -> TuiOptions:
    return TuiOptions(interval_s=1.0, read_history=a_history, read_fleet=a_fleet, read_tuning=a_tuning, **fields)


SCREENS = {"1": "live", "2": "compare", "3": "ops", "4": "history", "5": "host", "6": "log", "7": "fleet", "8": "tune"}


@pytest.mark.parametrize("key", SCREENS, ids=SCREENS.values())
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_screen_looks_as_stored(drive, check_picture, key: str, size: tuple[int, int]) -> None:
    async def script(driver) -> None:
        await driver.tick()
        await driver.press(key)
        await check_picture(driver, f"{SCREENS[key]}-{size[0]}x{size[1]}")

    drive(a_replay(), script, size=size, options=options())


def test_a_run_in_its_middle_looks_as_stored(drive, check_picture) -> None:
    async def script(driver) -> None:
        await driver.tick()
        await check_picture(driver, "live-measuring-120x40")

    drive(a_replay(0.5), script, options=options())


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_training_looks_as_stored(drive, check_picture, tmp_path, size: tuple[int, int]) -> None:
    async def script(driver) -> None:
        await driver.tick()
        await check_picture(driver, f"training-{size[0]}x{size[1]}")

    drive(a_replay(0.9, write_training(tmp_path / "run", epochs=14)), script, size=size, options=options())


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_task_looks_as_stored(drive, check_picture, tmp_path, size: tuple[int, int]) -> None:
    async def script(driver) -> None:
        await driver.tick()
        await check_picture(driver, f"task-{size[0]}x{size[1]}")

    drive(a_replay(0.9, write_task_run(tmp_path / "run", PLAN, RUNS)), script, size=size, options=options())


def test_no_color_looks_as_stored(drive, check_picture, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def script(driver) -> None:
        await driver.tick()
        await check_picture(driver, "live-no-color-80x24")

    drive(a_replay(), script, size=(80, 24), options=options())


def test_ascii_looks_as_stored(drive, check_picture) -> None:
    async def script(driver) -> None:
        await driver.tick()
        await driver.press("2")
        await check_picture(driver, "compare-ascii-80x24")

    drive(a_replay(), script, size=(80, 24), options=options(is_ascii=True))


@pytest.mark.parametrize(("keys", "name"), [(("3", "f"), "waterfall"), (("3", "f", "f"), "flame")])
def test_pictures_of_a_step_look_as_stored(drive, check_picture, keys: tuple[str, ...], name: str) -> None:
    async def script(driver) -> None:
        await driver.tick()
        await driver.press(*keys)
        await check_picture(driver, f"ops-{name}-120x40")

    drive(a_replay(), script, options=options())


def test_help_looks_as_stored(drive, check_picture) -> None:
    async def script(driver) -> None:
        await driver.press("question_mark")
        await check_picture(driver, "help-120x40")

    drive(a_replay(), script, options=options())
