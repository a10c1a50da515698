"""The neighbour never outlives its gate."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.proof.gates_against_peers import neighbour
from tests.proof.gates_against_peers.places import REPOSITORY


def test_it_is_gone_when_the_gate_is_over(monkeypatch):
    started = []
    popen = subprocess.Popen

    def remember(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(neighbour.subprocess, "Popen", remember)
    with neighbour.noisy(min(os.sched_getaffinity(0)), seconds=600, seed=1, duty=0.5, cwd=REPOSITORY):
        assert started[0].poll() is None
    assert started[0].poll() is not None


def test_there_is_none_where_none_is_wanted(monkeypatch):
    started = []
    monkeypatch.setattr(neighbour.subprocess, "Popen", started.append)
    with neighbour.noisy(None, seconds=1, seed=1, duty=0.5, cwd=REPOSITORY):
        assert started == []


def test_it_ends_by_itself():
    cpu = str(min(os.sched_getaffinity(0)))
    done = subprocess.run(
        [sys.executable, "-m", neighbour.__name__, cpu, "0.2", "1", "0.5"], cwd=REPOSITORY, timeout=60, check=False
    )
    assert done.returncode == 0
