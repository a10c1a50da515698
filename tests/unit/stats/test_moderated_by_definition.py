"""Moderated variances and their tests, equal to what the definitions give the long way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from perfguard.stats.moderated import (
    SharedNoise,
    VariancePrior,
    _trigamma_inverse,
    estimate_noise,
    mean_differences,
    noise_of_sums,
    prior_of_sums,
)
from tests.many_series import series


def every(levels):
    return np.ones(levels.size, dtype=np.bool_)


def own_noise(deltas, levels):
    """Without the shift, as the definition has it."""
    shift = np.median(deltas / levels, axis=1)
    return shift, (deltas - shift[:, None] * levels).var(axis=0, ddof=1)


def drawn(own, degrees, prior, levels):
    expected = np.exp(prior.intercept) * levels**prior.slope
    return (prior.degrees * expected + degrees * own) / (prior.degrees + degrees)


class TestTheLawOfVariances:
    """Seen through the variances of many groups of two series, which have it alone."""

    @staticmethod
    def prior_of(variances, levels, pairs=4):
        """The law that fits groups with these variances, whose series promise the square of `levels`."""
        rng = np.random.default_rng(11)
        pattern = rng.standard_normal((pairs, len(variances)))
        pattern = (pattern - pattern.mean(axis=0)) / pattern.std(axis=0, ddof=1) * np.sqrt(variances)
        deltas = np.repeat(pattern / 2, 2, axis=1)
        noise = SharedNoise(
            pairs=pairs,
            shift=np.zeros(pairs),
            variance=np.repeat(np.square(levels) / 2, 2),
            degrees=np.full(2 * len(variances), 9.0),
            prior_degrees=6.0,
        )
        groups = [np.array([2 * group, 2 * group + 1]) for group in range(len(variances))]
        return prior_of_sums(deltas, np.ones(2 * len(variances)), noise, groups)

    @staticmethod
    def expected_prior(variances, levels, degrees, slope):
        residual = np.log(variances) - slope * np.log(levels) - special.digamma(degrees / 2) + np.log(degrees / 2)
        scatter = special.polygamma(1, degrees / 2)
        kurtosis = special.polygamma(3, degrees / 2) / scatter**2
        excess = (1 + np.sqrt((2 + kurtosis) / residual.size)) * residual.var(ddof=2) - scatter
        return residual, excess

    @pytest.mark.parametrize("pairs", [3, 4, 7])
    @pytest.mark.parametrize(("true_slope", "slope"), [(1.2, None), (-1.0, 0.0), (3.0, 2.0)])
    def test_it_is_the_line_of_log_variances_between_no_slope_and_two(self, pairs, true_slope, slope):
        rng = np.random.default_rng(12)
        levels = np.exp(rng.normal(0, 1, 30))
        variances = 0.3 * levels**true_slope * np.exp(rng.normal(0, 1.8, 30))
        prior = self.prior_of(variances, levels, pairs)
        line = np.polyfit(np.log(levels), np.log(variances), 1)[0] if slope is None else slope
        residual, excess = self.expected_prior(variances, levels, pairs - 1, line)
        assert prior.slope == pytest.approx(line)
        assert excess > 0
        assert special.polygamma(1, prior.degrees / 2) == pytest.approx(excess, rel=1e-6)
        middle = residual.mean() + special.digamma(prior.degrees / 2) - math.log(prior.degrees / 2)
        assert prior.intercept == pytest.approx(middle)
        np.testing.assert_allclose(prior.draw(np.zeros(levels.size), 0.0, levels), np.exp(middle) * levels**line)

    def test_variances_that_scatter_no_more_than_chance_are_one(self):
        levels = np.exp(np.linspace(-1, 1, 20))
        prior = self.prior_of(0.5 * levels, levels)
        assert prior.degrees == 3 * 19  # as many as all of them have together
        assert prior.slope == pytest.approx(1.0)

    def test_a_scatter_little_above_chance_cannot_be_surer_than_all_series(self):
        rng = np.random.default_rng(13)
        noise = rng.standard_normal(20)
        levels = np.ones(20)
        _, at_one = self.expected_prior(np.exp(noise), levels, 3, 0.0)
        scatter = special.polygamma(1, 1.5)
        # Scaled so that the excess is a millionth: trigamma would want two million degrees of freedom.
        scale = np.sqrt((scatter + 1e-6) / (at_one + scatter))
        variances = np.exp(scale * noise)
        assert 0 < self.expected_prior(variances, levels, 3, 0.0)[1] < 1e-5
        prior = self.prior_of(variances, levels)
        assert (prior.degrees, prior.slope) == (3 * 19, 0.0)

    def test_too_few_groups_say_nothing_and_those_without_noise_do_not_count(self):
        levels = np.exp(np.linspace(-1, 1, 12))
        assert self.prior_of(levels, levels) is not None
        assert self.prior_of(levels, levels, pairs=2) is not None
        assert self.prior_of(levels[1:], levels[1:]) is None
        still = np.where(np.arange(12) == 0, 0.0, levels)
        assert self.prior_of(still, levels) is None
        assert self.prior_of(levels, still) is None

    @pytest.mark.parametrize("value", [1e-9, 1e-6, 1e-4, 0.3, 1.0, 20.0, 1e6, 1e8])
    def test_the_inverse_of_trigamma_is_one(self, value):
        assert special.polygamma(1, _trigamma_inverse(value)) == pytest.approx(value, rel=1e-3)


class TestTheNoiseOfSeries:
    def test_it_is_drawn_to_that_of_series_of_its_size(self):
        rng = np.random.default_rng(14)
        levels = np.exp(rng.normal(0, 1, 25))
        deltas = series(rng, 4, levels, degrees=3, shared_sd=0.05)
        noise = estimate_noise(deltas, levels, every(levels))
        shift, own = own_noise(deltas, levels)
        np.testing.assert_allclose(noise.shift, shift)
        assert noise.pairs == 4
        assert 0 < noise.prior_degrees < 3 * 24
        np.testing.assert_allclose(noise.degrees, 3 + noise.prior_degrees)
        # One line in the level's logarithm explains all that the drawing added.
        expected = (noise.variance * noise.degrees - 3 * own) / noise.prior_degrees
        slope, intercept = np.polyfit(np.log(levels), np.log(expected), 1)
        prior = VariancePrior(intercept=intercept, slope=slope, degrees=noise.prior_degrees)
        np.testing.assert_allclose(noise.variance, drawn(own, 3, prior, levels))
        assert 1.0 < slope < 2.0 + 1e-9

    def test_series_that_say_nothing_of_others_keep_their_plain_variance(self):
        rng = np.random.default_rng(15)
        levels = np.append(np.exp(rng.normal(0, 1, 20)), [0.0, 1e-6])
        deltas = series(rng, 4, np.maximum(levels, 1e-6))
        informative = np.arange(22) < 21
        noise = estimate_noise(deltas, levels, informative)
        apart = estimate_noise(deltas[:, :20], levels[:20], every(levels[:20]))
        np.testing.assert_allclose(noise.variance[:20], apart.variance)
        np.testing.assert_allclose(noise.shift, apart.shift)
        plain = (deltas - apart.shift[:, None] * levels).var(axis=0, ddof=1)
        np.testing.assert_allclose(noise.variance[20:], plain[20:])
        assert (noise.degrees[20:] == 3).all()
        assert noise.prior_degrees == apart.prior_degrees > 0

    def test_twelve_series_are_enough_and_eleven_are_not(self):
        rng = np.random.default_rng(16)
        levels = np.exp(rng.normal(0, 1, 12))
        deltas = series(rng, 4, levels, shared_sd=0.1)
        assert estimate_noise(deltas, levels, every(levels)).prior_degrees > 0
        few = estimate_noise(deltas[:, 1:], levels[1:], every(levels[1:]))
        assert (few.prior_degrees, few.shift.tolist()) == (0.0, [0.0] * 4)
        np.testing.assert_allclose(few.variance, deltas[:, 1:].var(axis=0, ddof=1))
        assert (few.degrees == 3).all()

    def test_two_pairs_are_enough_and_one_is_not(self):
        rng = np.random.default_rng(17)
        levels = np.ones(20)
        two = estimate_noise(series(rng, 2, levels), levels, every(levels))
        assert np.isfinite(two.variance).all()
        one = estimate_noise(series(rng, 1, levels), levels, every(levels))
        assert (one.pairs, one.shift.tolist(), one.prior_degrees) == (1, [0.0], 0.0)
        assert np.isinf(one.variance).all()
        assert (one.degrees == 0).all()


class TestTheNoiseOfSums:
    def test_it_is_seen_in_the_sums_and_drawn_to_what_their_series_promise(self):
        rng = np.random.default_rng(18)
        levels = np.exp(rng.normal(0, 1, 60))
        deltas = series(rng, 4, levels, degrees=4, shared_sd=0.05)
        deltas += 0.03 * levels * rng.standard_normal((4, 20)).repeat(3, axis=1)
        noise = estimate_noise(deltas, levels, every(levels))
        groups = [np.arange(3 * group, 3 * group + 3) for group in range(20)]
        prior = prior_of_sums(deltas, levels, noise, groups)
        found = noise_of_sums(deltas, levels, noise, [*groups, np.array([7])], prior)
        sums = np.stack([deltas[:, group].sum(axis=1) - noise.shift * levels[group].sum() for group in groups], axis=1)
        promised = np.sqrt([noise.variance[group].sum() for group in groups])
        own = sums.var(axis=0, ddof=1)
        np.testing.assert_allclose(found.variance[:20], drawn(own, 3, prior, promised))
        np.testing.assert_allclose(found.degrees[:20], 3 + prior.degrees)
        assert (found.variance[20], found.degrees[20]) == (noise.variance[7], noise.degrees[7])
        assert (found.pairs, found.prior_degrees) == (4, noise.prior_degrees)
        np.testing.assert_array_equal(found.shift, noise.shift)

        single = np.array([7])
        assert prior_of_sums(deltas, levels, noise, [single, *groups, single]) == prior
        first, *others = noise_of_sums(deltas, levels, noise, [single, *groups], prior).variance
        assert first == noise.variance[7]
        np.testing.assert_array_equal(others, found.variance[:20])

        plain = noise_of_sums(deltas, levels, noise, groups, None)
        np.testing.assert_allclose(plain.variance, own)
        assert (plain.degrees == 3).all()

    def test_a_sum_that_promises_no_noise_is_as_noisy_as_it_is(self):
        deltas = np.array([[1.0, 2.0], [3.0, 2.0]])
        noise = SharedNoise(pairs=2, shift=np.zeros(2), variance=np.zeros(2), degrees=np.ones(2), prior_degrees=0.0)
        prior = VariancePrior(intercept=5.0, slope=1.0, degrees=40.0)
        found = noise_of_sums(deltas, np.ones(2), noise, [np.array([0, 1])], prior)
        assert (found.variance.tolist(), found.degrees.tolist()) == ([2.0], [1.0])

    def test_one_pair_leaves_it_unknown(self):
        levels = np.ones(40)
        deltas = np.ones((1, 40))
        noise = estimate_noise(deltas, levels, every(levels))
        groups = [np.array([2 * group, 2 * group + 1]) for group in range(20)]
        assert prior_of_sums(deltas, levels, noise, groups) is None
        found = noise_of_sums(deltas, levels, noise, groups, None)
        assert np.isinf(found.variance).all()
        assert (found.degrees == 0).all()


class TestMeanDifferences:
    LEVELS = np.array([1.0, 2.0, 4.0, 1.0, 0.5])
    DELTAS = np.array([[0.3, 0.1, -2.0, 0.0, 0.2], [0.1, 0.5, -1.0, 0.0, 0.1], [0.2, 0.0, -1.5, 0.0, 0.3]])
    NOISE = SharedNoise(
        pairs=3,
        shift=np.array([0.02, -0.03, 0.04]),
        variance=np.array([0.01, 0.04, 0.02, 0.01, 0.003]),
        degrees=np.array([2.0, 7.0, 5.0, 2.0, 4.0]),
        prior_degrees=3.0,
    )
    EXTRA = np.array([0.0, 0.03, 0.1, 0.0, 0.01])

    @pytest.mark.parametrize("level", [0.9, 0.95])
    def test_the_shift_and_the_series_own_noise_both_count(self, level):
        found = mean_differences(self.DELTAS, self.LEVELS, self.NOISE, level=level, extra_error=self.EXTRA)
        mean = self.DELTAS.mean(axis=0)
        shared = self.LEVELS**2 * self.NOISE.shift.var(ddof=1) / 3
        own = self.NOISE.variance / 3 + self.EXTRA**2
        quantile = 0.5 + level / 2
        half_width = np.sqrt(
            stats.t.ppf(quantile, 2) ** 2 * shared + stats.t.ppf(quantile, self.NOISE.degrees) ** 2 * own
        )
        degrees = (shared + own) ** 2 / (shared**2 / 2 + own**2 / self.NOISE.degrees)
        p = 2 * stats.t.sf(np.abs(mean) / np.sqrt(shared + own), degrees)
        np.testing.assert_allclose(found.mean, mean)
        np.testing.assert_allclose(found.lower, mean - half_width)
        np.testing.assert_allclose(found.upper, mean + half_width)
        is_clear = np.abs(mean) > half_width
        assert is_clear.any()
        assert not is_clear.all()
        np.testing.assert_allclose(found.p, np.where(is_clear, p, np.maximum(p, 1 - level)))
        assert (found.p[~is_clear] > 1 - level).all()

    def test_without_noise_only_rounding_is_no_difference(self):
        still = SharedNoise(
            pairs=3, shift=np.zeros(3), variance=np.zeros(2), degrees=np.array([2.0, 2.0]), prior_degrees=0.0
        )
        levels = np.array([4.0, 4.0])
        deltas = np.tile([4.0e-9, 4.1e-9], (3, 1))
        found = mean_differences(deltas, levels, still, level=0.95, extra_error=np.zeros(2))
        assert found.p.tolist() == [1.0, 0.0]
