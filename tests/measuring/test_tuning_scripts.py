"""`tune` of a user's script as a user starts it."""

from __future__ import annotations

import json

import pytest

from tests.trained_scripts import MANY, TRAIN

pytestmark = pytest.mark.torch

TUNE = ("tune", "--toggles", "optimizer", "--no-progress")


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


@pytest.mark.long
def test_it_ends_within_its_budget_and_what_it_measured_counts_in_the_next_start(training):
    script = ("train.py", MANY)
    found = tuned(training, "--budget", "30", *script)
    assert found["exit_code"] in (0, 4), found
    assert (found["target"], found["is_script"]) == (f"train.py {MANY}", True)
    first = measured(found)
    assert first
    assert {tried["outcome"]["verdict"] for tried in first.values()} <= {"faster", "slower", "open"}

    again = measured(tuned(training, "--budget", "1", *script))
    assert {place: again[place]["outcome"]["run_id"] for place in first} == {
        place: tried["outcome"]["run_id"] for place, tried in first.items()
    }
    assert all(again[place]["is_reused"] for place in first)
