"""Each screen by keys alone."""

from __future__ import annotations

import pytest

from perfguard.records.facts import fact, recorded_text
from perfguard.records.machine.fingerprint import CheckResult, CheckStatus
from perfguard.tui.launch import TuiOptions
from perfguard.watch.view.run_view import CaseState, RunState
from tests.changed_values import replace
from tests.tui_runs import RED, a_case, a_history, a_line, a_run, a_watch, with_case

CHECKS = (
    CheckResult(
        id="governor",
        status=CheckStatus.OK,
        observed=fact("doctor.governor", governors=("performance",)),
        why=fact("doctor.why_governor"),
    ),
    CheckResult(
        id="turbo",
        status=CheckStatus.WARN,
        observed=fact("doctor.on"),
        why=fact("doctor.why_turbo"),
        fix=fact("doctor.fix_turbo", value=0, file="boost"),
    ),
)


def options(**fields) -> TuiOptions:
    return TuiOptions(interval_s=3600.0, **fields)


def test_the_keys_one_to_eight_show_all_screens(drive) -> None:
    async def script(driver) -> None:
        modes = []
        for key in "12345678":
            await driver.press(key)
            modes.append(driver.mode)
            assert f"[{key} {driver.mode.capitalize()}]" in driver.screen_text()
        assert modes == ["live", "compare", "ops", "history", "host", "log", "fleet", "tune"]

    drive(a_watch(), script)


def test_brackets_go_round_all_screens(drive) -> None:
    async def script(driver) -> None:
        await driver.press("left_square_bracket")
        assert driver.mode == "tune"
        await driver.press("right_square_bracket", "right_square_bracket")
        assert driver.mode == "compare"

    drive(a_watch(), script)


def test_from_a_red_verdict_to_its_op_takes_two_keys(drive) -> None:
    async def script(driver) -> None:
        assert driver.cursor() != RED
        await driver.press("n", "d")
        assert driver.mode == "ops"
        assert driver.cursor() is not None
        assert "convolution_backward" in driver.cursor()
        assert "ref:any" in driver.screen_text()

    drive(a_watch(), script)


def test_enter_leads_from_case_to_curves_to_ops_and_escape_back(drive) -> None:
    async def script(driver) -> None:
        await driver.press("n", "enter")
        assert driver.mode == "compare"
        assert "8 blocks, in order" in driver.screen_text()
        await driver.press("enter")
        assert driver.mode == "ops"
        await driver.press("escape", "escape")
        assert driver.mode == "live"
        await driver.press("escape")
        assert driver.mode == "live"
        assert driver.app.is_running

    drive(a_watch(), script)


@pytest.mark.parametrize(("down", "up"), [("j", "k"), ("down", "up")])
def test_the_cursor_moves_by_arrows_and_by_letters(drive, down: str, up: str) -> None:
    async def script(driver) -> None:
        first = driver.cursor()
        await driver.press(down)
        second = driver.cursor()
        assert second != first
        await driver.press(up)
        assert driver.cursor() == first
        await driver.press("G")
        assert driver.cursor() == driver.app.session.cases[-1].case_id
        await driver.press("g")
        assert driver.cursor() == first
        await driver.press("pagedown", "pageup", "end", "home")
        assert driver.cursor() == first

    drive(a_watch(), script)


def test_the_selected_case_is_told_in_full(drive) -> None:
    async def script(driver) -> None:
        await driver.press("n")
        drawn = driver.screen_text()
        assert "12.40 ms → candidate 13.10 ms" in drawn
        assert "ResNet.layer1.*.conv1" in drawn

    drive(a_watch(), script)


def test_new_facts_are_shown_at_the_next_look(drive) -> None:
    run = a_run()
    later = with_case(run, a_case("kernel.softmax[rows=4096,dtype=fp32]", log_ratio=0.2, lower=0.18, upper=0.22))

    async def script(driver) -> None:
        assert "+22.1 %" not in driver.screen_text()
        await driver.tick()
        assert "+22.1 %" in driver.screen_text()

    drive(a_watch(run, later), script)


def test_space_stops_painting_while_the_run_goes_on(drive) -> None:
    run = a_run()
    later = with_case(run, a_case("kernel.softmax[rows=4096,dtype=fp32]", log_ratio=0.2, lower=0.18, upper=0.22))
    watch = a_watch(run, later)

    async def script(driver) -> None:
        await driver.press("space")
        polls = watch.polls
        await driver.tick()
        assert watch.polls > polls
        assert "+22.1 %" not in driver.screen_text()
        assert "paused" in driver.screen_text()
        await driver.press("space")
        assert "+22.1 %" in driver.screen_text()

    drive(watch, script)


def test_nothing_is_painted_while_a_sample_is_timed_but_not_for_ever(drive) -> None:
    run = a_run()
    later = with_case(run, a_case("kernel.softmax[rows=4096,dtype=fp32]", log_ratio=0.2, lower=0.18, upper=0.22))
    watch = a_watch(run, later)

    async def script(driver) -> None:
        watch.is_between_samples = False
        await driver.tick(1.0)
        assert "+22.1 %" not in driver.screen_text()
        await driver.tick(3.0)
        assert "+22.1 %" in driver.screen_text()

    drive(watch, script)


def test_looking_more_and_less_often(drive) -> None:
    async def script(driver) -> None:
        await driver.press("minus")
        assert "looking every" in driver.status()
        before = driver.app.pace.interval_s
        await driver.press("plus")
        assert driver.app.pace.interval_s < before

    drive(a_watch(), script)


def test_one_pane_alone_and_back(drive) -> None:
    async def script(driver) -> None:
        screen = driver.app.view_screen
        assert screen.detail.display
        height = screen.table.size.height
        await driver.press("z")
        assert screen.table.size.height > height
        assert screen.detail.size.height == 0 or not screen.detail.is_on_screen
        await driver.press("escape")
        assert screen.table.size.height == height
        await driver.press("tab", "z")
        assert screen.focused is screen.detail
        assert screen.detail.size.height > height
        await driver.press("z")

    drive(a_watch(), script)


def test_a_pane_scrolls_by_keys(drive) -> None:
    async def script(driver) -> None:
        await driver.press("n", "tab")
        pane = driver.app.view_screen.detail
        assert driver.app.screen.focused is pane
        await driver.press("G")
        assert pane.scroll_y == pane.max_scroll_y > 0
        await driver.press("k", "j", "pageup", "pagedown", "g", "enter")
        assert pane.scroll_y == 0

    drive(a_watch(), script, size=(60, 20))


def test_the_log_follows_its_end_and_finds_warnings(drive) -> None:
    run = a_run()
    more = replace(run, log=(*run.log, a_line(500, 90.0, "the run ended")))

    async def script(driver) -> None:
        await driver.press("6")
        assert driver.cursor() == "400"
        await driver.tick()
        assert driver.cursor() == "500"
        await driver.press("n")
        assert driver.cursor() == "90"
        assert "block 3 voided" in driver.screen_text()
        await driver.tick()
        assert driver.cursor() == "90"

    drive(a_watch(run, more), script)


def test_the_host_shows_checks_with_reason_and_fix(drive) -> None:
    asked = []

    def read():
        asked.append(True)
        return CHECKS

    async def script(driver) -> None:
        await driver.press("5")
        assert "governor" in driver.screen_text()
        await driver.press("n")
        assert driver.cursor() == "turbo"
        assert "echo 0 | sudo tee" in driver.screen_text()
        await driver.press("u")
        assert len(asked) == 2

    drive(a_watch(), script, options=options(read_checks=read))


def test_history_shows_series_with_changes(drive) -> None:
    async def script(driver) -> None:
        await driver.press("n", "4")
        assert driver.cursor() == RED
        drawn = driver.screen_text()
        assert "host changed once, software changed once" in drawn
        assert "1 run could not be read: run run-x:" in drawn
        await driver.press("j")
        assert driver.cursor() == "kernel.linear[m=512,dtype=bf16]"
        await driver.press("enter")
        assert driver.mode == "compare"
        assert driver.cursor() == "kernel.linear[m=512,dtype=bf16]"

    drive(a_watch(), script, options=options(read_history=a_history))


@pytest.mark.parametrize("key", ["4", "5"])
def test_what_cannot_be_read_is_said_in_words(drive, key: str) -> None:
    async def script(driver) -> None:
        await driver.press(key)
        drawn = driver.screen_text()
        assert "no recorded runs can be read from here" in drawn or "this host is not" in drawn

    drive(a_watch(), script)


def test_case_keys_change_the_case_on_every_screen(drive) -> None:
    async def script(driver) -> None:
        await driver.press("2", "full_stop", "full_stop")
        assert driver.cursor() == RED
        await driver.press("3")
        assert RED in driver.screen_text()
        await driver.press("comma")
        assert "kernel.linear[m=512,dtype=bf16]" in driver.screen_text()
        assert "were not compared" in driver.screen_text()
        await driver.press("1")
        assert driver.cursor() == "kernel.linear[m=512,dtype=bf16]"

    drive(a_watch(), script)


def test_a_run_without_cases_has_all_screens(drive) -> None:
    empty = a_run(cases=(), arms=(), progress=None, log=(), notes=(), started_at=None)

    async def script(driver) -> None:
        for key in "12345678":
            await driver.press(key, "j", "enter", "n", "y", "full_stop", "escape")
        assert driver.app.is_running

    drive(a_watch(empty), script)


def test_a_case_that_is_measured_now_says_so(drive) -> None:
    async def script(driver) -> None:
        assert any(case.state is CaseState.MEASURING for case in driver.app.session.cases)
        assert "● measuring" in driver.screen_text()

    drive(a_watch(), script)


def ended(run):
    return replace(
        run, state=RunState.FINISHED, outcome="regressed", exit_code=1, reasons=(recorded_text("1 case regressed"),)
    )


def test_the_first_red_case_is_selected_when_the_run_has_ended(drive) -> None:
    run = a_run()

    async def script(driver) -> None:
        assert driver.cursor() == run.cases[0].case_id
        await driver.tick()
        assert driver.cursor() == RED

    drive(a_watch(run, ended(run)), script)


def test_a_case_that_somebody_chose_stays_selected(drive) -> None:
    run = a_run()

    async def script(driver) -> None:
        await driver.press("j")
        chosen = driver.cursor()
        await driver.tick()
        assert driver.cursor() == chosen != RED

    drive(a_watch(run, ended(run)), script)


def test_ctrl_c_says_how_to_leave_with_the_keys_of_the_user(drive) -> None:
    async def script(driver) -> None:
        await driver.press("ctrl+c")
        assert "Q quits" in driver.screen_text()
        assert driver.app.is_running

    drive(a_watch(), script, options=TuiOptions(interval_s=3600.0, keys={"quit": "Q"}))
