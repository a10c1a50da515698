"""What the rule for change points finds and invents on series with known jumps; `make proof-change-points` has more."""

from __future__ import annotations

import pytest

from tests.proof.change_points.__main__ import SEEDS, TARGETS, WITH_JUMPS, promptness, scored
from tests.proof.change_points.detectors import perfguard


@pytest.fixture(scope="module")
def found():
    return scored(perfguard, SEEDS[:1], 40)


@pytest.mark.parametrize("name", WITH_JUMPS)
def test_most_jumps_are_found_and_few_are_invented(found, name):
    assert found[name]["f1"] >= TARGETS["f1"]


@pytest.mark.parametrize("name", ["flat", "drifting"])
def test_series_without_a_jump_have_next_to_none(found, name):
    assert found[name]["false"] <= TARGETS[name]


def test_no_change_of_the_environment_is_taken_for_one_of_the_code(found):
    assert (found["environments"]["blamed"], found["environments"]["environments"]) == (0, 80)


def test_a_large_jump_is_found_after_five_points():
    assert promptness(perfguard, 5.0) >= TARGETS["prompt"]
