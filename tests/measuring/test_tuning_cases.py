"""`tune` as a user starts it, on a small benchmark that needs no torch."""

from __future__ import annotations

import html
import json
import signal

import pytest

from tests.tiny_projects import wait_for

BENCHMARK = """\
import perfguard


@perfguard.benchmark(
    name="tiny.tuned",
    params={"mode": ["loop", "builtin", "short", "broken"]},
    memory_format=["list", "tuple"],
    phase="forward",
    tags=["no-torch"],
)
def tuned(mode, memory_format):
    if mode == "broken":
        raise RuntimeError("no such mode")
    numbers = (list if memory_format == "list" else tuple)(range(40_000))

    def loop():
        total = 0
        for number in numbers:
            total += number
        return float(total)

    timed = {"loop": loop, "builtin": lambda: float(sum(numbers)), "short": lambda: float(sum(numbers[:1000]))}
    return timed[mode]
"""
CASE = "tiny.tuned[mode=loop,memory_format=list]"
TUNE = ("tune", CASE, "--budget", "300")


@pytest.fixture
def tunable(project):
    """A case with a fast mode, one that leaves work out, one that fails, and a format that changes nothing."""
    project.write("bench_tuned.py", BENCHMARK)
    project.commit("a benchmark with modes")
    return project


def tuned(project, *arguments):
    """The result; the command is repeated where the host was too unstable for a trial, as it says."""
    for _ in range(5):
        found = project.result(*arguments)
        if all(tried["outcome"]["is_kept"] for tried in found["trials"]):
            break
    return found


def finished_trials(project):
    (path,) = (project.path / ".perfguard" / "tune").glob("*.jsonl")
    entries = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return [entry["trial"] for entry in entries if "trial" in entry]


def runs_of(project):
    return sorted(path.name for path in (project.path / ".perfguard" / "runs").glob("*"))


def test_what_helps_is_found_and_nothing_is_measured_twice_until_the_code_changes(tunable):
    found = tuned(tunable, *TUNE)
    assert (found["outcome"], found["exit_code"]) == ("done", 0), found["trials"]
    assert dict(found["recipe"])["mode"] == "builtin"
    of_mode = {dict(each["trial"]["after"]).get("mode"): each["outcome"]["verdict"] for each in found["trials"]}
    assert (of_mode["short"], of_mode["broken"]) == ("different", "failed")
    assert found["final"]["upper"] < 0
    assert "set:" in found["candidate"]
    assert "mode=builtin" in found["tuned"]
    assert {each["name"] for each in found["inapplicable"]} >= {"threads"}
    assert found["command"] in html.unescape((tunable.path / found["page"]).read_text(encoding="utf-8"))

    runs = runs_of(tunable)
    again = tunable.result(*TUNE)
    assert runs_of(tunable) == runs
    assert again["recipe"] == found["recipe"]
    assert all(tried["is_reused"] for tried in again["trials"])

    # Trials are ordinary runs, and the final one does not end early.
    first, final = found["trials"][0]["outcome"], found["trials"][-1]["outcome"]
    folder = tunable.path / ".perfguard" / "runs" / final["run_id"]
    assert json.loads((folder / "result.json").read_text())["gate"]["blocks_total"] == 12  # the project's max_blocks
    shown = tunable.result("show", first["run_id"])
    assert shown["arms"]["candidate"]["text"].startswith("dir:.+set:")
    assert shown["op_count_changes"] == {}
    written = tunable.run("report", first["run_id"], final["run_id"], "-o", "tune.html")
    assert written.returncode == 0, written.stderr

    tunable.replace("bench_tuned.py", "40_000", "30_000")
    changed = tunable.result(*TUNE, "--toggles", "memory_format")
    assert changed["journal"] != found["journal"]
    assert not any(tried["is_reused"] for tried in changed["trials"])


@pytest.mark.long
def test_killed_in_a_trial_it_goes_on_without_measuring_the_finished_ones_again(tunable):
    process = tunable.start(*TUNE, "-q", "--format", "json")
    journals = tunable.path / ".perfguard" / "tune"
    assert wait_for(lambda: any(journals.glob("*.jsonl")) and finished_trials(tunable))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL
    finished = finished_trials(tunable)

    found = tunable.result(*TUNE)
    reused = [tried["outcome"]["run_id"] for tried in found["trials"] if tried["is_reused"]]
    assert set(reused) <= {tried["outcome"]["run_id"] for tried in finished}
    kept = [json.dumps(tried["trial"]) for tried in finished_trials(tunable)]
    assert len(kept) > len(finished)
    assert len(set(kept)) == len(kept)  # nothing was measured twice


def test_interrupted_it_says_what_it_has_and_goes_on(tunable):
    process = tunable.start(*TUNE, "--format", "json")
    for line in process.stderr:
        if line.startswith("· "):
            process.send_signal(signal.SIGINT)
            break
    stdout, stderr = process.communicate(timeout=100)
    found = json.loads(stdout)
    assert (process.returncode, found["outcome"], found["recipe"]) == (130, "interrupted", []), stderr
    assert tunable.workers() == []
    assert found["trials"]


def test_a_setting_that_is_slower_ends_its_trial_without_a_confirmation(tunable):
    found = tuned(tunable, "tune", CASE.replace("loop", "builtin"), "--budget", "300", "--toggles", "mode")
    (of_loop,) = (each["outcome"] for each in found["trials"] if each["trial"]["after"] == [["mode", "loop"]])
    assert (of_loop["verdict"], found["recipe"], found["final"]) == ("slower", [], None)
    events = (tunable.path / ".perfguard" / "runs" / of_loop["run_id"] / "events.jsonl").read_text()
    assert not {"stage_started", "steps_counted", "ops_compared"} & {
        json.loads(line)["event"] for line in events.splitlines()
    }
