"""A task of a project in its gate: a candidate whose quality misses the target fails, whatever its speed."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytestmark = pytest.mark.torch

NETS = """
from torch import nn
from torch.nn import functional
import torch


class Net(nn.Module):
    batch = 64

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images):
        return self.layers(images)

    def loss(self, images, labels):
        return functional.cross_entropy(self(images), labels)

    def make_optimizer(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)
"""
TASK = """
name = "mine"
doc = "My network on digits"
[model]
architecture = "nets:Net"
weights = "trained"
[data]
source = "sklearn:digits"
parts = { full = 597, lite = 256 }
[quality]
metric = "top-1"
kind = "labelled"
reference = 0.95
fraction = 0.98
"""
BENCHMARK = """
import pathlib

import perfguard
from perfguard.benchmarks.tasks import query


@perfguard.benchmark(dtype="fp32")
def mine():
    return query(pathlib.Path(__file__).parent / "mine.toml")
"""


@pytest.fixture
def gated(project, tmp_path):
    project.write("nets.py", NETS)
    project.write("mine.toml", TASK)
    project.write("bench_mine.py", BENCHMARK)
    project.write("perfguard.toml", 'benchmarks = ["bench_mine.py"]\n')
    project.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    project.commit()
    return project


def gate(project):
    done = project.run("gate", "-c", "mine", "--baseline", "git:HEAD", "--budget", "40", "-q", "--format", "json")
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"]
    return found


def test_a_candidate_that_misses_the_quality_is_invalid_and_the_same_code_passes(gated):
    assert gate(gated)["exit_code"] == 0
    broken = "self.layers(images) * (1 if self.training else -1)\n"
    gated.write("nets.py", NETS.replace("self.layers(images)\n", broken))
    found = gate(gated)
    (verdict,) = found["gate"]["verdicts"]
    assert (verdict["outcome"], found["verdict"], found["exit_code"]) == ("invalid", "invalid", 1)
    assert "the target is 0.931: the speed does not count" in json.dumps(verdict["reasons"])
