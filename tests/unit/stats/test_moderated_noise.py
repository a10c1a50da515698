from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from perfguard.stats.moderated import MIN_SERIES, estimate_noise, mean_differences, noise_of_sums, prior_of_sums
from tests.many_series import series


def judged(deltas, levels, *, extra):
    noise = estimate_noise(deltas, levels, np.ones(levels.size, dtype=np.bool_))
    return mean_differences(deltas, levels, noise, level=0.95, extra_error=np.full(levels.size, extra))


def test_few_series_have_students_t():
    rng = np.random.default_rng(1)
    levels = np.ones(MIN_SERIES - 1)
    deltas = series(rng, 5, levels)
    found = judged(deltas, levels, extra=0.0)
    expected = stats.ttest_1samp(deltas, 0.0)
    np.testing.assert_allclose(found.p, expected.pvalue)
    low, high = expected.confidence_interval(0.95)
    np.testing.assert_allclose(found.lower, low)
    np.testing.assert_allclose(found.upper, high)


@pytest.mark.parametrize("pairs", [0, 1])
def test_one_pair_says_nothing_of_noise(pairs):
    deltas = np.ones((max(pairs, 1), 30))
    found = judged(deltas, np.ones(30), extra=0.0)
    assert (found.mean == 1).all()
    assert (found.p == 1).all()
    assert (found.lower == -math.inf).all()
    assert (found.upper == math.inf).all()


def test_two_pairs_say_a_little():
    found = judged(np.array([[1.0, 1.0], [1.1, 1.3]]), np.ones(2), extra=0.0)
    expected = stats.ttest_1samp([[1.0, 1.0], [1.1, 1.3]], 0.0)
    np.testing.assert_allclose(found.p, np.where(expected.pvalue > 0.05, expected.pvalue, found.p))
    low, high = expected.confidence_interval(0.95)
    np.testing.assert_allclose(found.lower, low)
    np.testing.assert_allclose(found.upper, high)


def test_series_of_one_noise_are_judged_as_if_it_were_known():
    rng = np.random.default_rng(2)
    levels = np.exp(rng.normal(0, 2, 2000))
    noise = estimate_noise(series(rng, 4, levels), levels, np.ones(levels.size, dtype=np.bool_))
    np.testing.assert_allclose(noise.variance, (0.03 * levels) ** 2, rtol=0.5)
    assert noise.prior_degrees > 100


def test_series_that_differ_in_noise_are_drawn_together_only_so_far():
    rng = np.random.default_rng(3)
    levels = np.exp(rng.normal(0, 2, 3000))
    noise = estimate_noise(series(rng, 4, levels, degrees=4), levels, np.ones(levels.size, dtype=np.bool_))
    assert noise.prior_degrees == pytest.approx(4, rel=0.35)


@pytest.mark.parametrize("pairs", [2, 4, 8])
@pytest.mark.parametrize("degrees", [4.0, math.inf])
@pytest.mark.parametrize("shared_sd", [0.0, 0.01, 0.3], ids=["no shift", "little shift", "all shift"])
def test_series_without_a_difference_are_seldom_called_different(pairs, degrees, shared_sd):
    rng = np.random.default_rng([4, pairs, int(shared_sd * 100)])
    p = []
    for _ in range(1000):
        levels = np.exp(rng.normal(0, 1.5, 40))
        p.append(judged(series(rng, pairs, levels, degrees=degrees, shared_sd=shared_sd), levels, extra=0.0).p)
    # Where series share all their noise, these are a thousand trials and no more.
    assert np.mean(np.array(p) <= 0.05) <= stats.binom.ppf(0.999, 1000, 0.05) / 1000
    if shared_sd < 0.3:
        assert np.mean(np.array(p) <= 0.002) <= 0.003


def test_a_pair_that_is_slower_as_a_whole_hides_no_single_difference():
    rng = np.random.default_rng(5)
    levels = np.ones(100)
    found, plain = 0, 0
    for _ in range(100):
        deltas = series(rng, 4, levels, relative_sd=0.01, shared_sd=0.01)
        deltas[:, 0] += 0.1
        found += judged(deltas, levels, extra=0.0).p[0] < 1e-3
        plain += stats.ttest_1samp(deltas[:, 0], 0.0).pvalue < 1e-3
    assert found >= 80
    assert plain < found


def test_a_shift_of_all_series_is_a_difference_of_each():
    rng = np.random.default_rng(6)
    levels = np.exp(rng.normal(0, 1, 200))
    deltas = series(rng, 6, levels, relative_sd=0.01, shared_sd=0.005) + 0.2 * levels
    assert (judged(deltas, levels, extra=0.0).p < 1e-3).mean() > 0.95


def summed(deltas, levels, groups):
    noise = estimate_noise(deltas, levels, np.ones(levels.size, dtype=np.bool_))
    prior = prior_of_sums(deltas, levels, noise, groups)
    return mean_differences(
        np.stack([deltas[:, group].sum(axis=1) for group in groups], axis=1),
        np.array([levels[group].sum() for group in groups]),
        noise_of_sums(deltas, levels, noise, groups, prior),
        level=0.95,
        extra_error=np.zeros(len(groups)),
    )


@pytest.mark.parametrize("together_sd", [0.0, 0.01, 0.03], ids=["independent", "alike", "very alike"])
@pytest.mark.parametrize("groups", [20, 5], ids=["many groups", "few groups"])
def test_intervals_of_sums_cover_whatever_their_series_have_in_common(groups, together_sd):
    rng = np.random.default_rng([7, groups, int(together_sd * 100)])
    parts = [np.arange(start, start + 10) for start in range(0, 10 * groups, 10)]
    covered = []
    for _ in range(300):
        levels = np.exp(rng.normal(0, 1, 10 * groups))
        deltas = series(rng, 4, levels, degrees=6, shared_sd=0.01)
        deltas += levels * together_sd * rng.standard_normal((4, groups)).repeat(10, axis=1)
        found = summed(deltas, levels, [*parts, np.array([3])])
        covered.append((found.lower <= 0) & (found.upper >= 0))
    assert np.mean(covered) >= 0.93


def test_many_groups_tell_each_other_how_noisy_a_sum_is():
    rng = np.random.default_rng(8)
    levels = np.ones(400)
    parts = [np.arange(start, start + 10) for start in range(0, 400, 10)]
    deltas = series(rng, 4, levels)
    many, few = summed(deltas, levels, parts), summed(deltas, levels, parts[:5])
    assert np.median((many.upper - many.lower)[:5]) < 0.8 * np.median(few.upper - few.lower)


def test_an_error_that_all_pairs_share_widens_the_interval():
    rng = np.random.default_rng(9)
    levels = np.ones(50)
    deltas = series(rng, 4, levels)
    wide, narrow = judged(deltas, levels, extra=1.0), judged(deltas, levels, extra=0.0)
    assert ((wide.upper - wide.lower) > 10 * (narrow.upper - narrow.lower)).all()


def test_series_without_noise_are_certain_but_rounding_is_no_difference():
    levels = np.ones(30)
    deltas = np.zeros((4, 30))
    deltas[:, 0], deltas[:, 1] = 0.5, 1e-12
    found = judged(deltas, levels, extra=0.0)
    assert found.p[0] == 0
    assert (found.p[1:] == 1).all()
    assert found.lower[0] == found.upper[0] == 0.5


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 6), st.integers(1, 40), st.integers(0, 2**16), st.floats(0, 1))
def test_whatever_the_series_the_answer_is_in_order(pairs, count, seed, still):
    rng = np.random.default_rng(seed)
    levels = np.exp(rng.normal(0, 5, count)) * (rng.random(count) > 0.1)
    deltas = series(rng, pairs, levels) * (rng.random(count) > still)
    found = judged(deltas, levels, extra=0.0)
    assert ((found.p >= 0) & (found.p <= 1)).all()
    assert (found.lower <= found.mean).all()
    assert (found.mean <= found.upper).all()
    assert ((found.p <= 0.05) <= ((found.lower >= 0) | (found.upper <= 0))).all()
