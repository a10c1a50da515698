"""The command line as a user starts it, on small projects whose benchmarks need no torch."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time

import jsonschema
import pytest

DOUBLED = ("return sum(range(LENGTH))", "return [sum(range(LENGTH)) for _ in range(2)][0]")
"""Twice the work, the same result."""


def outcomes(result):
    return {verdict["case_id"]: verdict["outcome"] for verdict in result["gate"]["verdicts"]}


def wait_for(condition, *, seconds=30.0):
    """Whether a condition came true; gives up after a generous while."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


class TestCompare:
    def test_the_same_code_twice_is_never_called_a_regression(self, project):
        result = project.result("compare")
        assert result["exit_code"] in (0, 4), result["reason"]
        assert "regressed" not in outcomes(result).values()
        assert any("identical code" in note for note in result["notes"])

    def test_a_slowdown_in_the_working_tree_is_red_in_exactly_its_case(self, project):
        project.replace("tiny_work.py", *DOUBLED)
        result = project.result("compare")
        assert (result["exit_code"], result["verdict"]) == (1, "regressed"), result["reason"]
        assert [name for name, outcome in outcomes(result).items() if outcome == "regressed"] == ["tiny.sum"]
        assert "imported files that differ: tiny_work.py" in result["notes"]

    def test_the_mirrored_change_is_an_improvement(self, project):
        project.replace("tiny_work.py", *DOUBLED)
        result = project.result("compare", "--baseline", "dir:.", "--candidate", "git:HEAD", "-c", "tiny.sum")
        assert outcomes(result) == {"tiny.sum": "improved"}, result["reason"]
        assert result["exit_code"] == 0 or result["verdict"] == "host-unstable"

    def test_two_revisions_are_compared_whatever_the_working_tree_holds(self, project):
        first = project.git("rev-parse", "HEAD")
        project.replace("tiny_work.py", *DOUBLED)
        project.commit("slower")
        project.write("tiny_work.py", "raise RuntimeError('the working tree must not be imported by the arms')")
        project.write("bench_tiny.py", (project.path / "bench_tiny.py").read_text().replace("from tiny_work", "#"))
        result = project.result("compare", "--baseline", f"git:{first}", "--candidate", "git:HEAD", "-c", "tiny.sum")
        assert (result["exit_code"], outcomes(result)) == (1, {"tiny.sum": "regressed"}), result["reason"]

    def test_worktrees_and_bundles_are_gone_afterwards(self, project):
        project.run("compare", "--max-blocks", "1", "-c", "tiny.sort")
        assert len(project.git("worktree", "list").splitlines()) == 1
        assert not (project.latest_run() / "arms").exists()
        assert project.workers() == []
        assert project.git("status", "--porcelain") == ""

    def test_the_files_of_a_run_are_read_by_pyperf(self, project):
        project.run("compare", "--max-blocks", "2", "-c", "tiny.sort")
        folder = project.latest_run()
        for arguments in (
            ("stats", str(folder / "candidate.json")),
            ("compare_to", str(folder / "baseline.json"), str(folder / "candidate.json")),
        ):
            done = subprocess.run([sys.executable, "-m", "pyperf", *arguments], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr

    def test_a_case_that_only_the_candidate_has_is_without_baseline(self, project):
        project.replace("perfguard.toml", '"tiny.sort"]', '"tiny.sort", "tiny.new"]')
        project.write(
            "bench_new.py",
            "import perfguard\n"
            "@perfguard.benchmark(name='tiny.new', tags=['no-torch'])\n"
            "def new():\n    return lambda: float(sum(range(20_000)))\n",
        )
        result = project.result("compare", "--max-blocks", "2")
        assert outcomes(result)["tiny.new"] == "no-baseline"
        assert result["exit_code"] == 3

    def test_a_case_that_breaks_in_the_candidate_fails_and_the_other_is_judged(self, project):
        project.replace("tiny_work.py", "return sum(range(LENGTH))", "raise OSError('no total today')")
        result = project.result("compare", "--max-blocks", "2")
        verdicts = {verdict["case_id"]: verdict for verdict in result["gate"]["verdicts"]}
        assert verdicts["tiny.sum"]["outcome"] == "failed"
        assert "OSError: no total today" in verdicts["tiny.sum"]["reason"]
        assert verdicts["tiny.sort"]["comparison"]["estimate"]["blocks"] >= 1
        assert (result["exit_code"], result["verdict"]) == (3, "failed")

    @pytest.mark.torch
    def test_trees_that_differ_where_nothing_is_imported_from_are_refused(self, project):
        """Both arms would run the same code, and a pass would mean nothing."""
        pytest.importorskip("torch")
        project.write("perfguard.toml", "")
        project.commit("no benchmarks of its own")
        project.write("unused.py", "ANSWER = 42")
        done = project.run(
            "compare",
            "-c",
            "kernel.optimizer[layers=4,algorithm=adam,dtype=fp32,mode=fused]",
            "--max-blocks",
            "1",
            "--no-progress",
            "--budget",
            "90",
        )
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "hold different sources, but no selected case imports anything from them" in done.stderr

    def test_an_installed_copy_that_shadows_the_tree_is_refused(self, project, tmp_path):
        copies = tmp_path / "copies"
        copies.mkdir()
        shutil.copy(project.path / "tiny_work.py", copies / "tiny_work.py")
        shadow = f"import sys; sys.path.insert(0, {str(copies)!r}); import tiny_work; del sys.path[0]"
        text = (project.path / "bench_tiny.py").read_text()
        project.write("bench_tiny.py", f"{shadow}\n{text}")
        project.commit("shadowed")
        done = project.run("compare", "--no-progress")
        assert done.returncode == 2
        assert "imported 'tiny_work' from" in done.stderr
        assert "uninstall it, or give git arms a setup command" in done.stderr

    def test_code_from_the_other_arms_tree_is_refused(self, project):
        """As an editable install of the checkout does."""
        here = f"import sys; sys.path.insert(0, {str(project.path)!r})"
        text = (project.path / "bench_tiny.py").read_text()
        project.write("bench_tiny.py", f"{here}\n{text}")
        project.commit("always the checkout")
        done = project.run("compare", "--no-progress")
        assert done.returncode == 2
        assert "from the other arm's tree" in done.stderr

    def test_arms_may_differ_in_an_environment_variable(self, project):
        project.replace(
            "tiny_work.py", "LENGTH = 20_000", "import os\nLENGTH = 20_000 * int(os.environ.get('TIMES', 1))"
        )
        project.commit("depends on a variable")
        result = project.result("compare", "--candidate", "dir:.+env:TIMES=2", "-c", "tiny.sum")
        assert (result["exit_code"], outcomes(result)) == (1, {"tiny.sum": "regressed"}), result["reason"]

    def test_an_injected_slowdown_is_red_and_an_injected_speed_up_is_an_improvement(self, project):
        slower = project.result("compare", "-c", "tiny.sum", "--inject", "tiny.sum=+50%")
        assert (slower["exit_code"], outcomes(slower)) == (1, {"tiny.sum": "regressed"}), slower["reason"]
        assert any("injected" in note for note in slower["notes"])
        faster = project.result("compare", "-c", "tiny.sum", "--inject", "tiny.sum=-50%")
        assert outcomes(faster) == {"tiny.sum": "improved"}, faster["reason"]
        assert faster["exit_code"] == 0 or faster["verdict"] == "host-unstable"

    def test_exit_zero_reports_a_regression_without_failing(self, project):
        arguments = ("compare", "-c", "tiny.sum", "--inject", "tiny.sum=+100%", "--exit-zero", "--max-blocks", "6")
        result = project.result(*arguments)
        assert (result["exit_code"], result["verdict"]) == (0, "regressed"), result["reason"]


class TestOutput:
    def test_json_fits_the_published_schema_and_is_alone_on_stdout(self, project):
        schema = json.loads(project.run("schema", "result").stdout)
        done = project.run("compare", "--max-blocks", "2", "--format", "json")
        jsonschema.validate(json.loads(done.stdout), schema)
        assert json.loads((project.latest_run() / "result.json").read_text()) == json.loads(done.stdout)

    def test_every_line_of_the_events_fits_the_published_schema(self, project):
        schema = json.loads(project.run("schema", "events").stdout)
        project.run("compare", "--max-blocks", "2", "-c", "tiny.sort")
        lines = (project.latest_run() / "events.jsonl").read_text().splitlines()
        assert len(lines) > 10
        for line in lines:
            jsonschema.validate(json.loads(line), schema)

    def test_markdown_holds_the_verdict_and_a_row_for_each_case(self, project):
        done = project.run("run", "--rounds", "2", "--format", "md")
        assert done.stdout.startswith("## perfguard: measured")
        assert "| `tiny.sum` | 2 |" in done.stdout

    def test_run_measures_every_case_and_compares_nothing(self, project):
        result = project.result("run", "--rounds", "2")
        assert (result["exit_code"], result["verdict"], result["gate"]) == (0, "measured", None)
        assert {case["case_id"]: case["rounds"] for case in result["measured"]} == {"tiny.sum": 2, "tiny.sort": 2}
        assert all(case["median_s"] > 0 for case in result["measured"])

    def test_list_shows_the_projects_own_suite_and_benchmarks(self, project):
        done = project.run("list")
        assert done.returncode == 0
        assert "tiny     2 gating cases" in done.stdout
        assert "tiny.sort" in done.stdout
        cases = json.loads(project.run("list", "tiny.*", "--format", "json").stdout)
        assert [case["id"] for case in cases] == ["tiny.sort", "tiny.sum"]

    def test_config_show_names_the_origin_of_each_value(self, project):
        shown = json.loads(project.run("config", "show", "--origin", "--json", PERFGUARD_SEED="7").stdout)
        assert shown["slices"] == {"value": 3, "origin": str(project.path / "perfguard.toml")}
        assert shown["seed"] == {"value": 7, "origin": "PERFGUARD_SEED"}
        assert shown["warmups"]["origin"] == "built-in"

    def test_doctor_gives_one_row_for_each_check(self, project):
        done = project.run("doctor", "--json")
        rows = json.loads(done.stdout)
        assert done.returncode == (3 if any(row["status"] == "fail" for row in rows) else 0)
        assert len({row["id"] for row in rows}) == len(rows) > 5

    def test_version_names_perfguard_and_pyperf(self, empty_project):
        versions = json.loads(empty_project.run("version", "--json").stdout)
        assert {"perfguard", "python", "pyperf"} <= versions.keys()

    def test_a_reader_that_goes_away_is_no_error(self, project):
        process = project.start("list", "--cases")
        process.stdout.close()
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in said

    @pytest.mark.parametrize("output_format", ["table", "json"])
    def test_a_regression_fails_although_nobody_reads_the_result(self, project, output_format):
        process = project.start(
            "compare", "-c", "tiny.sum", "--inject", "tiny.sum=+300%", "--max-blocks", "6", "--format", output_format
        )
        process.stdout.close()
        process.communicate(timeout=60)
        result = json.loads((project.latest_run() / "result.json").read_text())
        assert process.returncode == result["exit_code"] != 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("compare", "-s", "tinny"), 2, "no suite is named 'tinny'; the nearest is 'tiny'"),
        (("run", "-c", "tiny.summ"), 5, "no case matches 'tiny.summ'; the nearest is 'tiny.sum'"),
        (("compare", "--inject", "other=+5%"), 5, "no case matches 'other'"),
        (("compare", "--inject", "tiny.sum=5"), 2, "is not PATTERN=+5%"),
        (("compare", "--fail-on", "regresion"), 2, "did you mean 'regression'?"),
        (("compare", "--baseline", "git:nowhere"), 2, "git knows no revision 'nowhere'"),
        (("compare", "--baseline", "dir:absent"), 2, "absent is not a directory"),
        (("compare", "--candidate", "stored"), 2, "only the baseline can be a stored one"),
        (("compare", "--candidate", "python:/absent/python"), 2, "there is no interpreter '/absent/python'"),
        (("compare", "--candidate", "python:/bin/ls"), 2, "/bin/ls is not a Python interpreter"),
        (("run", "--budget", "0"), 2, "budget_s = 0.0 must be positive"),
        (("run", "--budget", "inf"), 2, "budget_s = inf must be positive"),
        (("run", "--threads", "9999"), 2, "--threads 9999 is more than"),
        (("run", "--cpus", "0-999"), 2, "offline or absent"),
        (("run", "--numa", "left"), 2, "neither a node number nor 'none'"),
        (("gate", "--baseline", "stored"), 3, "no baseline of suite 'tiny' is stored for this machine"),
        (("baseline", "diff", "git:HEAD"), 3, "was this machine's baseline committed there?"),
        (("baseline", "update", "--rounds", "2"), 2, "2 rounds say too little"),
        (("lits",), 2, "Did you mean 'list'?"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence_with_its_exit_code(project, arguments, code, said):
    done = project.run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_configuration_names_file_and_key(project):
    project.write("perfguard.toml", "slicez = 3")
    done = project.run("list")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{project.path / 'perfguard.toml'}: unknown key 'slicez'; did you mean 'slices'?" in done.stderr


def test_benchmarks_that_cannot_be_imported_are_shown_with_their_traceback(project):
    project.write("bench_broken.py", "raise ValueError('not importable')")
    done = project.run("list")
    assert (done.returncode, done.stdout) == (2, "")
    assert "bench_broken.py cannot be imported" in done.stderr
    assert "ValueError: not importable" in done.stderr


class TestPlaces:
    def test_a_subdirectory_uses_the_configuration_of_the_project_above(self, project):
        inside = project.path / "deep" / "below"
        inside.mkdir(parents=True)
        done = project.run("run", "--rounds", "2", "-c", "tiny.sum", "--no-progress", cwd=inside)
        assert done.returncode == 0, done.stderr
        assert (project.path / ".perfguard" / "runs").is_dir()
        assert not (inside / ".perfguard").exists()

    def test_a_project_that_is_part_of_a_larger_repository_is_compared_with_its_own_past(self, project):
        part = project.path / "packages" / "one"
        part.mkdir(parents=True)
        for name in ("perfguard.toml", "bench_tiny.py", "tiny_work.py"):
            (project.path / name).rename(part / name)
        project.commit("into a package")
        project.replace("packages/one/tiny_work.py", *DOUBLED)
        done = project.run("compare", "-c", "tiny.sum", "--max-blocks", "2", "--format", "json", cwd=part)
        assert done.stdout, done.stderr
        result = json.loads(done.stdout)
        assert outcomes(result)["tiny.sum"] not in ("failed", "no-baseline"), result["reason"]
        assert "imported files that differ: tiny_work.py" in result["notes"]
        assert len(project.git("worktree", "list").splitlines()) == 1

    def test_spaces_and_letters_outside_ascii_in_the_path_are_no_obstacle(self, project):
        moved = project.path.parent / "mein Gerät ✓"
        shutil.move(project.path, moved)
        done = project.run("compare", "--max-blocks", "1", "--format", "json", cwd=moved)
        result = json.loads(done.stdout)
        assert result["gate"]["verdicts"][0]["outcome"] != "failed", result["reason"]

    def test_a_project_reached_through_a_link_is_the_project(self, project):
        link = project.path.parent / "link"
        link.symlink_to(project.path)
        done = project.run("compare", "--max-blocks", "1", "--format", "json", cwd=link)
        result = json.loads(done.stdout)
        assert result["gate"]["verdicts"][0]["outcome"] != "failed", result["reason"]

    def test_an_environment_inside_the_project_is_not_taken_for_its_source(self, project):
        """`.venv` in the checkout is the usual place; what is installed there belongs to neither arm's tree."""
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(project.path / ".venv")],
            check=True,
            capture_output=True,
        )
        project.write(".gitignore", ".venv\n")
        packages = next((project.path / ".venv" / "lib").glob("python3*")) / "site-packages"
        (packages / "third_party.py").write_text("FACTOR = 1\n")
        project.replace("tiny_work.py", "LENGTH = 20_000", "from third_party import FACTOR\nLENGTH = 20_000 * FACTOR")
        project.commit("uses an installed package")
        done = project.run("compare", "--python", ".venv", "--max-blocks", "1", "--format", "json")
        assert done.stdout, done.stderr
        assert any("identical code" in note for note in json.loads(done.stdout)["notes"])

    def test_without_git_two_directories_can_still_be_compared(self, project):
        shutil.rmtree(project.path / ".git")
        other = project.path.parent / "other"
        shutil.copytree(project.path, other)
        result = project.result("compare", "--baseline", "dir:../other", "--max-blocks", "2")
        assert result["exit_code"] in (0, 4), result["reason"]
        refused = project.run("compare")
        assert refused.returncode == 2
        assert "is not inside a git repository; use dir:PATH" in refused.stderr
        gate = project.run("gate")
        assert gate.returncode == 2
        assert "no baseline is stored for this machine" in gate.stderr

    def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(self, project):
        (project.path / ".perfguard").write_text("a file where the folder should be")
        done = project.run("run")
        assert done.returncode == 3
        assert "cannot be written" in done.stderr
        assert "nothing was measured" in done.stderr


class TestStoredBaseline:
    def place(self, project):
        (place,) = (project.path / "baselines").glob("*/tiny")
        return place

    def test_is_shown_compared_and_gated_against(self, project_with_baseline):
        project = project_with_baseline
        place = self.place(project)
        shown = project.run("baseline", "show")
        assert shown.returncode == 0
        assert f"{place.parent.name}  tiny" in shown.stdout
        details = json.loads(project.run("baseline", "show", "-s", "tiny", "--json").stdout)
        assert {name: noise["rounds"] for name, noise in details["noise"].items()} == {"tiny.sum": 4, "tiny.sort": 4}
        diff = project.run("baseline", "diff", "git:HEAD")
        assert (diff.returncode, diff.stdout.count("+0.00 %")) == (0, 2)
        loaded = subprocess.run(
            [sys.executable, "-m", "pyperf", "stats", str(place / "timings.json")], capture_output=True
        )
        assert loaded.returncode == 0
        project.replace("tiny_work.py", *DOUBLED)
        result = project.result("gate", PERFGUARD_ROUNDS="4")
        assert outcomes(result)["tiny.sum"] == "regressed", result["reason"]
        assert result["exit_code"] == 1
        assert result["arms"]["baseline"]["text"].startswith("stored ")

    def test_of_the_very_same_code_passes_however_much_the_rounds_scatter(self, project_with_baseline):
        result = project_with_baseline.result("gate", PERFGUARD_ROUNDS="4", PERFGUARD_MAX_BLOCK_SD="0.000001")
        assert set(outcomes(result).values()) == {"unchanged"}, result["reason"]
        assert (result["exit_code"], result["verdict"]) == (0, "pass"), result["reason"]

    def test_holds_no_name_of_host_or_place(self, project_with_baseline):
        for file in self.place(project_with_baseline).iterdir():
            text = file.read_text()
            assert str(project_with_baseline.path) not in text
            assert '"hostname"' not in text

    def test_a_dirty_tree_is_not_recorded(self, project_with_baseline):
        project_with_baseline.write("unfinished.py", "")
        done = project_with_baseline.run("baseline", "update", "--rounds", "4", "--spread", "0", "--allow-unfit")
        assert done.returncode == 2
        assert "uncommitted changes" in done.stderr

    def test_a_dry_run_stores_nothing(self, project):
        done = project.run(
            "baseline", "update", "--rounds", "4", "--spread", "0", "--allow-unfit", "-n", "-c", "tiny.sum"
        )
        assert done.returncode == 0, done.stderr
        assert "nothing was stored" in done.stderr
        assert not (project.path / "baselines").exists()

    def test_a_corrupt_one_is_named_and_the_others_are_still_listed(self, project_with_baseline):
        project = project_with_baseline
        place = self.place(project)
        shutil.copytree(place, place.parent / "other")
        (place / "info.json").write_text("{ cut off")
        shown = project.run("baseline", "show")
        assert f"{place / 'info.json'} is corrupt" in shown.stdout
        assert "commit" in shown.stdout  # the copy is still listed
        assert "1 of 2 stored baselines cannot be read" in shown.stderr
        assert shown.returncode == 3
        gate = project.run("gate")
        assert gate.returncode == 3
        assert "is corrupt" in gate.stderr

    @pytest.mark.parametrize("file", ["timings.json", "noise.json", "fingerprint.json"])
    def test_a_missing_file_of_it_is_named(self, project_with_baseline, file):
        (self.place(project_with_baseline) / file).unlink()
        done = project_with_baseline.run("gate")
        assert done.returncode == 3
        assert f"{file} is missing" in done.stderr

    def test_of_another_machine_is_incomparable(self, project_with_baseline):
        project = project_with_baseline
        place = self.place(project)
        fingerprint = json.loads((place / "fingerprint.json").read_text())
        fingerprint["cpu"]["brand"] = "Another CPU @ 9 GHz"
        fingerprint["machine_id"] = "another-machine"
        fingerprint["cpu"]["microarchitecture"] = "another"
        (place / "fingerprint.json").write_text(json.dumps(fingerprint))
        result = project.result("gate", PERFGUARD_ROUNDS="2")
        assert set(outcomes(result).values()) == {"incomparable"}, result["reason"]
        assert result["exit_code"] == 3

    def test_only_for_another_machine_is_none_for_this_one(self, project_with_baseline):
        place = self.place(project_with_baseline)
        place.parent.rename(place.parent.parent / "intel-other-1")
        done = project_with_baseline.run("gate", "--baseline", "stored")
        assert done.returncode == 3
        assert "baselines exist for intel-other-1" in done.stderr


class TestInterruption:
    ARGUMENTS = ("compare", "--budget", "100", "--max-blocks", "1000", "--format", "json")

    def measuring(self, project):
        process = project.start(*self.ARGUMENTS)
        events = project.path / ".perfguard" / "runs"
        assert wait_for(lambda: any('"event":"block_finished"' in f.read_text() for f in events.glob("*/events.jsonl")))
        return process

    def test_once_keeps_what_was_measured(self, project):
        process = self.measuring(project)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 130, stderr
        result = json.loads(stdout)
        assert result == json.loads((project.latest_run() / "result.json").read_text())
        assert result["verdict"] == "interrupted"
        assert result["gate"]["verdicts"][0]["comparison"]["baseline_median_s"] > 0
        assert project.workers() == []
        assert len(project.git("worktree", "list").splitlines()) == 1

    def test_twice_ends_at_once(self, project):
        """In the middle of a slice of a minute."""
        process = project.start(*self.ARGUMENTS, "-c", "tiny.sort", "--slice-s", "60")
        events = project.path / ".perfguard" / "runs"
        assert wait_for(lambda: any('"event":"block_started"' in f.read_text() for f in events.glob("*/events.jsonl")))
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        assert (process.returncode, stdout) == (130, "")
        assert "perfguard: aborted" in stderr
        assert project.workers() == []

    def test_termination_is_taken_like_the_first_interrupt(self, project):
        process = self.measuring(project)
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 130
        assert project.workers() == []

    def test_a_killed_run_leaves_no_worker_and_no_lock(self, project):
        process = self.measuring(project)
        process.kill()
        process.communicate(timeout=60)
        assert wait_for(lambda: not project.workers())
        done = project.run("compare", "--max-blocks", "1", "-c", "tiny.sort", "--format", "json")
        assert json.loads(done.stdout)["gate"]["verdicts"][0]["outcome"] != "failed"

    def test_a_second_run_on_the_host_is_refused_and_told_who_holds_it(self, project):
        process = self.measuring(project)
        refused = project.run("run")
        process.terminate()
        process.communicate(timeout=60)
        assert refused.returncode == 3
        assert f"another perfguard run is measuring on this host (pid {process.pid}" in refused.stderr


def test_a_baseline_belongs_to_a_suite_and_not_to_a_pattern(project):
    done = project.run("baseline", "update", "-c", "tiny.sum")
    assert (done.returncode, done.stdout) == (2, "")
    assert "a baseline is stored for a suite" in done.stderr


def test_a_working_directory_that_is_gone_gives_a_sentence(project, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["/bin/sh", "-c", f"cd {gone} && rmdir {gone} && exec {sys.executable} -m perfguard list"],
        env=project.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "the working directory is gone" in done.stderr
    assert "Traceback" not in done.stderr
