"""`compare` on small projects whose benchmarks need no torch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.busy_neighbours import busy_neighbours
from tests.tiny_projects import DOUBLED, facts, noted, outcomes, passes, verdicts


def test_the_same_code_twice_is_never_called_a_regression(project):
    result = project.result("compare", "--measure-anyway")
    assert (result["exit_code"], result["gate"]["identical"]) == (0, True), result["reasons"]
    assert result["gate"]["blocks_total"] > 0
    assert "regressed" not in outcomes(result).values()


def test_a_slowdown_in_the_working_tree_is_red_in_exactly_its_case(project):
    project.replace("tiny_work.py", *DOUBLED)
    result = project.result("compare")
    assert (result["exit_code"], result["verdict"]) == (1, "regressed"), result["reasons"]
    assert [name for name, outcome in outcomes(result).items() if outcome == "regressed"] == ["tiny.sum"]
    assert noted(result, "arms.files_differ")[0]["values"]["files"] == ["tiny_work.py"]


def test_the_mirrored_change_is_an_improvement(project):
    project.replace("tiny_work.py", *DOUBLED)
    result = project.result("compare", "--baseline", "dir:.", "--candidate", "git:HEAD", "-c", "tiny.sum")
    assert outcomes(result) == {"tiny.sum": "improved"}, result["reasons"]
    assert passes(result)


def test_two_revisions_are_compared_whatever_the_working_tree_holds(project):
    first = project.git("rev-parse", "HEAD")
    project.replace("tiny_work.py", *DOUBLED)
    project.commit("slower")
    project.write("tiny_work.py", "raise RuntimeError('the working tree must not be imported by the arms')")
    project.write("bench_tiny.py", (project.path / "bench_tiny.py").read_text().replace("from tiny_work", "#"))
    result = project.result("compare", "--baseline", f"git:{first}", "--candidate", "git:HEAD", "-c", "tiny.sum")
    assert (result["exit_code"], outcomes(result)) == (1, {"tiny.sum": "regressed"}), result["reasons"]


def test_worktrees_and_bundles_are_gone_afterwards(project):
    project.run("compare", "--measure-anyway", "--max-blocks", "1", "-c", "tiny.sort")
    assert len(project.git("worktree", "list").splitlines()) == 1
    assert not (project.latest_run() / "arms").exists()
    assert project.workers() == []
    assert project.git("status", "--porcelain") == ""


def test_the_files_of_a_run_are_read_by_pyperf(project):
    project.run("compare", "--measure-anyway", "--max-blocks", "2", "-c", "tiny.sort")
    folder = project.latest_run()
    for arguments in (
        ("stats", str(folder / "candidate.json")),
        ("compare_to", str(folder / "baseline.json"), str(folder / "candidate.json")),
    ):
        done = subprocess.run([sys.executable, "-m", "pyperf", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_a_case_that_only_the_candidate_has_is_without_baseline(project):
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


def test_a_case_that_breaks_in_the_candidate_fails_and_the_other_is_judged(project):
    project.replace("tiny_work.py", "return sum(range(LENGTH))", "raise OSError('no total today')")
    result = project.result("compare", "--max-blocks", "2", "--measure-all")
    assert noted(result, "run.max_blocks_reached")
    found = verdicts(result)
    assert found["tiny.sum"]["outcome"] == "failed"
    (why,) = facts(found["tiny.sum"], "case.raised")
    assert why["values"]["error"] == "OSError: no total today (tiny_work.py:5)"
    assert found["tiny.sort"]["comparison"]["estimate"]["blocks"] >= 1
    assert (result["exit_code"], result["verdict"]) == (3, "failed")


@pytest.mark.torch
def test_trees_that_differ_where_nothing_is_imported_from_are_refused(project):
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


def test_an_installed_copy_that_shadows_the_tree_is_refused(project, tmp_path):
    copies = tmp_path / "copies"
    copies.mkdir()
    shutil.copy(project.path / "tiny_work.py", copies / "tiny_work.py")
    shadow = f"import sys; sys.path.insert(0, {str(copies)!r}); import tiny_work; del sys.path[0]"
    text = (project.path / "bench_tiny.py").read_text()
    project.write("bench_tiny.py", f"{shadow}\n{text}")
    project.commit("shadowed")
    done = project.run("compare", "--measure-anyway", "--no-progress")
    assert done.returncode == 2
    assert "imported 'tiny_work' from" in done.stderr
    assert "uninstall it, or give git arms a setup command" in done.stderr


def test_code_from_the_other_arms_tree_is_refused(project):
    """As an editable install of the checkout does."""
    here = f"import sys; sys.path.insert(0, {str(project.path)!r})"
    text = (project.path / "bench_tiny.py").read_text()
    project.write("bench_tiny.py", f"{here}\n{text}")
    project.commit("always the checkout")
    done = project.run("compare", "--measure-anyway", "--no-progress")
    assert done.returncode == 2
    assert "from the other arm's tree" in done.stderr


def test_arms_may_differ_in_an_environment_variable(project):
    project.replace("tiny_work.py", "LENGTH = 20_000", "import os\nLENGTH = 20_000 * int(os.environ.get('TIMES', 1))")
    project.commit("depends on a variable")
    result = project.result("compare", "--candidate", "dir:.+env:TIMES=2", "-c", "tiny.sum")
    assert (result["exit_code"], outcomes(result)) == (1, {"tiny.sum": "regressed"}), result["reasons"]


def test_an_injected_slowdown_is_red_and_an_injected_speed_up_is_an_improvement(project):
    slower = project.result("compare", "-c", "tiny.sum", "--inject", "tiny.sum=+150%")
    assert (slower["exit_code"], outcomes(slower)) == (1, {"tiny.sum": "regressed"}), slower["reasons"]
    assert noted(slower, "run.injected")
    faster = project.result("compare", "-c", "tiny.sum", "--inject", "tiny.sum=-50%")
    assert outcomes(faster) == {"tiny.sum": "improved"}, faster["reasons"]
    assert passes(faster)


@pytest.mark.long
def test_neighbours_on_the_measured_cpus_are_noted(project):
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel does not count how long threads wait for a CPU")
    with busy_neighbours():
        arguments = ("compare", "--measure-anyway", "--max-blocks", "2", "-c", "tiny.sum")
        result = project.result(*arguments, "--sample-s", "0.2")  # far longer than the scheduler lets one process run
    (note,) = noted(result, "host.waited_for_cpu")
    assert note["values"]["waited_share"] > 0.05


ROUNDS = """\
import perfguard
from tiny_work import total


@perfguard.benchmark(name="tiny.rounds", tags=["no-torch"], phase="forward", params={"rounds": [2]})
def tiny_rounds(rounds):
    return lambda: max(float(total()) for _ in range(rounds))
"""


def test_parameters_that_an_arm_sets_are_compared_with_the_cases_own(project):
    project.write("bench_rounds.py", ROUNDS)
    project.commit()
    result = project.result("compare", "--candidate", "set:rounds=4", "-c", "tiny.rounds", "-c", "tiny.sort")
    assert verdicts(result)["tiny.rounds[rounds=2]"]["outcome"] == "regressed", result["reasons"]
    assert outcomes(result)["tiny.sort"] != "regressed"
    assert noted(result, "arms.parameter_without_effect")[0]["values"]["case_ids"] == ["tiny.sort"]


def test_a_parameter_that_no_case_has_is_refused_before_anything_is_measured(project):
    done = project.run("compare", "--candidate", "set:round=4", "-c", "tiny.sum")
    assert done.returncode == 2
    assert "no selected case has a parameter 'round'" in done.stderr


def test_exit_zero_reports_a_regression_without_failing(project):
    arguments = ("compare", "-c", "tiny.sum", "--inject", "tiny.sum=+100%", "--exit-zero")
    result = project.result(*arguments)
    assert (result["exit_code"], result["verdict"]) == (0, "regressed"), result["reasons"]
