"""`perfguard init` in an empty repository, and the gate there: what it prints is what a newcomer types next."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny_projects import outcomes

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

BENCHMARK = "benchmarks/perf_first_step.py"
FORWARD = "        loss = cross_entropy(model(images), labels)\n"
OWN_UPDATE = (
    ("optimizer = torch.optim.AdamW(model.parameters(), fused=True)", "weights = list(model.parameters())"),
    ("optimizer.zero_grad()", "model.zero_grad()"),
    ("optimizer.step()", "torch._foreach_sub_([w.detach() for w in weights], [w.grad for w in weights], alpha=0.01)"),
)
"""Edits of the written step: torch's optimizers import its compiler, a second in each of the many processes."""
SLOWER = FORWARD + "        for _ in range({calls}):\n            torch.mm(images[:64, :64], images[:64, :64])\n"
SHORT = (
    ("max_blocks = 200", "max_blocks = 12"),
    ("samples = 12", "samples = 4"),
    ("sample_s = 0.02", "slice_s = 0.01"),
    ("max_block_sd = 0.05", "max_block_sd = 0.5"),
)
SIZING = """\
import sys
import time
import torch
torch.set_num_threads(1)
from benchmarks.perf_first_step import first_step

def quickest(work):
    def once():
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    return min(once() for _ in range(50))

images = torch.randn(256, 256)
step = first_step()
product = lambda: [torch.mm(images[:64, :64], images[:64, :64]) for _ in range(10)]
print(quickest(step) / (quickest(product) / 10))
"""
"""Prints how many of the products that a slower commit adds take as long as a step."""


@pytest.fixture
def first_project(empty_project):
    """A repository with nothing but what `perfguard init` writes, not committed yet."""
    empty_project.git("init", "-q", "-b", "main")
    done = empty_project.run("init")
    assert done.returncode == 0, done.stderr
    return empty_project, done.stdout


def products_a_step(project) -> float:
    done = subprocess.run(
        [sys.executable, "-c", SIZING],
        cwd=project.path, env=project.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def put_on_the_path(project, place: Path) -> dict[str, str]:
    """An environment whose `perfguard` is the one under test, and whose git knows an author."""
    place.mkdir()
    script = place / "perfguard"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perfguard "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    author = {"GIT_AUTHOR_NAME": "Test", "GIT_COMMITTER_NAME": "Test", "EMAIL": "test@example.org"}
    return {**project.environment, **author, "PATH": f"{place}{os.pathsep}{os.environ['PATH']}"}


def test_the_commands_that_it_names_lead_to_a_gate_that_passes(first_project, tmp_path):
    project, printed = first_project
    commands = re.findall(r"^ {5}(\S.*)$", printed, re.MULTILINE)
    assert len(commands) == 5
    commands[2] = commands[2].replace("OWNER/NAME@REF", "me/perfguard@v1")
    environment = put_on_the_path(project, tmp_path / "bin")
    short = {"EDITOR": "true", "PERFGUARD_ROUNDS": "2", "PERFGUARD_MAX_BLOCKS": "2", "PERFGUARD_SLICES": "4"}
    said = [
        subprocess.run(
            command, shell=True, cwd=project.path, env={**environment, **short}, capture_output=True, text=True
        )
        for command in commands
    ]
    assert [done.returncode for done in said] == [0] * 5, said
    assert "first_step" in said[0].stdout
    gate = json.loads((project.latest_run() / "result.json").read_text(encoding="utf-8"))["gate"]
    assert gate["identical"]
    assert project.git("status", "--porcelain") == ""  # what it measured is ignored


@pytest.mark.long
def test_a_pull_request_of_two_commits_is_judged_case_by_case(first_project):
    """The second commit adds products of matrices to one of two copies of the step: 60 % of its time."""
    project, _ = first_project
    for old, new in OWN_UPDATE:
        project.replace(BENCHMARK, old, new)
    benchmark = (project.path / BENCHMARK).read_text(encoding="utf-8")
    project.write("benchmarks/perf_second_step.py", benchmark.replace("first_step", "second_step"))
    project.replace("perfguard.toml", '["first_step"]', '["*_step"]')
    project.replace("perfguard.toml", "budget_s = 120.0", "budget_s = 400.0")  # blocks end it, however long they take
    for default, short in SHORT:
        project.replace("perfguard.toml", f"# {default}\n", f"{short}\n")
    project.commit("start")
    slower = SLOWER.format(calls=round(0.6 * products_a_step(project)))
    project.replace("benchmarks/perf_second_step.py", FORWARD, slower)
    project.commit("slower")

    revisions = ("--baseline", "git:HEAD^1", "--candidate", "git:HEAD", "--policy-from", "HEAD^1")
    done = subprocess.run(
        [sys.executable, "-m", "perfguard", "compare", *revisions, "--no-ops", "--no-progress", "--format", "json"],
        cwd=project.path, env=project.environment, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    found = outcomes(result)
    assert set(found) == {"first_step", "second_step"}
    assert found["second_step"] == "regressed"
    assert found["first_step"] not in ("regressed", "failed", "different")
    counted = {case: changes[0]["fact"] for case, changes in result["op_count_changes"].items() if changes}
    assert {case: (fact["code"], *fact["values"]["ops"]) for case, fact in counted.items()} == {
        "second_step": ("ops.added", "mm")
    }
    assert result["exit_code"] == done.returncode == 1
