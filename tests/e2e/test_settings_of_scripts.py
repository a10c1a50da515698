"""`perfguard profile` of a user's script: settings and scripts that it refuses."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

TRAIN = """
import sys

import torch
from torch import nn

network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 4))
own = {"fused": True} if "own" in sys.argv else {}
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, **own)
labels = torch.tensor([0, 1, 2, 3])
for _ in range(int(sys.argv[1])):
    images = torch.rand(4, 3, 8, 8)
    loss = nn.functional.cross_entropy(network(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture
def training(empty_project):
    empty_project.write("train.py", TRAIN)
    return empty_project


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--candidate", "set:optimizer=fused", "train.py", "40", "own"), 2, "ignores optimizer=fused"),
        (("--candidate", "set:optimiser=fused", "train.py", "40"), 2, "the nearest is 'optimizer'"),
        (("--candidate", "set:dtype=fp8", "train.py", "40"), 2, "choose from fp32, bf16"),
        (("--baseline", "dir:.", "no.such.case"), 2, "--baseline is for scripts"),
        (("--baseline", "dir:.", "absent.py"), 2, "absent.py is neither a case nor a file"),
        (("--baseline", "dir:.", "train.py", "8"), 3, "ended after 8 optimizer steps"),
        (("--baseline", "dir:.", "train.py", "0"), 3, "makes no step of a torch.optim optimizer"),
    ],
)
def test_what_cannot_be_set_is_said_in_a_sentence(training, arguments, code, said):
    done = training.run("profile", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
