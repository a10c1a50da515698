"""`calibrate` and `plan` as a user starts them, on a small project whose benchmarks need no torch."""

from __future__ import annotations

import json
import shutil
import signal

import pytest

SHORT = ("--budget", "40", "--samples", "2", "--no-progress")
"""The project's bound on blocks ends a gate; seconds are for hosts on which a block takes some."""


def stored(project):
    (path,) = (project.path / "baselines").glob("*/tiny/calibration.json")
    return path


def gates_of(project):
    return json.loads(stored(project).read_text(encoding="utf-8"))["gates"]


@pytest.fixture
def calibrate(project):
    def run(*arguments):
        done = project.run("calibrate", *SHORT, *arguments)
        assert done.returncode == 0, done.stderr
        return done

    return run


class TestCalibrate:
    def test_stores_shows_adds_and_expires(self, project, calibrate):
        done = calibrate("--gates", "1")
        assert f"commit it: git add {stored(project)}" in done.stderr
        assert "tiny.sum" in done.stdout
        (gate,) = gates_of(project)
        assert gate["placebo"]
        assert set(gate["cases"]) == {"tiny.sum", "tiny.sort"}
        assert len(gate["cases"]["tiny.sum"]["block_log_ratios"]) >= 1

        calibrate("--gates", "1", "--no-placebo")
        assert [entry["placebo"] for entry in gates_of(project)] == [True, False]

        shown = json.loads(calibrate("--show", "--json").stdout)
        assert (shown["status"], shown["summary"]["gates"]) == ("valid", 2)
        # Whether these two gates count hangs on how often the host disturbed them.
        assert shown["error_rate"]["code"] in ("rate.calibrated", "rate.not_yet")

        path = stored(project)
        document = json.loads(path.read_text(encoding="utf-8"))
        document["scope"]["stack_id"] = "torch2.13.0-py3.11-00000000"
        path.write_text(json.dumps(document), encoding="utf-8")
        expired = json.loads(calibrate("--show", "--json").stdout)
        assert expired["status"] == "expired"
        assert expired["reason"]["values"]["before"] == "torch2.13.0-py3.11-00000000"

        path.write_text("{", encoding="utf-8")
        broken = project.run("calibrate", "--show")
        assert broken.returncode == 3
        assert broken.stderr.startswith(f"perfguard: {path} is corrupt")
        assert "Traceback" not in broken.stderr

    def test_without_git_compares_the_directory_with_itself(self, project, calibrate):
        shutil.rmtree(project.path / ".git")
        calibrate("--gates", "1")
        arms = json.loads((project.latest_run() / "arms.json").read_text(encoding="utf-8"))
        assert {arm["text"] for arm in arms.values()} == {"dir:."}

    def test_an_interrupted_gate_is_not_stored(self, project):
        started = project.start("calibrate", "-v", "--gates", "3", "--budget", "60", "--max-blocks", "500")
        for line in started.stderr:
            if line.startswith("· block 1:"):
                started.send_signal(signal.SIGINT)
                break
        _, errors = started.communicate(timeout=300)
        assert started.returncode == 130, errors
        assert not (project.path / "baselines").exists()

    def test_says_that_nothing_is_stored(self, project):
        done = project.run("calibrate", "--show")
        assert done.returncode == 0
        assert "not verified on this machine" in done.stdout

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [(("-c", "tiny.sum"), "a calibration is stored for a suite"), (("--gates", "-1"), "--gates")],
    )
    def test_wrong_requests_get_a_sentence(self, project, arguments, message):
        done = project.run("calibrate", *arguments)
        assert done.returncode == 2
        assert message in done.stderr


class TestGatesAfterwards:
    def test_print_the_error_rate_bank_identical_arms_and_honour_the_plan(self, project, calibrate):
        calibrate("--gates", "1")
        project.commit("calibration")
        error_rate = json.loads(calibrate("--show", "--json").stdout)["error_rate"]
        result = project.result("compare", "--measure-anyway", *SHORT)
        assert result["error_rate"] == error_rate
        assert error_rate in result["notes"]
        (banked,) = (project.path / ".perfguard" / "calibration").glob("*/tiny.json")
        assert [gate["run_id"] for gate in json.loads(banked.read_text(encoding="utf-8"))["gates"]] == [
            result["run_id"]
        ]

        assert calibrate("--gates", "0").returncode == 0
        assert [gate["banked"] for gate in gates_of(project)] == [False, True]

        # No block fits into a tenth of a second, so every case is demoted; a noisy host may have further reasons.
        planned = project.run("plan", "--detect", "50%", "--budget", "0.1", "--write", "--format", "json")
        reasons = [case["reason"]["code"] for case in json.loads(planned.stdout)["cases"]]
        project.commit("plan")
        result = project.result("compare", "--measure-anyway", *SHORT)
        assert {verdict["comparison"]["gating"] for verdict in result["gate"]["verdicts"]} == {"advisory"}
        assert [note["code"] for note in result["notes"] if note["code"].startswith("plan.")] == reasons


class TestPlan:
    def test_says_what_each_case_needs_and_is_written(self, project):
        project.run("compare", "--measure-anyway", "--max-blocks", "3", "--samples", "2", "--no-progress")
        done = project.run("plan", "--detect", "900%", "--power", "90%", "--write", "--format", "json")
        assert done.returncode == 0, done.stderr
        plan = json.loads(done.stdout)
        source = plan["source"]
        assert (source["code"], source["values"]["run_id"]) == ("plan.from_run", project.latest_run().name)
        assert [case["case_id"] for case in plan["cases"]] == ["tiny.sum", "tiny.sort"]
        (path,) = (project.path / "baselines").glob("*/tiny/plan.json")
        assert json.loads(path.read_text(encoding="utf-8")) == plan
        table = project.run("plan", "--detect", "900%")
        assert "tiny.sort" in table.stdout

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (("--detect", "0.1%"), 2, "is not above the margin of 0.50%"),
            (("--detect", "2%", "--power", "100%"), 2, "--power 100% cannot be planned for"),
            (("--detect", "fast"), 2, "--detect 'fast' is no percentage above zero"),
            (("--detect", "2"), 2, "--detect '2' would be 200.0 %: 2 % is written 2% or 0.02"),
            ((), 2, "--detect"),
            (("--detect", "2%"), 3, "nothing is known of the noise of suite 'tiny' on this machine"),
        ],
    )
    def test_impossible_requests_get_a_sentence(self, project, arguments, code, message):
        done = project.run("plan", *arguments)
        assert (done.returncode, done.stdout) == (code, "")
        assert message in done.stderr
        assert "Traceback" not in done.stderr
