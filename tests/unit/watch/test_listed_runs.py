from __future__ import annotations

import json
import os
import shutil

import pytest

from perfguard.watch.sources.recorded_runs import RecordedRun, recorded_runs
from tests.recorded_runs import DATA


@pytest.fixture
def runs(tmp_path):
    shutil.copytree(DATA / "paired", tmp_path / "20260102T030400-a")
    return tmp_path


def write(runs, name, *events):
    (runs / name).mkdir()
    (runs / name / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


START = {"event": "run_started", "t_wall": 1000.0, "command": ["perfguard", "gate"]}


def test_a_run_has_its_command_its_beginning_and_what_it_came_to(runs):
    (found,) = recorded_runs(runs)
    assert found == RecordedRun(
        name="20260102T030400-a", started_at=1790000000.001,
        command=("perfguard", "gate", "--suite", "example"), outcome="regressed",
    )  # fmt: skip


def test_the_newest_come_first_and_one_that_has_not_ended_has_no_outcome(runs):
    write(runs, "20260103T030400-b", START, {"event": "block_finished", "outcome": "pass"})
    newest, oldest = recorded_runs(runs)
    assert (newest.name, newest.outcome, oldest.outcome) == ("20260103T030400-b", None, "regressed")
    assert recorded_runs(runs, most=1) == (newest,)


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "\x00", '{"command": 3, "t_wall": 1e999}', '{"t_wall": "x"}', "[" * 100_000]
)
def test_what_is_damaged_is_listed_without_what_it_does_not_tell(tmp_path, text):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.jsonl").write_text(text)
    assert recorded_runs(tmp_path) == (RecordedRun(name="run", started_at=None, command=(), outcome=None),)


def test_what_could_be_read_for_ever_is_left_out(runs):
    for name in ("pipe", "link"):
        (runs / name).mkdir()
    os.mkfifo(runs / "pipe" / "events.jsonl")
    (runs / "link" / "events.jsonl").symlink_to("/dev/zero")
    assert [run.name for run in recorded_runs(runs)] == ["20260102T030400-a"]
