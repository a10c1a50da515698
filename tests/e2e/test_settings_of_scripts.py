"""`perfguard profile` of a user's script: settings and scripts that it refuses."""

from __future__ import annotations

import pytest

from tests.trained_scripts import TRAIN

pytestmark = pytest.mark.torch


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
        (("--baseline", "dir:.", "train.py", "40", "plain"), 3, "makes no step of a torch.optim optimizer"),
    ],
)
def test_what_cannot_be_set_is_said_in_a_sentence(training, arguments, code, said):
    done = training.run("profile", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
