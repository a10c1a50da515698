"""`perfguard profile` of a user's script with settings from outside, and against a baseline."""

from __future__ import annotations

import json

import pytest

from tests.trained_scripts import TRAIN

pytestmark = pytest.mark.torch

ALL = "set:dtype=bf16,memory_format=channels_last,optimizer=fused"
ONE_PAIR = ("--timeout", "20", "--steps", "1", "--format", "json", "--no-progress")


@pytest.fixture
def training(empty_project):
    empty_project.write("train.py", TRAIN)
    empty_project.write("endless.py", TRAIN.replace("range(int(sys.argv[1]))", "iter(int, 1)"))
    return empty_project


def compared(training, candidate, *arguments):
    done = training.run("profile", "--baseline", "dir:.", "--candidate", candidate, *ONE_PAIR, "endless.py", *arguments)
    return done.returncode, json.loads(done.stdout)["comparison"]


def test_steps_of_both_arms_are_compared_and_each_setting_is_accounted_for(training):
    code, found = compared(training, ALL)
    assert code == 0
    assert found["refused"] == []
    assert found["steps"] >= 4 * found["pairs"] > 0
    assert found["ratio"] > 0
    assert {use["name"]: use["changed"] for use in found["settings"]} == {
        "dtype": 5, "memory_format": 1, "optimizer": 1,
    }  # fmt: skip


@pytest.mark.long
def test_times_of_something_else_do_not_count(training):
    code, found = compared(training, "env:FACTOR=2")
    assert code == 4
    assert {reason["code"] for reason in found["refused"]} == {"result.different"}
