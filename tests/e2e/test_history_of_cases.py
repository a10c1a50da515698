"""`perfguard history`, over recorded runs."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.recorded_runs import CASE_IDS, DATA, MACHINE, SLOWER


@pytest.fixture
def recorded(empty_project):
    for number in range(3):
        place = empty_project.path / ".perfguard" / "runs" / f"20260102T03040{number}-a1b2c3"
        shutil.copytree(DATA / "paired", place)
    return empty_project


@pytest.mark.parametrize("case", [SLOWER, "step.resnet", "step.res*"])
def test_a_case_is_shown_in_each_of_its_runs(recorded, case):
    done = recorded.run("history", case, "--last", "2", "--format", "json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert (found["case_id"], found["machine_id"], found["changes"]) == (SLOWER, MACHINE, [])
    assert [point["run_id"][:14] for point in found["points"]] == ["20260102T03040"] * 3
    printed = recorded.run("history", case, "--last", "2").stdout
    assert printed.count("●") == 2


def test_without_a_case_each_has_a_row(recorded):
    done = recorded.run("history")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(MACHINE) == len(json.loads(recorded.run("history", "--format", "json").stdout))
    assert 0 < done.stdout.count(MACHINE) <= len(CASE_IDS)


def test_a_case_that_no_run_holds_is_said_with_the_nearest(recorded):
    done = recorded.run("history", "step.resnt")
    assert (done.returncode, done.stdout) == (5, "")
    assert "the nearest is" in done.stderr
    assert "step.resnet" in done.stderr


def test_without_runs_it_says_what_makes_one(empty_project):
    done = empty_project.run("history")
    assert done.returncode == 0, done.stderr
    assert "perfguard gate" in done.stdout
    assert json.loads(empty_project.run("history", "--format", "json").stdout) == []
