"""`perfguard fleet` as its users type it: PostgreSQL, workers, and a tiny project's real gates."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.databases import server  # noqa: F401
from tests.tiny_projects import DOUBLED, wait_for

QUICK = (
    "--",
    "--max-blocks",
    "24",
    "--samples",
    "4",
    "-q",
    "--no-ops",
)  # Ends by itself once the regression is confirmed


@pytest.fixture
def fleet(server, project):  # noqa: F811
    """The project, whose newest commit does twice the work in one case."""
    project.environment["PERFGUARD_DATABASE"] = server.new_database(f"fleet_{time.monotonic_ns()}")
    project.replace("tiny_work.py", *DOUBLED)
    project.commit("second")
    done = project.run("fleet", "init")
    assert done.returncode == 0, done.stderr
    return project


def worked(project, *arguments):
    """A worker that ends when nothing waits."""
    return project.run("fleet", "worker", "--once", "--folder", str(project.path.parent / "clones"), *arguments)


def submitted(project, *arguments):
    done = project.run("fleet", "submit", "--baseline", "HEAD~1", "-s", "tiny", "--budget", "120", *arguments, *QUICK)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(":")[0].removeprefix("submission ")


def test_a_regression_is_found_by_a_worker_and_recorded(fleet):
    number = submitted(fleet, "--class", "lab")
    done = worked(fleet, "--class", "lab", "--name", "bench-1")
    assert done.returncode == 0, done.stderr
    assert "bench-1 takes shards of" in done.stderr
    status = fleet.run("fleet", "status", number, "--wait", "--format", "json")
    found = json.loads(status.stdout)
    assert (status.returncode, found["shards"][0]["exit_code"], found["shards"][0]["host"]) == (1, 1, "bench-1")
    shown = fleet.run("history", "show", found["shards"][0]["run_id"])
    assert "regressed" in shown.stdout
    listed = fleet.run("fleet", "status")
    assert "1 regression" in listed.stdout
    hosts = json.loads(fleet.run("fleet", "hosts", "--format", "json").stdout)
    assert [(host["name"], host["fitness"], host["shard_id"]) for host in hosts] == [("bench-1", "fit", None)]


def test_what_cannot_be_measured_says_why(fleet):
    number = submitted(fleet, "--class", "lab", "--repository", "/nowhere")
    for _ in range(3):
        worked(fleet, "--class", "lab")
    status = fleet.run("fleet", "status", number, "--wait")
    assert status.returncode == 3
    assert "its gate gave no verdict" in status.stdout
    assert "and the repository exists" in status.stdout


def test_cases_are_split_into_shards_and_a_cancelled_one_is_not_measured(fleet):
    number = submitted(fleet, "--class", "lab", "--split", "2")
    found = json.loads(fleet.run("fleet", "status", number, "--format", "json").stdout)
    assert [shard["patterns"] for shard in found["shards"]] == [["tiny.sum"], ["tiny.sort"]]
    assert "2 shards cancelled" in fleet.run("fleet", "cancel", number).stdout
    assert worked(fleet, "--class", "lab").returncode == 0
    found = json.loads(fleet.run("fleet", "status", number, "--format", "json").stdout)
    assert {(shard["state"], shard["attempt"]) for shard in found["shards"]} == {("cancelled", 0)}


def test_a_worker_that_is_stopped_gives_its_shard_back(fleet):
    number = submitted(fleet, "--class", "lab")
    process = subprocess.Popen(
        [sys.executable, "-m", "perfguard", "fleet", "worker", "--class", "lab"],
        cwd=fleet.path, env=fleet.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    state = lambda: json.loads(fleet.run("fleet", "status", number, "--format", "json").stdout)["shards"][0]  # noqa: E731
    assert wait_for(lambda: state()["state"] == "running")
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert (state()["state"], state()["attempt"]) == ("waiting", 0)


@pytest.mark.long
def test_a_drained_host_gets_no_work(fleet):
    worked(fleet, "--class", "lab", "--name", "bench-1")
    fleet.run("fleet", "hosts", "--drain", "bench-1", "--because", "new memory")
    submitted(fleet, "--class", "lab")
    done = worked(fleet, "--class", "lab", "--name", "bench-1")
    assert done.returncode == 3
    assert re.search("bench-1 gets no shards: drained by .*: new memory; .*--fit bench-1", done.stderr)
    assert "new memory" in fleet.run("fleet", "hosts").stdout
    assert fleet.run("fleet", "hosts", "--fit", "bench-1").returncode == 0
    assert worked(fleet, "--class", "lab", "--name", "bench-1").returncode == 0


def test_a_second_worker_of_a_name_is_refused_and_a_removed_host_is_told_so(fleet):
    process = subprocess.Popen(
        [sys.executable, "-m", "perfguard", "fleet", "worker", "--name", "bench-1", "--class", "lab", "--poll", "0.5"],
        cwd=fleet.path, env=fleet.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    listed = lambda: json.loads(fleet.run("fleet", "hosts", "--format", "json").stdout)  # noqa: E731
    assert wait_for(listed)
    second = fleet.run("fleet", "worker", "--name", "bench-1", "--once")
    assert (second.returncode, listed()[0]["classes"][1:]) == (3, ["lab"])
    assert "bench-1 runs on this machine already" in second.stderr
    assert fleet.run("fleet", "hosts", "--remove", "bench-1").returncode == 0
    submitted(fleet, "--class", "lab")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 3
    assert "bench-1 was removed from the fleet" in said


def test_a_schedule_is_made_listed_and_removed(fleet):
    branch = subprocess.run(
        ["git", "branch", "--show-current"], cwd=fleet.path, capture_output=True, text=True, check=True
    ).stdout.strip()
    asked = ("--cron", "0 2 * * *", "--branch", branch, "-s", "tiny", "--budget", "40", "--class", "lab")
    done = fleet.run("fleet", "schedule", "nightly", *asked)
    assert done.returncode == 0, done.stderr
    assert "02:00 UTC" in done.stdout
    assert fleet.run("fleet", "tend").returncode == 0
    (found,) = json.loads(fleet.run("fleet", "schedule", "--format", "json").stdout)
    assert (found["name"], found["machine_classes"], found["engine"]) == ("nightly", ["lab"], "queue")
    assert json.loads(fleet.run("fleet", "status", "--format", "json").stdout)["submissions"] == []
    assert fleet.run("fleet", "schedule", "nightly", "--remove").returncode == 0
    assert json.loads(fleet.run("fleet", "schedule", "--format", "json").stdout) == []


def test_a_manifest_is_printed(empty_project):
    done = empty_project.run("fleet", "manifest", "--class", "lab", "--image", "perfguard:1", "--cpus", "4")
    made = json.loads(done.stdout)
    assert (made["kind"], made["spec"]["template"]["spec"]["nodeSelector"]) == ("Job", {"perfguard/class": "lab"})


@pytest.fixture(scope="module")
def empty_fleet(server, made_project, tmp_path_factory):  # noqa: F811
    """A fleet without hosts, submissions and schedules, of a project with one commit."""
    made = made_project(tmp_path_factory.mktemp("fleet"))
    made.environment["PERFGUARD_DATABASE"] = server.new_database(f"fleet_{time.monotonic_ns()}")
    assert made.run("fleet", "init").returncode == 0
    return made


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("submit", "--baseline", "HEAD"), 2, "no fit host is registered"),
        (("submit", "--baseline", "none", "--class", "lab"), 2, "none"),
        (("submit", "--baseline", "HEAD", "--class", "lab", "--suite", "none"), 2, "no suite is named 'none'"),
        (("submit", "--baseline", "HEAD", "--class", "lab", "-c", "none"), 5, "no case matches 'none'"),
        (("submit", "--baseline", "HEAD", "--class", "lab", "--", "--bogus"), 2, "No such option --bogus"),
        (
            ("submit", "--baseline", "HEAD", "--class", "lab", "--repository", "https://me:token@example.org/a.git"),
            2,
            "--repository has a password",
        ),
        (("status", "99"), 5, "no submission 99"),
        (("status", "--wait"), 2, "--wait needs a submission"),
        (("cancel", "99"), 5, "no submission 99"),
        (("hosts", "--fit", "nobody"), 5, "no host 'nobody'"),
        (("schedule", "nightly"), 2, "--cron says when"),
        (("schedule", "nightly", "--remove"), 5, "no schedule 'nightly'"),
    ],
)
def test_impossible_requests_get_a_sentence(empty_fleet, arguments, code, message):
    done = empty_fleet.run("fleet", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


def test_a_candidate_that_hosts_may_not_find_is_said_before_they_look(empty_fleet, tmp_path):
    submit = ("fleet", "submit", "--baseline", "HEAD", "--class", "lab")
    assert "a folder, which other machines may not have" in empty_fleet.run(*submit).stderr
    far = tmp_path / "far.git"
    empty_fleet.git("clone", "-q", "--bare", ".", str(far))
    empty_fleet.git("remote", "add", "origin", f"file://{far}")
    assert "as far as this clone knows; push it" in empty_fleet.run(*submit).stderr
    empty_fleet.git("push", "-q", "origin", "HEAD:main")
    empty_fleet.git("fetch", "-q", "origin")
    done = empty_fleet.run(*submit)
    assert done.returncode == 0
    assert not any(words in done.stderr for words in ("push it", "other machines"))
    empty_fleet.git("remote", "remove", "origin")


def test_a_sqlite_file_is_no_queue(project):
    project.environment["PERFGUARD_DATABASE"] = str(project.path / "history.sqlite")
    done = project.run("fleet", "init")
    assert done.returncode == 2
    assert "set PERFGUARD_DATABASE" in done.stderr
