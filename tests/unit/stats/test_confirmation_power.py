"""How likely a real slowdown is confirmed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from perfguard.records.verdict import Policy
from perfguard.stats.confirming import (
    CONFIRM_LEVEL,
    CONFIRMATION_ANALYSES,
    analyses_of,
    confirmation_power,
    p_over_analyses,
)


def test_the_level_is_the_policys():
    assert Policy().confirm_level == CONFIRM_LEVEL


def test_without_a_slowdown_the_analyses_together_confirm_as_often_as_the_level_says():
    assert confirmation_power(0.0) == pytest.approx(CONFIRM_LEVEL, abs=0.01)
    assert confirmation_power(-1.0) == confirmation_power(0.0)


def test_larger_slowdowns_are_confirmed_more_often():
    chances = [confirmation_power(effect) for effect in np.linspace(0, 8, 40)]
    assert chances == sorted(chances)
    assert chances[-1] == 1.0


@pytest.mark.parametrize("effect", [0.3, 0.6, 0.9])
def test_the_chance_is_that_of_the_sequential_test(effect):
    rng, trials, found = np.random.default_rng(9), 400, 0
    for values in effect + rng.standard_normal((trials, CONFIRMATION_ANALYSES[-1])):
        p_values = [
            stats.ttest_1samp(values[:count], 0, alternative="greater").pvalue for count in CONFIRMATION_ANALYSES
        ]
        found += p_over_analyses(p_values, CONFIRMATION_ANALYSES) <= CONFIRM_LEVEL
    chance = confirmation_power(effect)
    assert found / trials == pytest.approx(chance, abs=4 * (chance * (1 - chance) / trials) ** 0.5)


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [(1, (1,)), (4, (4,)), (5, (5,)), (9, (5,)), (10, (5, 10)), (20, (5, 10, 20)), (30, (5, 10, 20))],
)
def test_analyses_of_so_many_blocks(blocks, expected):
    assert analyses_of(blocks) == expected
