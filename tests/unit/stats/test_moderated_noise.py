from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from perfguard.stats.moderated import (
    MIN_SERIES,
    SharedNoise,
    VariancePrior,
    _trigamma_inverse,
    estimate_noise,
    mean_differences,
    noise_of_sums,
    prior_of_sums,
)


def series(rng, pairs, levels, *, relative_sd=0.03, degrees=math.inf, shared_sd=0.0):
    """Differences of arms that are alike; true variances scatter as scaled inverse chi-squared ones do."""
    spread = 1.0 if math.isinf(degrees) else np.sqrt(degrees / rng.chisquare(degrees, levels.size))
    own = relative_sd * spread * rng.standard_normal((pairs, levels.size))
    return levels * (own + shared_sd * rng.standard_normal((pairs, 1)))


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
