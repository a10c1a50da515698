"""What keys copy, export and start; when the application paints; what it reads of the host."""

from __future__ import annotations

import csv
import io
import json

import pytest

from perfguard.errors import UsageError
from perfguard.tui.dialogs import checked_path, checked_words
from perfguard.tui.drawing.spans import UNICODE
from perfguard.tui.host_now import host_text
from perfguard.tui.launch import TuiOptions
from perfguard.tui.pace import PATIENCE_S, Pace
from perfguard.tui.session import AppState, command_for, words_to_start
from perfguard.tui.tables.cases import axis_for, live_table
from perfguard.tui.tables.columns import as_csv, as_json, as_markdown, as_text, exported
from tests.tui_runs import RED, a_case, a_run, a_watch


def a_session(**fields) -> AppState:
    session = AppState(a_watch(), TuiOptions(**fields))
    session.view = a_run()
    return session


ROWS = a_run().cases
SPEC = live_table(axis_for(ROWS), UNICODE)


def test_a_row_as_markdown_is_a_table_of_its_own() -> None:
    head, rule, row = as_markdown(SPEC, [ROWS[2]]).splitlines()
    assert head.startswith("| case | n | baseline")
    assert rule.count("|") == head.count("|") == row.count("|")
    assert "[4.19, 7.14]" in row
    assert "▲ regressed" in row


def test_bars_do_not_break_a_markdown_table() -> None:
    assert r"a\|b" in as_markdown(SPEC, [a_case("a|b")])


def test_an_export_holds_every_row_that_is_shown() -> None:
    assert len(list(csv.reader(io.StringIO(as_csv(SPEC, ROWS))))) == len(ROWS) + 1
    assert len(as_text(SPEC, ROWS).splitlines()) == len(ROWS) + 1
    found = json.loads(as_json(SPEC, ROWS))
    assert [row["case_id"] for row in found] == [case.case_id for case in ROWS]
    assert exported(SPEC, ROWS, ".csv") == as_csv(SPEC, ROWS)


def test_names_are_never_cut_in_an_export() -> None:
    long = a_case("kernel." + "x" * 200)
    assert long.case_id in as_markdown(SPEC, [long])


def test_an_unknown_format_is_refused(tmp_path) -> None:
    with pytest.raises(UsageError, match="no format"):
        exported(SPEC, ROWS, ".xlsx")
    with pytest.raises(UsageError, match="no format"):
        checked_path("report")
    with pytest.raises(UsageError, match="no folder"):
        checked_path(str(tmp_path / "absent" / "x.md"))
    (tmp_path / "x.md").write_text("")
    with pytest.raises(UsageError, match="exists already"):
        checked_path(str(tmp_path / "x.md"))
    assert checked_path(str(tmp_path / "y.md")) == tmp_path / "y.md"


@pytest.mark.parametrize(
    ("screen", "command"),
    [
        ("live", "perfguard watch 20260921T142640-example --plain"),
        ("compare", "perfguard show 20260921T142640-example"),
        ("ops", f"perfguard compare --baseline git:HEAD --candidate dir:. --case '{RED}' --ops"),
        ("host", "perfguard doctor"),
    ],
)
def test_every_screen_has_a_command_that_says_the_same(screen: str, command: str) -> None:
    session = a_session()
    session.selected = RED
    assert command_for(screen, session) == command


def test_what_would_be_started_is_the_runs_own_command() -> None:
    assert words_to_start("run", a_session()) == ["gate", "--suite", "example"]
    assert words_to_start("baseline", a_session()) == ["baseline", "update", "--suite", "example"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("perfguard gate --suite 'my suite'", ("gate", "--suite", "my suite")),
        ("run", ("run",)),
        ("baseline update --allow-dirty", ("baseline", "update", "--allow-dirty")),
    ],
)
def test_a_command_line_is_taken_apart_as_a_shell_does(text: str, words: tuple[str, ...]) -> None:
    assert checked_words(text) == words


@pytest.mark.parametrize("text", ["baseline anchor", "rm -rf /", "perfguard", "", "gate 'open", "profile x"])
def test_only_measuring_commands_can_be_started(text: str) -> None:
    with pytest.raises(UsageError):
        checked_words(text)


def test_cases_are_selected_round_the_end() -> None:
    session = a_session()
    assert session.select_next(-1) == ROWS[-1].case_id
    assert session.select_next(1) == ROWS[0].case_id
    session.view = a_run(cases=())
    assert session.select_next(1) is None
    assert session.case is None


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_painting_waits_for_a_gap_between_samples_but_not_for_ever() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    pace.painted()
    assert not pace.may_paint(is_between_samples=False)
    assert pace.may_paint(is_between_samples=True)
    clock.now += PATIENCE_S
    assert pace.may_paint(is_between_samples=False)


def test_nothing_is_painted_while_paused() -> None:
    pace = Pace(clock=Clock(), is_paused=True)
    assert not pace.may_paint(is_between_samples=True)


def test_rows_change_places_by_themselves_every_five_seconds_at_most() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    due = []
    for _ in range(12):
        due.append(pace.painted())
        clock.now += 1.0
    assert due == [True, *[False] * 4, True, *[False] * 4, True, False]


def test_the_interval_has_a_smallest_and_a_largest_value() -> None:
    pace = Pace()
    assert [pace.change_interval(1) for _ in range(5)] == [2.0, 5.0, 10.0, 10.0, 10.0]
    assert [pace.change_interval(-1) for _ in range(6)] == [5.0, 2.0, 1.0, 0.5, 0.5, 0.5]


def test_the_readers_own_cost_is_measured() -> None:
    clock, used = Clock(), Clock()
    pace = Pace(clock=clock, cpu_clock=used)
    pace.measure()
    clock.now, used.now = clock.now + 10.0, used.now + 0.1
    pace.measure()
    assert pace.own_ratio == pytest.approx(0.01)


def test_the_host_is_read_from_its_files(tmp_path) -> None:
    files = {
        "proc/loadavg": "0.42 0.30 0.20 1/300 1234\n",
        "sys/devices/system/cpu/cpu2/cpufreq/scaling_cur_freq": "3000000\n",
        "sys/devices/system/cpu/cpu3/cpufreq/scaling_cur_freq": "3200000\n",
        "sys/class/hwmon/hwmon0/name": "acpitz\n",
        "sys/class/hwmon/hwmon0/temp1_input": "90000\n",
        "sys/class/hwmon/hwmon1/name": "coretemp\n",
        "sys/class/hwmon/hwmon1/temp1_input": "51000\n",
        "sys/class/hwmon/hwmon1/temp2_input": "nonsense\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert host_text((2, 3), tmp_path) == "load 0.4  3.10 GHz  51 °C"


def test_a_host_that_tells_nothing_is_no_error(tmp_path) -> None:
    assert host_text((0,), tmp_path) == ""
