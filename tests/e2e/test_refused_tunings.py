"""`tune` of a script: settings that it ignores, and scripts that cannot be tuned."""

from __future__ import annotations

import json

import pytest

from tests.trained_scripts import MANY, TRAIN

pytestmark = pytest.mark.torch

TUNE = ("tune", "--toggles", "memory_format", "--no-progress")


@pytest.fixture
def training(empty_project):
    empty_project.write("train.py", TRAIN)
    return empty_project


@pytest.mark.long
def test_settings_that_the_script_ignores_do_not_apply(training):
    done = training.run(*TUNE, "--format", "json", "train.py", MANY, "own")
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"]
    assert (found["outcome"], found["exit_code"], found["recipe"]) == ("done", 0, [])
    assert [tried["outcome"]["verdict"] for tried in found["trials"]] == ["ignored"]
    assert {tried["outcome"]["reasons"][0]["code"] for tried in found["trials"]} == {"script.ignored"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("absent.py",), 2, "absent.py is neither a case nor a file"),
        (("--toggles", "optimiser", "train.py", MANY), 2, "the nearest is 'optimizer'"),
        (("--arm", "set:optimizer=fused", "train.py", MANY, "own"), 2, "ignores optimizer=fused"),
        (("--timeout", "5", "tiny.case"), 2, "--timeout is for scripts"),
        (("--timeout", "nan", "train.py", MANY), 2, "'nan' is no time"),
        pytest.param(
            ("train.py", "40", "plain"), 3, "makes no step of a torch.optim optimizer", marks=pytest.mark.long
        ),
        pytest.param(("train.py", MANY, "unseeded"), 3, "computes something else each time", marks=pytest.mark.long),
        (("train.py",), 3, "IndexError"),
    ],
)
def test_what_cannot_be_tuned_is_said_in_a_sentence(training, arguments, code, said):
    done = training.run(*TUNE, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "/perfguard/" not in done.stderr  # a traceback is the script's own
