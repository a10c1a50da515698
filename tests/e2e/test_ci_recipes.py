"""The recipes in docs/ci-recipes.md: their own lines, run as those systems run them."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from importlib import resources
from pathlib import Path

import pytest

from perfguard.errors import ExitCode
from perfguard.runner.process.sandboxing import holder
from tests.tiny_projects import DOUBLED

yaml = pytest.importorskip("ruamel.yaml")
RECIPES = Path(__file__).parents[2] / "docs" / "ci-recipes.md"
GITLAB = ("bash", "-eo", "pipefail", "-c")
INSTALLING = re.compile(r"python3 -I -m venv|/pip install")
needs_landlock = pytest.mark.skipif(holder() is None, reason="this kernel has no Landlock")


def block(language: str) -> str:
    """The only code block of a language."""
    if not RECIPES.is_file():
        pytest.skip("the documents are not beside an installed package")
    (found,) = re.findall(rf"```{language}\n(.*?)```", RECIPES.read_text(encoding="utf-8"), re.DOTALL)
    return found


def gitlab_job() -> dict:
    return yaml.YAML(typ="safe").load(block("yaml"))["perf"]


def jenkins_scripts() -> list[str]:
    return [textwrap.dedent(script) for script in re.findall(r"'''(.*?)'''", block("groovy"), re.DOTALL)]


@pytest.fixture
def clone(project):
    """A clone with a branch of one slower commit; the lines that install find perfguard installed."""
    project.git("branch", "-M", "main")
    project.git("update-ref", "refs/remotes/origin/main", "HEAD")
    project.git("checkout", "-q", "-b", "topic")
    project.replace("tiny_work.py", *DOUBLED)
    project.write(".gitignore", ".perfguard/\n")
    project.commit("slower")
    script = project.write(".perfguard/venv/bin/perfguard", f'#!/bin/sh\nexec "{sys.executable}" -m perfguard "$@"\n')
    script.chmod(0o755)
    return project


def shell(project, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=project.path, env={**project.environment, **variables}, capture_output=True, text=True, timeout=300
    )


def without_installing(lines: str) -> str:
    """What is left to run where there is no index to install from."""
    return "\n".join(line for line in lines.splitlines() if not INSTALLING.search(line))


def check_gate_and_files(gate: subprocess.CompletedProcess[str], project) -> None:
    """The gate judged, red where the host was quiet enough to see it, and the files say what its exit code says."""
    assert gate.returncode in (ExitCode.REGRESSION, ExitCode.INCONCLUSIVE), gate.stdout + gate.stderr
    cases = {case.get("name"): case for case in ET.parse(project.path / "perfguard.xml").iter("testcase")}
    assert {"tiny.sum", "tiny.sort"} <= set(cases)
    failures = {name for name, case in cases.items() if case.find("failure") is not None}
    assert failures == ({"tiny.sum"} if gate.returncode == ExitCode.REGRESSION else set())
    page = (project.path / "perfguard.html").read_text(encoding="utf-8")
    assert "tiny.sum" in page


def test_the_documented_gitlab_job_is_the_one_that_init_writes():
    template = resources.files("perfguard") / "templates" / "gitlab" / "perfguard.yml"
    assert block("yaml") == template.read_text(encoding="utf-8")


@needs_landlock
def test_the_gitlab_job_judges_a_slower_merge_request_and_leaves_its_files(clone):
    job, base = gitlab_job(), {"CI_MERGE_REQUEST_DIFF_BASE_SHA": clone.git("rev-parse", "main")}
    done = shell(clone, *GITLAB, without_installing("\n".join(job["script"])), **base)
    after = shell(clone, *GITLAB, "\n".join(job["after_script"]))
    assert after.returncode == 0, after.stderr
    check_gate_and_files(done, clone)


def test_the_gitlab_job_compares_with_the_target_where_results_are_merged(clone):
    """GitLab then checks out a merge commit, and the branch started from an older commit than the target's last."""
    started_from = clone.git("rev-parse", "main")
    clone.git("checkout", "-q", "-B", "main", "main")
    clone.git("commit", "-q", "--allow-empty", "-m", "meanwhile")
    target = clone.git("rev-parse", "main")
    clone.git("checkout", "-q", "--detach", "main")
    clone.git("merge", "-q", "--no-ff", "-m", "merged", "topic")
    (line,) = [line for line in gitlab_job()["script"] if line.startswith("base=")]
    found = shell(
        clone, *GITLAB, f'{line}\necho "$base"',
        CI_MERGE_REQUEST_DIFF_BASE_SHA=started_from, CI_MERGE_REQUEST_TARGET_BRANCH_SHA=target,
    )  # fmt: skip
    assert found.stdout.strip() == target


@needs_landlock
def test_the_jenkins_pipeline_judges_a_slower_change_and_leaves_its_files(clone):
    _, gate, files = jenkins_scripts()
    done = shell(clone, "sh", "-xe", "-c", gate, CHANGE_TARGET="main")
    assert shell(clone, "sh", "-xe", "-c", files).returncode == 0
    check_gate_and_files(done, clone)


def test_both_recipes_install_alike_and_only_by_the_lines_that_are_left_out_here():
    install, *_ = jenkins_scripts()
    assert without_installing(install).strip() == ""
    script = gitlab_job()["script"]
    assert [line for line in script if INSTALLING.search(line)] == install.split("\n")[1:3]


def test_no_answer_is_a_warning_in_both():
    assert gitlab_job()["allow_failure"] == {"exit_codes": [4, 5]}
    assert [re.search(rf"if \(code == {code}\) {{\s*unstable\(", block("groovy")) is not None for code in (4, 5)] == [
        True
    ] * 2


@pytest.mark.parametrize(("shown", "code"), [(0, 4), (4, 1)])
def test_results_that_differ_are_red_in_both_and_no_answer_is_not(clone, shown, code):
    """A gate that ends with 4, whose run `perfguard show --fail-on different` then judges."""
    script = f'#!/bin/sh\ncase "$1" in compare) exit 4;; show) exit {shown};; esac\n'
    (clone.path / ".perfguard" / "venv" / "bin" / "perfguard").write_text(script)
    _, jenkins, _ = jenkins_scripts()
    gitlab = without_installing("\n".join(gitlab_job()["script"]))
    base = clone.git("rev-parse", "main")
    assert shell(clone, *GITLAB, gitlab, CI_MERGE_REQUEST_DIFF_BASE_SHA=base).returncode == code
    assert shell(clone, "sh", "-xe", "-c", jenkins, CHANGE_TARGET="main").returncode == code


def test_the_gitlab_job_is_valid(tmp_path):
    pytest.importorskip("check_jsonschema")
    (tmp_path / ".gitlab-ci.yml").write_text(block("yaml"), encoding="utf-8")
    arguments = ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci")
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *arguments, str(tmp_path / ".gitlab-ci.yml")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
