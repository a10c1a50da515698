"""Arms that run the same code are not measured; of what git cannot tell, workers are asked. No torch."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.tiny_projects import facts, noted, outcomes, verdicts

REVISIONS = ("--baseline", "git:HEAD^1", "--candidate", "git:HEAD")
GENERATED = ("LENGTH = 20_000", "try:\n    from generated import LENGTH\nexcept ImportError:\n    LENGTH = 20_000")
"""In `tiny_work.py`: a module that git ignores decides how much work there is."""


def happened(project) -> list[str]:
    """The kinds of events of the latest run."""
    lines = (project.latest_run() / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["event"] for line in lines]


def assert_passed_unmeasured(result) -> None:
    gate = result["gate"]
    assert (result["exit_code"], result["verdict"], gate["identical"], gate["blocks_total"]) == (0, "pass", True, 0)
    assert [reason["code"] for reason in result["reasons"]] == ["arms.identical"]
    assert set(outcomes(result).values()) == {"same-code"}
    assert all(facts(verdict, "verdict.not_measured") for verdict in verdicts(result).values())


@pytest.mark.parametrize("has_benchmarks", [True, False])
def test_a_gate_without_a_case_of_the_project_says_so(project, has_benchmarks):
    if not has_benchmarks:
        project.write("perfguard.toml", "")
        project.commit("no benchmarks")
    result = project.result("gate", "--baseline", "git:HEAD")
    assert_passed_unmeasured(result)
    assert bool(noted(result, "run.only_built_in")) is not has_benchmarks


@pytest.mark.parametrize("command", [("compare",), ("gate", "--baseline", "git:HEAD")])
def test_the_same_tree_passes_without_a_worker(project, command):
    result = project.result(*command)
    assert_passed_unmeasured(result)
    assert not {"arm_ready", "case_calibrated", "block_started"} & set(happened(project))
    assert {arm["source_id"] for arm in result["arms"].values()} == {project.git("rev-parse", "HEAD^{tree}")}
    assert project.workers() == []
    assert len(project.git("worktree", "list").splitlines()) == 1
    for arguments in ((), ("--rejudge",)):
        assert_passed_unmeasured(project.result("show", *arguments))


@pytest.mark.parametrize("has_parent", [True, False])
def test_a_clean_tree_says_how_to_gate_the_last_commit(project, has_parent):
    if has_parent:
        project.git("commit", "-q", "--allow-empty", "-m", "second")
    for arguments in (("gate",), ("gate", "--baseline", "HEAD")):
        assert bool(noted(project.result(*arguments), "gate.nothing_to_compare")) is has_parent


def test_a_benchmark_that_no_suite_measures_is_named(project):
    project.write(
        "bench_more.py", "import perfguard\n\n@perfguard.benchmark(name='more')\ndef more():\n    return int\n"
    )
    project.replace("perfguard.toml", 'benchmarks = ["', 'benchmarks = ["bench_more.py", "')
    (note,) = noted(project.result("gate", "-s", "tiny"), "run.in_no_suite")
    assert note["values"] == {"benchmarks": ["more"]}
    assert not noted(project.result("gate", "-c", "tiny.sum"), "run.in_no_suite")


def test_the_same_tree_is_measured_where_that_is_asked_for(project):
    result = project.result("compare", "--measure-anyway", "--max-blocks", "2")
    assert (result["exit_code"], result["gate"]["identical"], result["gate"]["blocks_total"]) == (0, True, 2)
    assert happened(project).count("arm_ready") == 2
    assert all(verdict["comparison"]["estimate"]["blocks"] >= 1 for verdict in verdicts(result).values())


@pytest.mark.parametrize("name", ["README.md", "docs/guide.rst", ".github/workflows/perf.yml"])
def test_a_change_of_documents_or_workflows_passes_without_a_worker(project, name):
    project.write(name, "other words\n")
    project.commit("words")
    assert_passed_unmeasured(project.result("compare", *REVISIONS))
    assert "arm_ready" not in happened(project)


def test_another_file_that_nothing_imports_is_asked_about_and_not_measured(project):
    project.write("notes.txt", "whether code reads this, git does not know\n")
    project.commit("notes")
    assert_passed_unmeasured(project.result("compare", *REVISIONS))
    assert happened(project).count("arm_ready") == 2
    assert "block_started" not in happened(project)


@pytest.mark.parametrize("name", ["fast.so", "package/generated.py"])
def test_code_that_git_ignores_is_asked_about(project, name):
    project.write(".gitignore", name)
    project.commit("ignores a file")
    project.write(name, "")
    assert_passed_unmeasured(project.result("compare"))
    assert happened(project).count("arm_ready") == 2


def test_an_environment_that_git_ignores_is_no_code_of_the_tree(project):
    project.write(".gitignore", "environment\n")
    project.commit("ignores an environment")
    project.write("environment/pyvenv.cfg", "")
    project.write("environment/lib/module.py", "")
    assert_passed_unmeasured(project.result("compare"))
    assert "arm_ready" not in happened(project)


def test_a_slowdown_in_code_that_git_ignores_is_red(project):
    project.replace("tiny_work.py", *GENERATED)
    project.write(".gitignore", "generated.py\n")
    project.commit("may be generated")
    project.write("generated.py", "LENGTH = 80_000\n")
    result = project.result("compare", "-c", "tiny.sum")
    assert not result["gate"]["identical"]
    assert outcomes(result)["tiny.sum"] in ("regressed", "different")
    assert result["exit_code"] == 1


def test_two_clones_of_a_commit_may_differ_in_code_that_git_ignores(project):
    project.replace("tiny_work.py", *GENERATED)
    project.write(".gitignore", "generated.py\n")
    project.commit("may be generated")
    shutil.copytree(project.path, project.path.parent / "other")
    project.write("generated.py", "LENGTH = 80_000\n")
    result = project.result("compare", "--baseline", "dir:../other", "-c", "tiny.sum", "--max-blocks", "1")
    assert (result["gate"]["identical"], result["gate"]["blocks_total"]) == (False, 1)


def test_two_folders_of_a_repository_are_not_the_same_code(project):
    for part in ("one", "two"):
        (project.path / part).mkdir()
        for name in ("perfguard.toml", "bench_tiny.py", "tiny_work.py"):
            shutil.copy2(project.path / name, project.path / part / name)
    project.replace("two/tiny_work.py", "LENGTH = 20_000", "LENGTH = 80_000")
    project.commit("two projects")
    arguments = ("--baseline", "dir:../one", "-c", "tiny.sum", "--max-blocks", "1", "--format", "json")
    result = json.loads(project.run("compare", *arguments, cwd=project.path / "two").stdout)
    assert (result["gate"]["identical"], result["gate"]["blocks_total"]) == (False, 1)
