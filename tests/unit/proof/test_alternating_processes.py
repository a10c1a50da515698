"""Processes that take turns, with a victim that needs no torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.proof.gates_against_peers import alternating as module
from tests.proof.gates_against_peers.alternating import alternating

TORCH = "def manual_seed(number):\n    pass\n"
VICTIM = """
import os, pathlib

class Number(float):
    def double(self):
        return self

    def mean(self):
        return self

def steady():
    def call():
        with open(os.environ["LOG"], "a") as log:
            log.write(os.environ["ARM"])
        return Number(os.environ["RESULT"])
    return call

def broken():
    raise SystemExit("no such case")
"""


@pytest.fixture
def arms(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "python_of", lambda _: Path(sys.executable))
    trees = []
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "torch.py").write_text(TORCH)
        (tmp_path / name / "victim.py").write_text(VICTIM)
        trees.append((tmp_path / name, {"ARM": name, "RESULT": "12", "LOG": str(tmp_path / "log")}))
    return trees


def cpus():
    return sorted(os.sched_getaffinity(0))[:1]


def test_both_arms_are_timed_as_often_and_tell_what_they_computed(arms, tmp_path):
    found = alternating(arms, ["steady", "steady"], samples=4, cpus=cpus())
    for row in found:
        assert {clock: len(row["steady"][clock]) for clock in ("wall_s", "cpu_s")} == {"wall_s": 4, "cpu_s": 4}
        assert all(seconds > 0 for seconds in row["steady"]["wall_s"])
        assert row["steady"]["result"] == 12
    assert set((tmp_path / "log").read_text()) == {"a", "b"}


def test_samples_of_the_arms_alternate_and_the_first_one_changes(arms, tmp_path, monkeypatch):
    asked = []
    answered = module._asked

    def noted(process, word):
        asked.append(process.args[2][-1])
        return answered(process, word)

    monkeypatch.setattr(module, "_asked", noted)
    alternating(arms, ["steady"], samples=4, cpus=cpus())
    assert "".join(asked) == "baabbaab"


def test_a_process_that_ends_is_told(arms):
    with pytest.raises(RuntimeError, match="a process that times a case ended"):
        alternating(arms, ["broken"], samples=2, cpus=cpus())
