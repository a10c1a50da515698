"""`perfguard show`: runs judged again from their events, also runs that were killed."""

from __future__ import annotations

import json
import signal

from tests.tiny_projects import facts, wait_for


def verdicts(found: dict) -> dict:
    return {v["case_id"]: (v["outcome"], v["comparison"]["estimate"]["log_ratio"]) for v in found["gate"]["verdicts"]}


def test_a_finished_run_is_judged_as_it_was(project):
    measured = project.result("compare", "--measure-anyway", "--max-blocks", "6")
    for arguments in ((), ("--rejudge",)):
        shown = project.result("show", *arguments)
        assert verdicts(shown) == verdicts(measured)
        assert (shown["run_id"], shown["verdict"]) == (measured["run_id"], measured["verdict"])
        assert shown["exit_code"] == measured["exit_code"]
    assert project.run("show", measured["run_id"], "--exit-zero").returncode == 0


def test_a_run_that_was_killed_is_judged_by_what_it_had_measured(project):
    running = project.start("compare", "--measure-anyway", "--max-blocks", "1000", "--no-progress")
    runs = project.path / ".perfguard" / "runs"

    def measured():
        return [file for file in runs.glob("*/events.jsonl") if file.read_text().count('"event":"block_finished"') >= 2]

    assert wait_for(measured)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    folder = project.latest_run()
    assert not (folder / "result.json").exists()
    shown = project.result("show", folder.name)
    assert shown["gate"]["blocks_total"] >= 2
    assert facts(shown, "run.unfinished")


def test_a_one_armed_run_is_shown_with_what_it_measured(project):
    measured = project.result("run", "--rounds", "2")
    shown = project.result("show", measured["run_id"])
    assert shown["measured"] == measured["measured"]


def test_an_unknown_run_and_no_run_at_all_give_a_sentence(project):
    nothing = project.run("show")
    assert (nothing.returncode, nothing.stdout) == (3, "")
    assert "no run is recorded" in nothing.stderr
    assert "there is no run 'absent'" in project.run("show", "absent").stderr


def test_a_broken_event_file_names_the_line(project):
    folder = project.path / ".perfguard" / "runs" / "broken"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text('{"event":"run_started"\n')
    done = project.run("show", "broken")
    assert done.returncode == 3
    assert "events.jsonl:1: not a JSON line" in done.stderr


def test_fingerprints_are_compared_with_reasons(project):
    own = project.run("fingerprint", "--json", "--no-software")
    path = project.write("own.json", own.stdout)
    same = project.run("fingerprint", "--against", str(path), "--no-software")
    assert (same.returncode, same.stdout.split()[0]) == (0, "equal")
    other = json.loads(own.stdout)
    other["cpu"]["model"] = 1 + (other["cpu"]["model"] or 0)
    other["machine_id"] = "another"
    path.write_text(json.dumps(other))
    different = project.run("fingerprint", "--against", str(path), "--no-software")
    assert (different.returncode, different.stdout.split()[0]) == (3, "incomparable")
    assert "  - " in different.stdout
    path.write_text("nonsense")
    assert "is not a fingerprint" in project.run("fingerprint", "--against", str(path)).stderr


def test_the_comment_on_a_pull_request_is_shown_without_a_pull_request(project):
    measured = project.result("compare", "--measure-anyway", "--max-blocks", "1")
    shown = project.run("show", "--format", "comment", "--exit-zero")
    assert shown.returncode == 0
    assert shown.stdout.startswith("<!-- perfguard:gate -->\n\n### ")
    assert measured["verdict"] in shown.stdout
