from __future__ import annotations

import pytest

from perfguard.gate.paired.results import describe_rounds
from perfguard.records.facts import fact
from perfguard.records.run import Round


def described(*rounds):
    entries = [Round(values_s=values, control_s=(), started_at=0.0) for values in rounds]
    return describe_rounds("x", entries, inner_loops=1, problem=None)


def test_the_median_of_the_rounds_medians_is_told():
    found = described((1e-3, 2e-3, 9e-3), (2e-3, 4e-3, 5e-3))
    assert (found.rounds, found.median_s, found.problem) == (2, pytest.approx(3e-3), None)


@pytest.mark.parametrize("value_s", [0.0, -1.0])
def test_a_recording_with_an_impossible_time_is_called_damaged(value_s):
    found = described((1e-3, 2e-3), (value_s, 1e-3))
    assert (found.rounds, found.median_s) == (0, None)
    assert found.problem == fact("case.zero_time")
