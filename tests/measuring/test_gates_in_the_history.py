"""Runs come into the history as they end, and revisions are compared by them."""

from __future__ import annotations

import json


def test_a_run_is_recorded_when_it_ends_and_revisions_are_compared(project):
    project.environment["PERFGUARD_DATABASE"] = "history.sqlite"
    project.write(".gitignore", "history.sqlite*\n")
    before = project.commit("ignore the history")
    assert project.run("run", "--budget", "5", "--no-progress").returncode == 0
    project.replace("tiny_work.py", "LENGTH = 20_000", "LENGTH = 40_000")
    after = project.commit("slower")
    done = project.run("compare", "--baseline", f"git:{before}", "--budget", "20", "--no-progress")
    assert done.returncode == 1, done.stdout + done.stderr
    logged = json.loads(project.run("history", "log", "--format", "json").stdout)
    assert [each["run"]["mode"] for each in logged] == ["paired", "rounds"]
    assert [each["run"]["candidate"]["commit"] for each in logged] == [after, before]
    assert logged[0]["run"]["baseline"]["commit"] == before
    found = json.loads(project.run("history", "compare", before, after, "--format", "json").stdout)["cases"]
    slower = next(case for case in found if case["case_id"].startswith("tiny.sum"))
    assert slower["paired_runs"] == 1
    assert 0 < slower["lower"] < slower["log_ratio"] < slower["upper"]
    assert project.run("history", "compare", "HEAD", "HEAD~2").returncode == 5


def test_a_history_that_cannot_be_written_does_not_change_the_verdict(project):
    done = project.run("run", "--budget", "5", "--no-progress", PERFGUARD_DATABASE="/proc/absent/history.sqlite")
    assert done.returncode == 0
    assert "not in the history yet" in done.stderr
    assert project.run("history", "log", PERFGUARD_DATABASE="later.sqlite").stdout.count("tiny") == 1
