"""The hook for pre-commit: what is pushed is measured against what the remote has."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny_projects import DOUBLED

REPOSITORY = Path(__file__).parents[2]
NAMED = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
PRE_COMMIT = shutil.which("pre-commit", path=Path(sys.executable).parent)

pytestmark = pytest.mark.skipif(
    PRE_COMMIT is None or not (REPOSITORY / ".git").exists(), reason="needs pre-commit, and a clone of perfguard"
)


@pytest.fixture
def pushing(project, tmp_path):
    """Runs the hook as `git push` would, over the commits after the first one."""
    hooks = tmp_path / "perfguard"
    hooks.mkdir()
    shutil.copy(REPOSITORY / ".pre-commit-hooks.yaml", hooks)
    for command in (["init", "-q"], ["add", "."], [*NAMED, "commit", "-q", "-m", "hooks"]):
        subprocess.run(["git", *command], cwd=hooks, env=project.environment, check=True)
    revision = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=hooks, env=project.environment, check=True, capture_output=True, text=True
    ).stdout.strip()
    arguments = "[--budget, '120', -s, tiny, --max-blocks, '24', --samples, '4', --no-ops, --fail-on, regression]"
    hook = f"{{id: perfguard, args: {arguments}}}"
    project.write(".pre-commit-config.yaml", f"repos:\n  - repo: {hooks}\n    rev: {revision}\n    hooks: [{hook}]\n")
    first = project.commit("hooks")
    path = f"{Path(sys.executable).parent}:{project.environment['PATH']}"
    environment = {**project.environment, "PATH": path, "PRE_COMMIT_HOME": str(tmp_path / "cache")}

    def push():
        return subprocess.run(
            [PRE_COMMIT, "run", "--hook-stage", "pre-push", "--from-ref", first, "--to-ref", "HEAD"],
            cwd=project.path, env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    return push


def test_a_push_that_makes_a_case_slower_is_refused(project, pushing):
    project.replace("tiny_work.py", *DOUBLED)
    project.commit("slower")
    done = pushing()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "tiny.sum" in done.stdout
    assert "regressed" in done.stdout


def test_a_push_that_touches_no_case_passes(project, pushing):
    project.write("notes.txt", "nothing that runs")
    project.commit("notes")
    done = pushing()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same code" in done.stdout
