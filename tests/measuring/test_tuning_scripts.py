"""`tune` of a user's script as a user starts it."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.torch

TRAIN = """
import os
import sys

import torch
from torch import nn

network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 4))
if "own" in sys.argv:
    network = network.to(memory_format=torch.channels_last)
own = {"fused": True} if "own" in sys.argv else {}
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, **own)
labels = torch.tensor([0, 1, 2, 3])
for _ in range(int(sys.argv[1])):
    images = torch.rand(4, 3, 8, 8)
    if "unseeded" in sys.argv:
        images *= 1 + os.urandom(1)[0] / 256
    loss = nn.functional.cross_entropy(network(images), labels)
    optimizer.zero_grad()
    loss.backward()
    if "plain" not in sys.argv:
        optimizer.step()
"""
MANY = "1000000"
TUNE = ("tune", "--toggles", "optimizer,memory_format", "--no-progress")


def tuned(training, *arguments):
    done = training.run(*TUNE, "--format", "json", *arguments)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode
    return found


@pytest.fixture
def training(empty_project):
    empty_project.write("train.py", TRAIN)
    return empty_project


def measured(found):
    return {
        (tried["trial"]["purpose"], str(tried["trial"]["before"]), str(tried["trial"]["after"])): tried
        for tried in found["trials"]
    }


def test_it_ends_within_its_budget_and_what_it_measured_counts_in_the_next_start(training):
    script = ("train.py", MANY)
    found = tuned(training, "--budget", "60", *script)
    assert found["exit_code"] in (0, 4), found
    assert (found["target"], found["is_script"]) == (f"train.py {MANY}", True)
    first = measured(found)
    assert first
    assert {tried["outcome"]["verdict"] for tried in first.values()} <= {"faster", "slower", "open"}

    again = measured(tuned(training, "--budget", "20", *script))
    assert {place: again[place]["outcome"]["run_id"] for place in first} == {
        place: tried["outcome"]["run_id"] for place, tried in first.items()
    }
    assert all(again[place]["is_reused"] for place in first)


def test_settings_that_the_script_ignores_do_not_apply(training):
    found = tuned(training, "train.py", MANY, "own")
    assert (found["outcome"], found["exit_code"], found["recipe"]) == ("done", 0, [])
    assert [tried["outcome"]["verdict"] for tried in found["trials"]] == ["ignored"] * 3
    assert {tried["outcome"]["reasons"][0]["code"] for tried in found["trials"]} == {"script.ignored"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("absent.py",), 2, "absent.py is neither a case nor a file"),
        (("--toggles", "optimiser", "train.py", MANY), 2, "the nearest is 'optimizer'"),
        (("--arm", "set:optimizer=fused", "train.py", MANY, "own"), 2, "ignores optimizer=fused"),
        (("--timeout", "5", "tiny.case"), 2, "--timeout is for scripts"),
        (("--timeout", "nan", "train.py", MANY), 2, "--timeout nan"),
        (("train.py", "40", "plain"), 3, "makes no step of a torch.optim optimizer"),
        (("train.py", MANY, "unseeded"), 3, "computes something else each time"),
        (("train.py",), 3, "IndexError"),
    ],
)
def test_what_cannot_be_tuned_is_said_in_a_sentence(training, arguments, code, said):
    done = training.run(*TUNE, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "/perfguard/" not in done.stderr  # a traceback is the script's own
