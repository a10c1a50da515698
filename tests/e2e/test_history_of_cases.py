"""`perfguard history` and `perfguard db`, over recorded runs and real ones."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest

from perfguard.history.database import opened
from perfguard.history.recording import add_run
from tests.changed_values import replace
from tests.recorded_histories import COMMITS, a_run
from tests.recorded_runs import CASE_IDS, DATA, MACHINE, SLOWER

KNOWN = "step.bert[n=1]"


@pytest.fixture
def recorded(empty_project):
    empty_project.environment["PERFGUARD_DATABASE"] = "history.sqlite"
    for number in range(3):
        place = empty_project.path / ".perfguard" / "runs" / f"20260102T03040{number}-a1b2c3"
        shutil.copytree(DATA / "paired", place)
    return empty_project


@pytest.mark.parametrize(
    ("case", "database"), [(SLOWER, "history.sqlite"), ("step.resnet", "off"), ("step.res*", "history.sqlite")]
)
def test_a_case_is_shown_in_each_of_its_runs(recorded, case, database):
    recorded.environment["PERFGUARD_DATABASE"] = database
    done = recorded.run("history", case, "--last", "2", "--format", "json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert (found["case_id"], found["machine_id"], found["changes"]) == (SLOWER, MACHINE, [])
    assert [point["run_id"][:14] for point in found["points"]] == ["20260102T03040"] * 3
    printed = recorded.run("history", case, "--last", "2").stdout
    assert printed.count("●") == 2
    assert (recorded.path / "history.sqlite").exists() == (database != "off")


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


def test_runs_outlive_their_folders(recorded):
    assert recorded.run("history").returncode == 0
    shutil.rmtree(recorded.path / ".perfguard")
    logged = json.loads(recorded.run("history", "log", "--format", "json").stdout)
    assert [each["run"]["run_id"][:15] for each in logged] == [f"20260102T03040{number}" for number in (2, 1, 0)]
    shown = recorded.run("history", "show", "20260102T030401")
    assert shown.returncode == 0, shown.stderr
    assert "step.resnet" in shown.stdout
    whole = json.loads(recorded.run("history", "show", "20260102T030401", "--format", "json").stdout)
    assert len(whole["samples"][SLOWER]["candidate_s"]) > 1
    assert recorded.run("history", "show", "2026").returncode == 5


def test_a_database_is_copied_verified_and_put_back(recorded):
    assert recorded.run("history").returncode == 0
    done = recorded.run("db", "backup", "copy.sqlite")
    assert (done.returncode, "3 runs" in done.stdout) == (0, True), done.stderr
    with sqlite3.connect(recorded.path / "history.sqlite") as raw:
        raw.execute("UPDATE case_values SET median_s = median_s * 2")
    raw.close()
    done = recorded.run("db", "verify")
    assert done.returncode == 3
    assert done.stderr.count("is not what was recorded") == 3
    (recorded.path / "history.sqlite").unlink()
    done = recorded.run("db", "move", "--from", "copy.sqlite")
    assert (done.returncode, "copied 3 runs" in done.stdout) == (0, True), done.stderr
    assert recorded.run("db", "verify").returncode == 0
    assert recorded.run("db", "backup", "copy.sqlite").returncode == 2
    assert "there is no folder absent" in recorded.run("db", "backup", "absent/copy.sqlite").stderr
    assert not (recorded.path / "absent").exists()
    status = json.loads(recorded.run("db", "status", "--format", "json").stdout)
    assert (status["runs"], status["projects"]) == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("db", "status"), "database is off"),
        (("db", "move"), "--from and --to"),
        (("history", "compare", "a", "b"), "no git repository"),
    ],
)
def test_what_cannot_be_done_is_said(empty_project, arguments, said):
    done = empty_project.run(*arguments, PERFGUARD_DATABASE="off")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_missing_backup_is_said_before_anything_is_made(empty_project):
    done = empty_project.run("db", "move", "--from", "absent.sqlite", PERFGUARD_DATABASE="new.sqlite")
    assert (done.returncode, "no such file" in done.stderr) == (2, True)
    assert not (empty_project.path / "new.sqlite").exists()


def test_the_password_of_a_database_is_never_shown(empty_project):
    url = "postgresql://me:secret@127.0.0.1:1/history"
    for arguments in (("config", "show"), ("config", "show", "--json"), ("db", "status"), ("history",)):
        done = empty_project.run(*arguments, PERFGUARD_DATABASE=url)
        assert "secret" not in done.stdout + done.stderr
        assert "me" in done.stdout + done.stderr


def record_a_step(project, case_id):
    """A case that became slower at the twelfth commit."""
    project.environment["PERFGUARD_DATABASE"] = "history.sqlite"
    with opened("history.sqlite", project.path) as database:
        for number in range(24):
            level_s = (0.010 if number < 12 else 0.011) * (1 + 0.001 * (number * 7 % 5))
            run = a_run(number, median_s=level_s, project=str(project.path.resolve()))
            add_run(database, replace(run, cases=(replace(run.cases[0], case_id=case_id),)))


def test_changes_of_a_benchmark_that_the_project_no_longer_has_are_not_shown(empty_project):
    record_a_step(empty_project, "step.removed[n=1]")
    listed = empty_project.run("history", "--format", "json")
    assert json.loads(listed.stdout) == []
    assert "1 case of benchmarks that the project no longer has" in listed.stderr
    (named,) = json.loads(empty_project.run("history", "step.removed", "--format", "json").stdout)
    assert (len(named["points"]), named["changes"]) == (24, [])


def test_a_change_is_marked_with_who_and_why(empty_project):
    record_a_step(empty_project, KNOWN)
    before = empty_project.run("history", KNOWN).stdout
    assert "perfguard bisect" in before
    done = empty_project.run("history", "mark", KNOWN, COMMITS[12], "noise", "--because", "a neighbour")
    assert done.returncode == 0, done.stderr
    after = empty_project.run("history", KNOWN).stdout
    assert ("noise: a neighbour" in after, "perfguard bisect" in after) == (True, False)
    (found,) = json.loads(empty_project.run("history", KNOWN, "--format", "json").stdout)
    assert (found["changes"][0]["state"], found["changes"][0]["stated"]["reason"]) == ("noise", "a neighbour")
    refused = empty_project.run("history", "mark", KNOWN, "ffff", "fixed", "--because", "x")
    assert (refused.returncode, COMMITS[12][:12] in refused.stderr) == (2, True)
