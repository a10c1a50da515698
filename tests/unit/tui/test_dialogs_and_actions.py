"""What keys do beside showing: copying, exporting, starting, help, palette, quitting."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from perfguard.errors import ConfigError, UsageError
from perfguard.tui.launch import StartedCommand, TuiOptions, run_app
from perfguard.watch.sources.recorded_runs import RecordedRun
from perfguard.watch.view.run_view import RunState, RunView
from tests.changed_values import replace
from tests.tui_runs import RED, a_run, a_watch


def options(**fields) -> TuiOptions:
    return TuiOptions(interval_s=3600.0, **fields)


def test_arms_are_swapped_with_a_word(drive) -> None:
    async def script(driver) -> None:
        await driver.press("n", "a")
        drawn = driver.screen_text()
        assert "arms swapped" in drawn
        assert "dir:. → git:HEAD" in drawn
        assert "13.10 ms → candidate 12.40 ms" in drawn
        await driver.press("a")
        assert "git:HEAD → dir:." in driver.screen_text()

    drive(a_watch(), script)


def test_a_row_is_copied_as_markdown(drive) -> None:
    async def script(driver) -> None:
        await driver.press("n", "y")
        assert driver.app.clipboard.splitlines()[2].startswith(f"| {RED} | 8 | 12.40 ms")
        assert "copied" in driver.status()

    drive(a_watch(), script)


def test_the_command_for_a_screen_is_copied(drive) -> None:
    async def script(driver) -> None:
        await driver.press("n", "3", "Y")
        assert driver.app.clipboard.startswith("perfguard compare --baseline git:HEAD")

    drive(a_watch(), script)


@pytest.mark.parametrize("ending", ["md", "csv", "json", "txt", "svg"])
def test_what_is_shown_is_written_to_a_file(drive, tmp_path, ending: str) -> None:
    path = tmp_path / f"cases.{ending}"

    async def script(driver) -> None:
        await driver.press("e")
        driver.app.screen.input.value = str(path)
        await driver.press("enter")
        assert "written to" in driver.status()

    drive(a_watch(), script)
    content = path.read_text(encoding="utf-8")
    assert ("resnet" in content) if ending != "svg" else content.startswith("<svg")
    if ending == "json":
        assert len(json.loads(content)) == len(a_run().cases)


def test_a_file_that_exists_is_not_overwritten(drive, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "cases.md"
    path.write_text("mine")

    async def script(driver) -> None:
        await driver.press("e")
        driver.app.screen.input.value = "cases.md"
        await driver.press("enter")
        assert "exists already" in driver.screen_text()
        await driver.press("escape")
        assert driver.mode == "live"

    drive(a_watch(), script)
    assert path.read_text() == "mine"


def test_a_run_is_started_only_after_its_command_was_shown(drive) -> None:
    started = []

    def start(words):
        started.append(words)
        return StartedCommand(sentence="started as process 42", watch=a_watch(replace(a_run(), run_id="second")))

    async def script(driver) -> None:
        await driver.press("R")
        assert "perfguard gate --suite example" in driver.screen_text()
        assert started == []
        await driver.press("enter")
        assert started == [("gate", "--suite", "example")]
        assert "started as process 42" in driver.status()
        assert driver.app.session.view.run_id == "second"

    drive(a_watch(), script, options=options(start_command=start))


def test_why_nothing_was_started_stays_until_it_is_closed(drive) -> None:
    long = (
        "another run measures on this host since 14:02, by ana, pid 4711; "
        + "wait until it has ended, " * 8
        + "or end it"
    )

    async def script(driver) -> None:
        await driver.press("R")
        await driver.press("enter")
        shown = " ".join(driver.screen_text().split())
        assert "nothing was started" in shown
        assert "pid 4711" in shown
        assert "or end it" in shown
        await driver.press("escape")
        assert driver.app.screen is driver.app.view_screen
        assert driver.app.session.view.run_id == a_run().run_id

    drive(a_watch(), script, options=options(start_command=lambda words: StartedCommand(sentence=long)))


def test_another_run_is_chosen_from_those_of_the_project(drive) -> None:
    runs = tuple(
        RecordedRun(name=name, started_at=None, command=("perfguard", "gate"), outcome=outcome)
        for name, outcome in (("new", None), ("old", "pass"))
    )
    opened = []

    def opens(name: str):
        opened.append(name)
        return a_watch(replace(a_run(), run_id=name))

    async def script(driver) -> None:
        await driver.press("2")
        await driver.press("c")
        await driver.settle()
        assert [row.name for row in driver.app.screen.table.rows] == ["new", "old"]
        await driver.press("escape")
        assert opened == []
        await driver.press("c")
        await driver.settle()
        await driver.press("down", "enter")
        await driver.settle()
        assert (opened, driver.mode) == (["old"], "live")
        assert driver.app.session.view.run_id == "old"
        assert driver.app.session.options.run_name == "old"

    drive(a_watch(a_run()), script, options=TuiOptions(list_runs=lambda: runs, open_run=opens))


def test_the_runs_of_another_machine_are_not_listed(drive) -> None:
    async def script(driver) -> None:
        await driver.press("c")
        assert "another machine" in driver.status()

    drive(a_watch(), script)


def test_a_project_without_a_run_says_how_one_begins(drive) -> None:
    empty = RunView(run_id=None, state=RunState.WAITING)

    async def script(driver) -> None:
        assert "no run is recorded in this project yet" in driver.status()
        await driver.press("R")
        assert "perfguard gate" in driver.screen_text()

    drive(a_watch(empty), script, options=options(hint="no run is recorded in this project yet: R starts one"))


def test_a_baseline_is_proposed_and_can_be_left(drive) -> None:
    started = []

    async def script(driver) -> None:
        await driver.press("b")
        assert "perfguard baseline update --suite example" in driver.screen_text()
        await driver.press("escape")
        assert started == []

    drive(a_watch(), script, options=options(start_command=started.append))


def test_read_only_starts_nothing(drive) -> None:
    async def script(driver) -> None:
        await driver.press("R")
        assert "read-only" in driver.screen_text()
        await driver.press("enter")
        assert driver.mode == "live"
        assert driver.app.screen is driver.app.view_screen

    drive(a_watch(), script)


def test_what_may_not_be_started_is_refused_in_place(drive) -> None:
    started = []

    async def script(driver) -> None:
        await driver.press("R")
        driver.app.screen.input.value = "perfguard baseline anchor"
        await driver.press("enter")
        assert "only perfguard run, compare" in driver.screen_text()
        assert started == []

    drive(a_watch(), script, options=options(start_command=started.append))


@pytest.mark.parametrize("key", ["question_mark", "f1", "h"])
def test_help_lists_every_key_as_it_is_mapped(drive, key: str) -> None:
    async def script(driver) -> None:
        await driver.press(key)
        from perfguard.tui.drawing.spans import plain

        text = "\n".join(plain(content) for content in driver.app.screen.pane.text)
        assert "f2" in text
        assert "(pause)" in text
        assert "▲ regressed" in text
        await driver.press("escape")
        assert driver.app.screen is driver.app.view_screen

    drive(a_watch(), script, options=options(keys={"pause": "f2"}))


def test_a_remapped_key_works_and_its_old_one_does_not(drive) -> None:
    async def script(driver) -> None:
        await driver.press("space")
        assert not driver.app.pace.is_paused
        await driver.press("p")
        assert driver.app.pace.is_paused
        assert "p pause" in driver.screen_text()

    drive(a_watch(), script, options=options(keys={"pause": "p"}))


def test_the_palette_finds_commands_by_name(drive) -> None:
    async def script(driver) -> None:
        await driver.press("colon")
        await driver.press(*"paired")
        await driver.settle()
        await driver.press("enter")
        await driver.settle()
        assert driver.mode == "compare"

    drive(a_watch(), script)


def test_quitting_ends_the_application_only(drive) -> None:
    async def script(driver) -> None:
        await driver.press("ctrl+c")
        assert "q quits" in driver.status()
        await driver.press("q")
        assert driver.app.return_code == 0

    drive(a_watch(), script)


def test_a_timer_that_comes_while_the_application_closes_paints_nothing(drive) -> None:
    left = []

    async def script(driver) -> None:
        left.append(driver.app)

    drive(a_watch(a_run()), script)
    (app,) = left
    assert app.screen_stack == []
    app.paint()


def test_a_wrong_key_or_theme_is_told_before_anything_is_shown() -> None:
    with pytest.raises(ConfigError, match="did you mean 'pause'"):
        run_app(a_watch(), TuiOptions(keys={"pauze": "p"}))
    with pytest.raises(UsageError, match="no theme 'pink'; choose from ansi-dark"):
        run_app(a_watch(), TuiOptions(theme="pink"))


def test_what_starts_the_application_imports_textual_only_then() -> None:
    code = "import sys, perfguard.tui.launch; print('textual' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_thread_that_breaks_is_told_in_the_status_line(drive) -> None:
    def broken():
        raise OSError("the disk is gone")

    async def script(driver) -> None:
        await driver.pilot.press("4")
        while "the disk is gone" not in driver.status():  # ends with the test's own limit
            await driver.pilot.pause(0.05)

    drive(a_watch(), script, options=options(read_history=broken))
