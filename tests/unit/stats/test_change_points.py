"""Jumps of a series' level, beside what only looks like one."""

from __future__ import annotations

import numpy as np
import pytest

from perfguard.stats.change_points import change_points, noise_sd

SD = 0.01


def noise(seed, points):
    return np.random.default_rng(seed).normal(0, SD, points)


def places(values):
    return [jump.index for jump in change_points(values)]


def test_each_jump_is_found_with_its_size_and_an_interval():
    values = noise(1, 150)
    values[50:] += 0.06
    values[100:] -= 0.09
    first, second = change_points(values)
    assert (abs(first.index - 50), abs(second.index - 100)) <= (1, 1)
    assert first.lower < 0.06 < first.upper
    assert second.lower < -0.09 < second.upper
    assert first.lower > 0 > second.upper
    assert first.z > 4
    assert second.z < -4


@pytest.mark.parametrize("seed", range(5))
def test_noise_has_none(seed):
    assert places(noise(seed, 400)) == []


def test_a_drift_has_none():
    assert places(noise(2, 300) + np.linspace(0, 0.08, 300)) == []


def test_up_to_three_slow_runs_are_outliers():
    values = noise(3, 100)
    values[40:43] += 0.3
    assert places(values) == []


def test_a_jump_below_half_a_percent_does_not_count_however_sure():
    values = noise(4, 200) / 100
    values[100:] += 0.004
    assert places(values) == []
    values[100:] += 0.004
    assert places(values) == [100]


@pytest.mark.parametrize("points", [0, 1, 9])
def test_two_levels_need_ten_points(points):
    values = np.zeros(points)
    values[points // 2 :] = 1.0
    assert places(values) == []


def test_exact_values_have_the_noise_of_a_clock():
    values = np.zeros(20)
    assert places(values) == []
    values[10:] = 0.02
    (jump,) = change_points(values)
    assert jump.index == 10
    assert jump.log_ratio == pytest.approx(0.02)
    assert jump.lower < 0.02 < jump.upper


def test_five_points_of_a_new_level_are_enough():
    values = noise(5, 60)
    values[55:] += 8 * SD
    assert places(values) == [55]


def test_the_noise_is_that_between_neighbours_whatever_the_levels():
    values = noise(6, 2000)
    values[1000:] += 5.0
    assert noise_sd(values) == pytest.approx(SD, rel=0.1)
    assert noise_sd(np.zeros(10)) > 0
