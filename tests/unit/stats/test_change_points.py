"""Jumps of a series' level, beside what only looks like one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from perfguard.stats.change_points import _inflation, _proposed, change_points, noise_sd, without_outliers

SD = 0.01
COSINE = math.cos(2 * math.pi * 6 / 41)


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


def test_two_levels_of_five_points_are_enough():
    assert places([0.0] * 5 + [1.0] * 5) == [5]


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
    assert noise_sd(np.zeros(10)) == 1e-5
    assert noise_sd(noise(6, 2000) + 3.0 * np.arange(2000)) == pytest.approx(SD, rel=0.1)


def test_an_outlier_is_moved_to_three_deviations_from_its_neighbours():
    values = np.full(21, 5.0)
    values[[4, 16]] = 6.0, 4.0
    expected = np.full(21, 5.0)
    expected[[4, 16]] = 5.3, 4.7
    assert without_outliers(values, 0.1) == pytest.approx(expected)


@pytest.mark.parametrize(("height", "proposed"), [(1.5, []), (1.6, [10])])
def test_a_jump_is_proposed_where_it_saves_four_times_the_logarithm_of_the_points(height, proposed):
    """Ten points each at two levels: one level leaves squares of 5 times the squared height, of 4 log 20 = 11.98."""
    assert _proposed(np.repeat([0.0, height], 10)) == proposed


def test_the_least_certain_jump_has_a_deviate_of_four():
    values = noise(7, 120)
    found = [change_points(values + np.repeat([0.0, step], 60)) for step in np.linspace(0.005, 0.03, 26)]
    certain = [jump.z for jumps in found for jump in jumps]
    assert 4 < min(certain) < 5


def by_definition(values, place, start, end):
    """A jump's size, interval and deviate by ordinary least squares, the variance enlarged for alike neighbours."""
    values, times = without_outliers(values, noise_sd(values)), np.arange(start, end) - place
    design = np.column_stack([np.ones(len(times)), times, times >= 0])
    fitted, _, _, _ = np.linalg.lstsq(design, values[start:end], rcond=None)
    left = values[start:end] - design @ fitted
    correlation = float(np.clip((left[:-1] * left[1:]).sum() / (left**2).sum(), 0.0, 0.9))
    variance = (left**2).sum() / (len(left) - 3) * (1 + correlation) / (1 - correlation)
    error = math.sqrt(variance * np.linalg.inv(design.T @ design)[2, 2])
    half = stats.t.ppf(0.975, len(left) - 3) * error
    z = math.copysign(stats.norm.isf(stats.t.sf(abs(fitted[2]) / error, len(left) - 3)), fitted[2])
    return place, fitted[2], fitted[2] - half, fitted[2] + half, z


def alike(seed, points):
    """Noise without outliers whose neighbours are alike."""
    drawn = np.random.default_rng(seed).uniform(-SD, SD, points + 1)
    return drawn[1:] + 0.5 * drawn[:-1]


@pytest.mark.parametrize(
    ("place", "points", "window"),
    [(30, 60, (0, 60)), (30, 200, (0, 70)), (170, 200, (130, 200)), (100, 200, (60, 140))],
    ids=["a short series", "early", "late", "in the middle"],
)
def test_a_jump_is_judged_by_a_regression_on_forty_points_before_and_after(place, points, window):
    values = alike(8, points)
    values[place:] += 0.08
    (jump,) = change_points(values)
    found = (jump.index, jump.log_ratio, jump.lower, jump.upper, jump.z)
    assert found == pytest.approx(by_definition(values, place, *window))


@pytest.mark.parametrize(("place", "window"), [(30, (0, 70)), (100, (60, 140)), (170, (130, 200))])
@pytest.mark.parametrize("slope", [0.001, -0.001])
def test_what_a_drift_proposes_is_taken_back_and_the_real_jump_judged_without_it(place, window, slope):
    values = alike(9, 200) + slope * np.arange(200)
    values[place:] += 0.1
    assert len(_proposed(values / noise_sd(values))) > 2
    (jump,) = change_points(values)
    found = (jump.index, jump.log_ratio, jump.lower, jump.upper, jump.z)
    assert found == pytest.approx(by_definition(values, place, *window))


@pytest.mark.parametrize(
    ("residuals", "factor"),
    [
        (np.zeros(9), 1.0),
        (np.array([1.0, -1.0] * 20), 1.0),
        (0.01 * np.sin(2 * np.pi * 6 * np.arange(1, 41) / 41), (1 + COSINE) / (1 - COSINE)),
        (0.01 * np.sin(2 * np.pi * np.arange(1, 41) / 41), 19.0),
    ],
    ids=["none", "unlike", "alike", "more alike than is reckoned with"],
)
def test_alike_neighbours_say_less(residuals, factor):
    """Waves that end where they began have the cosine of their step as correlation."""
    assert _inflation(residuals) == pytest.approx(factor)
