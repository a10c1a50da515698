"""A paired gate over suites of other tools, which stay as they are; no torch."""

from __future__ import annotations

import json

import pytest

from perfguard.runner.process.sandboxing import holder
from tests.tiny_projects import UPDATE, facts, noted, outcomes, passes, verdicts

CONFIGURATION = """\
suite = "existing"
asv = "asv.conf.json"
pytest = ["tests/test_*.py"]
sample_s = 0.005
samples = 3
max_blocks = 12
max_block_sd = 2.0

[suites.existing]
gating = ["asv.*", "tag:pytest"]
budget_s = 60
"""

ASV = """\
from tiny_work import ordered, total


class TimeWork:
    params = ["total", "ordered"]
    param_names = ["work"]

    def setup(self, work):
        self.work = {"total": total, "ordered": ordered}[work]

    def time_work(self, work):
        self.work()


def track_length():
    return 20_000
"""

TESTS = """\
from tiny_work import ordered, total


def test_total(benchmark):
    assert benchmark(total) > 0


def test_ordered(benchmark):
    assert benchmark(ordered) == 1
"""

FIVEFOLD = ("return sum(range(LENGTH))", "return [sum(range(LENGTH)) for _ in range(5)][0]")
SLOWER = {"asv.speed.TimeWork.time_work[work=total]", "pytest.tests.test_speed.test_total"}
SAME = {"asv.speed.TimeWork.time_work[work=ordered]", "pytest.tests.test_speed.test_ordered"}


@pytest.fixture
def existing(project):
    project.write("perfguard.toml", CONFIGURATION)
    project.write("asv.conf.json", '{"version": 1, "repo": "."}  // the rest has defaults\n')
    project.write("benchmarks/__init__.py", "")
    project.write("benchmarks/speed.py", ASV)
    project.write("tests/test_speed.py", TESTS)
    project.commit("suites")
    # The plugins that are installed here take a second of each process.
    project.environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return project


def test_a_slowdown_is_red_in_the_cases_of_all_suites_that_run_into_it_and_in_no_other(existing):
    existing.replace("tiny_work.py", *FIVEFOLD)
    result = existing.result("compare", "--baseline", "git:HEAD", "--candidate", "dir:.", "--no-progress")
    found = outcomes(result)
    assert set(found) == SLOWER | SAME
    assert {case_id for case_id, outcome in found.items() if outcome == "regressed"} == SLOWER, result["reasons"]
    assert (result["exit_code"], result["verdict"]) == (1, "regressed"), result["reasons"]
    assert noted(result, "adopted.other_kinds")[0]["values"] == {"tool": "asv", "kinds": ["1 track_*"]}


def test_an_unchanged_suite_passes(existing):
    result = existing.result("compare", "--max-blocks", "2", "--measure-anyway", "-c", "pytest.*", "--no-progress")
    assert result["gate"]["blocks_total"] > 0
    assert set(outcomes(result)) == {case_id for case_id in SLOWER | SAME if case_id.startswith("pytest")}
    assert passes(result), result["reasons"]
    assert not any(note["values"].get("tool") == "asv" for note in result["notes"])


def test_a_faster_function_that_computes_something_else_is_different(existing):
    existing.replace("tiny_work.py", "LENGTH = 20_000", "LENGTH = 10_000")
    arms = ("--baseline", "git:HEAD", "--max-blocks", "2")
    result = existing.result("compare", *arms, "-c", "pytest.*test_total", "--no-progress")
    assert outcomes(result) == {"pytest.tests.test_speed.test_total": "different"}, result["reasons"]


SKIPPING = """\
import pytest


def test_on_a_gpu(benchmark):
    pytest.skip("there is no GPU")
"""


def test_a_test_that_skips_itself_in_both_arms_is_noted_and_holds_nothing_up(existing):
    existing.write("tests/test_gpu.py", SKIPPING)
    existing.commit("a test for other machines")
    arms = ("--max-blocks", "2", "--measure-anyway")
    result = existing.result("compare", *arms, "-c", "pytest.*", "--no-progress")
    assert passes(result), result["reasons"]
    skipped = verdicts(result)["pytest.tests.test_gpu.test_on_a_gpu"]
    assert skipped["gating"] == "advisory"
    (why,) = facts(skipped, "case.skipped")
    assert "there is no GPU" in why["values"]["error"]
    (skipped,) = noted(result, "run.cases_skipped")
    assert skipped["values"] == {"case_ids": ["pytest.tests.test_gpu.test_on_a_gpu"]}


def test_a_test_that_only_the_candidate_skips_is_not_passed_over(existing):
    existing.replace("tests/test_speed.py", "def test_total(benchmark):", "def test_total(benchmark):\n    skip()")
    existing.replace("tests/test_speed.py", "from tiny_work", "from pytest import skip\nfrom tiny_work")
    arms = ("--baseline", "git:HEAD", "--max-blocks", "2")
    result = existing.result("compare", *arms, "-c", "pytest.*test_total", "--no-progress")
    assert outcomes(result) == {"pytest.tests.test_speed.test_total": "failed"}, result["reasons"]
    assert result["exit_code"] == 3


def test_a_baseline_is_stored_without_the_tests_that_skip_themselves(existing):
    existing.write("tests/test_gpu.py", SKIPPING)
    existing.commit("a test for other machines")
    done = existing.run(*UPDATE)
    assert done.returncode == 0, done.stderr
    (noise,) = (existing.path / "baselines").glob("*/existing/noise.json")
    assert set(json.loads(noise.read_text())) == SLOWER | SAME


WRITING = """\
class TimeFiles:
    def setup_cache(self):
        with open("numbers", "w") as file:
            file.write("1 2 3")

    def time_read(self):
        with open("numbers") as file:
            return len(file.read())


def test_temporary(benchmark, tmp_path):
    (tmp_path / "numbers").write_text("1 2 3")
    assert benchmark((tmp_path / "numbers").read_text) == "1 2 3"
"""


@pytest.mark.skipif(holder() is None, reason="this kernel has no Landlock")
def test_confined_suites_have_their_temporary_folders(existing):
    existing.write("benchmarks/files.py", WRITING)
    existing.write("tests/test_files.py", WRITING)
    existing.commit("suites that write")
    existing.write("tests/test_files.py", WRITING + "# another file\n")
    existing.commit("a change")
    arms = ("--baseline", "git:HEAD^1", "--candidate", "git:HEAD", "--confine", "--max-blocks", "2")
    result = existing.result("compare", *arms, "-c", "*.files.*", "-c", "*.test_files.*", "--no-progress")
    found = outcomes(result)
    assert set(found) == {"asv.files.TimeFiles.time_read", "pytest.tests.test_files.test_temporary"}
    assert "failed" not in found.values(), result["reasons"]


def test_the_cases_and_what_is_left_out_are_listed(existing):
    listed = existing.run("list", "--cases").stdout
    assert "    asv.speed.TimeWork.time_work[work=total]\n" in listed
    assert "    pytest.tests.test_speed.test_total\n" in listed
    assert "1 track_*" in listed.partition("\nNotes\n")[2]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('asv = "absent.json"', "asv: "),
        ('pytest = ["absent/*.py"]', "pytest: 'absent/*.py' matches no .py file"),
        ('timer = ["../*.py"]', "timer: '../*.py' must be relative to the project"),
    ],
)
def test_a_setting_that_leads_nowhere_is_named(project, setting, said):
    project.write("perfguard.toml", setting)
    done = project.run("list")
    assert done.returncode == 2
    assert said in done.stderr
