"""Runs that are interrupted, ended or killed leave nothing behind; no torch."""

from __future__ import annotations

import json
import signal
import time

from tests.tiny_projects import DOUBLED, wait_for

ARGUMENTS = ("compare", "--measure-anyway", "--budget", "100", "--max-blocks", "1000", "--format", "json")


def measuring(project, *arguments, until="block_finished"):
    """A run that has written a kind of event."""
    process = project.start(*ARGUMENTS, *arguments)
    runs = project.path / ".perfguard" / "runs"
    assert wait_for(lambda: any(f'"event":"{until}"' in file.read_text() for file in runs.glob("*/events.jsonl")))
    return process


def test_interrupted_once_it_keeps_what_was_measured(project):
    process = measuring(project)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 130, stderr
    result = json.loads(stdout)
    assert result == json.loads((project.latest_run() / "result.json").read_text())
    assert result["verdict"] == "interrupted"
    assert result["gate"]["blocks_total"] > 0
    assert project.workers() == []
    assert len(project.git("worktree", "list").splitlines()) == 1


def test_interrupted_before_the_first_block_it_says_so_and_nothing_of_the_arms(project):
    project.replace("tiny_work.py", *DOUBLED)
    process = project.start("compare", "--budget", "100", "--format", "json", "--no-progress")
    runs = project.path / ".perfguard" / "runs"
    assert wait_for(lambda: list(runs.glob("*/events.jsonl")))
    process.terminate()
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 130, stderr
    assert [reason["code"] for reason in json.loads(stdout)["reasons"]] == ["run.interrupted"]


def test_interrupted_twice_it_ends_at_once(project):
    """In the middle of a sample of a minute."""
    process = measuring(project, "-c", "tiny.sort", "--slice-s", "60", until="block_started")
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=300)
    assert (process.returncode, stdout) == (130, "")
    assert "perfguard: aborted" in stderr
    assert project.workers() == []


def test_termination_is_taken_like_the_first_interrupt(project):
    process = measuring(project)
    process.terminate()
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert project.workers() == []


def test_a_killed_run_leaves_no_worker_and_no_lock(project):
    process = measuring(project)
    process.kill()
    process.communicate(timeout=300)
    assert wait_for(lambda: not project.workers())
    left = project.path / ".perfguard"
    assert list(left.glob("runs/*/arms/a"))
    result = project.result("compare", "--measure-anyway", "--max-blocks", "1", "-c", "tiny.sort")
    assert result["gate"]["blocks_total"] == 1
    assert not list(left.glob("runs/*/arms*/"))
    assert len(project.git("worktree", "list").splitlines()) == 1


def test_a_killed_gate_on_untrusted_code_leaves_no_checkout_of_rules(project):
    project.git("commit", "-q", "--allow-empty", "-m", "nothing")
    process = measuring(project, "--policy-from", "HEAD^1")
    process.kill()
    process.communicate(timeout=300)
    rules = project.path / ".perfguard" / "policy"
    assert list(rules.iterdir())
    assert wait_for(lambda: not project.workers())
    project.result("compare", "--measure-anyway", "--max-blocks", "1", "-c", "tiny.sort")
    assert not list(rules.iterdir())
    assert len(project.git("worktree", "list").splitlines()) == 1


def test_a_second_run_on_the_host_is_refused_and_told_who_holds_it(project):
    process = measuring(project)
    refused = project.run("run")
    process.terminate()
    process.communicate(timeout=300)
    assert refused.returncode == 3
    assert f"another run is measuring on this host (perfguard compare, pid {process.pid}" in refused.stderr
