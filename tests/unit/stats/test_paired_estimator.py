from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from perfguard.errors import MeasurementError
from perfguard.stats.paired import block_effect, estimate_paired, from_standard_error, trimmed_blocks


def test_samples_are_paired_by_position():
    # Drift doubles the machine's time between samples; neighbours still differ by 1 %.
    baseline = [1.0, 2.0, 4.0]
    assert block_effect(baseline, [1.01 * t for t in baseline]).log_ratio == pytest.approx(math.log(1.01))


def test_a_burst_in_one_sample_of_ten_moves_the_block_by_nothing():
    candidate = [1.0] * 9 + [50.0]
    assert block_effect([1.0] * 10, candidate).log_ratio == 0.0


def test_unequal_counts_pair_the_common_prefix():
    assert block_effect([1.0, 1.0], [2.0, 2.0, 100.0]).log_ratio == pytest.approx(math.log(2))


def test_one_sample_is_a_pair():
    assert block_effect([1.0], [2.0]).log_ratio == pytest.approx(math.log(2))


@pytest.mark.parametrize(("baseline", "candidate"), [([], []), ([1.0], []), ([], [1.0])])
def test_no_pair_is_nan(baseline, candidate):
    assert math.isnan(block_effect(baseline, candidate).log_ratio)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("arm", [0, 1])
def test_what_is_no_time_is_refused(bad, arm):
    arms = [[1.0, 1.0], [1.0, 1.0]]
    arms[arm][1] = bad
    with pytest.raises(MeasurementError, match="sample 1 took"):
        block_effect(*arms)


@pytest.mark.parametrize("blocks", [3, 8, 11])
def test_few_blocks_give_the_plain_t_interval(blocks):
    values = np.random.default_rng(1).normal(0.01, 0.02, blocks)
    estimate = estimate_paired(values.tolist(), 0.9)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert estimate.log_ratio == pytest.approx(values.mean())
    assert (estimate.interval.lower, estimate.interval.upper) == pytest.approx((expected.low, expected.high))
    assert estimate.block_sd == pytest.approx(values.std(ddof=1))
    assert estimate.degrees_of_freedom == blocks - 1


def test_many_blocks_are_trimmed_as_yuen_does():
    values = np.random.default_rng(2).normal(0.01, 0.02, 24)
    estimate = estimate_paired(values.tolist(), 0.95)
    # scipy's own trimmed t-test (Yuen) against a constant sample, whose variance is zero.
    reference = stats.ttest_ind(values, np.zeros(24), equal_var=False, trim=2.5 / 24)
    assert estimate.log_ratio == pytest.approx(stats.trim_mean(values, 2 / 24))
    assert estimate.log_ratio / estimate.standard_error == pytest.approx(reference.statistic)
    assert estimate.degrees_of_freedom == pytest.approx(reference.df) == 19


def test_one_wild_block_among_twelve_does_not_hide_a_slowdown():
    values = [0.019, 0.02, 0.021, 0.02, 0.018, 0.022, 0.02, 0.019, 0.021, 0.02, 0.02, -0.9]
    estimate = estimate_paired(values, 0.95)
    assert estimate.interval.lower > 0.018


def test_nothing_is_trimmed_where_degrees_of_freedom_are_dear():
    assert [trimmed_blocks(n) for n in (2, 10, 11, 12, 19, 20, 30)] == [0, 0, 0, 1, 1, 2, 3]


def test_two_blocks_have_one_degree_of_freedom():
    estimate = estimate_paired([0.0, 0.02], 0.95)
    assert estimate.log_ratio == pytest.approx(0.01)
    assert estimate.standard_error == pytest.approx(0.01)
    assert estimate.degrees_of_freedom == 1
    assert estimate.interval.upper - 0.01 == pytest.approx(12.706 * 0.01, rel=1e-4)


@pytest.mark.parametrize(("values", "blocks"), [([], 0), ([math.nan], 0), ([0.3], 1), ([0.3, math.nan], 1)])
def test_without_two_blocks_nothing_is_known_of_the_variance(values, blocks):
    estimate = estimate_paired(values, 0.95)
    assert estimate.blocks == blocks
    assert (estimate.standard_error, estimate.degrees_of_freedom) == (math.inf, 0.0)
    assert math.isnan(estimate.block_sd)
    assert (estimate.interval.lower, estimate.interval.upper) == (-math.inf, math.inf)


def test_blocks_without_a_pair_are_left_out():
    assert estimate_paired([0.1, math.nan, 0.3], 0.95) == estimate_paired([0.1, 0.3], 0.95)


def test_identical_values_give_a_point():
    # 0.1 is no binary fraction: the mean's rounding must not pass for precision.
    estimate = estimate_paired([0.1] * 7, 0.95)
    assert estimate.standard_error == estimate.block_sd == 0
    assert estimate.interval.lower == estimate.interval.upper == estimate.log_ratio


def test_an_infinite_block_is_refused():
    with pytest.raises(MeasurementError, match="infinite"):
        estimate_paired([0.0, math.inf], 0.95)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_is_a_probability(level):
    with pytest.raises(ValueError, match="level"):
        estimate_paired([0.0, 0.1], level)


class TestWeights:
    """Blocks whose samples scatter more count for less; nothing else changes."""

    VALUES = (0.010, 0.012, 0.030, 0.011, 0.009, 0.013)

    def test_equal_variances_are_no_weights_at_all(self):
        assert estimate_paired(self.VALUES, 0.95, [1e-4] * 6) == estimate_paired(self.VALUES, 0.95)

    @pytest.mark.parametrize("blocks", [6, 14])
    def test_only_ratios_of_variances_matter(self, blocks):
        rng = np.random.default_rng(5)
        values, variances = rng.normal(0, 0.01, blocks), rng.uniform(1, 9, blocks)
        one, other = (estimate_paired(values, 0.95, scale * variances) for scale in (1e-6, 1e-4))
        assert one.log_ratio == pytest.approx(other.log_ratio)
        assert one.standard_error == pytest.approx(other.standard_error)

    def test_a_scattered_block_pulls_less(self):
        plain = estimate_paired(self.VALUES, 0.95)
        weighted = estimate_paired(self.VALUES, 0.95, [1, 1, 100, 1, 1, 1])
        assert abs(weighted.log_ratio - 0.011) < abs(plain.log_ratio - 0.011)
        assert weighted.standard_error < plain.standard_error
        assert weighted.degrees_of_freedom < plain.degrees_of_freedom

    @pytest.mark.parametrize(("blocks", "cut"), [(6, 0), (14, 1), (21, 2)])
    def test_it_is_the_weighted_trimmed_mean_with_its_robust_variance(self, blocks, cut):
        """HC2 over winsorised values, and Yuen's factor for what trimming takes; weights 1 / (own + 3 x median)."""
        rng = np.random.default_rng(8)
        values, variances = np.sort(rng.normal(0, 0.01, blocks)), rng.uniform(1, 9, blocks)
        weights = 1 / (variances + 3 * np.median(variances))
        inside = slice(cut, blocks - cut)
        winsorised = np.clip(values, values[cut], values[-cut - 1])
        residuals = winsorised - np.average(winsorised, weights=weights)
        spread = np.sum(weights**2 * residuals**2 / (1 - weights / weights.sum()))
        factor = (blocks - 1) / blocks * (blocks - 2 * cut) / (blocks - 2 * cut - 1)
        estimate = estimate_paired(values, 0.95, variances)
        assert estimate.log_ratio == pytest.approx(np.average(values[inside], weights=weights[inside]))
        assert estimate.standard_error == pytest.approx(math.sqrt(spread * factor) / weights[inside].sum())
        assert estimate.block_sd == pytest.approx(estimate.standard_error * math.sqrt(blocks))
        effective = weights.sum() ** 2 / np.sum(weights**2)
        assert estimate.degrees_of_freedom == pytest.approx(effective - 1 - 2 * cut)

    @pytest.mark.parametrize("blocks", [6, 14])
    def test_swapping_the_arms_only_turns_the_sign(self, blocks):
        rng = np.random.default_rng(6)
        values, variances = rng.normal(0.01, 0.01, blocks), rng.uniform(1, 9, blocks)
        one, other = estimate_paired(values, 0.95, variances), estimate_paired(-values, 0.95, variances)
        assert other.log_ratio == pytest.approx(-one.log_ratio)
        assert other.standard_error == pytest.approx(one.standard_error)

    def test_an_unknown_variance_counts_as_typical(self):
        known = estimate_paired(self.VALUES, 0.95, [1, 2, 3, 2, 2, 1])
        assert estimate_paired(self.VALUES, 0.95, [1, math.nan, 3, 2, 2, 1]) == known

    @pytest.mark.parametrize("variances", [[0.0] * 6, [math.nan] * 6, [math.inf] * 6])
    def test_variances_that_tell_nothing_are_no_weights(self, variances):
        assert estimate_paired(self.VALUES, 0.95, variances) == estimate_paired(self.VALUES, 0.95)

    def test_a_block_without_a_pair_takes_its_variance_along(self):
        with_gap = estimate_paired((0.01, math.nan, 0.03, 0.02), 0.95, [1.0, math.nan, 4.0, 1.0])
        assert with_gap == estimate_paired((0.01, 0.03, 0.02), 0.95, [1.0, 4.0, 1.0])


class TestVarianceOfABlock:
    def test_it_is_the_squared_error_of_the_trimmed_mean(self):
        rng = np.random.default_rng(7)
        samples = np.exp(rng.normal(0, 0.01, (3000, 2, 12)))
        effects = [block_effect(baseline, candidate) for baseline, candidate in samples]
        claimed = np.mean([effect.variance for effect in effects])
        assert np.var([effect.log_ratio for effect in effects]) == pytest.approx(claimed, rel=0.1)

    @pytest.mark.parametrize("pairs", [0, 1])
    def test_a_single_pair_has_none(self, pairs):
        assert math.isnan(block_effect([0.01] * pairs, [0.011] * pairs).variance)

    def test_it_does_not_know_which_arm_is_which(self):
        one, other = [0.010, 0.011, 0.014, 0.010], [0.012, 0.011, 0.013, 0.015]
        assert block_effect(one, other).variance == pytest.approx(block_effect(other, one).variance)

    @pytest.mark.parametrize(
        ("log_ratios", "effect", "variance"),
        [
            ([0.1, 0.3], 0.2, 0.02 * 1 / (2 * 1)),
            ([0.4, 0.1, 0.2, 0.9, 0.3], 0.3, 0.01 * 4 / (3 * 2)),  # winsorised: 0.2, 0.2, 0.3, 0.4, 0.4
            ([0.9, 0.1, 0.2, 0.3, 0.4, 0.8, 0.5, 0.6, 0.7, 7.0], 0.55, 0.425 / (6 * 5)),  # 0.3 … 0.8
        ],
    )
    def test_a_fifth_of_the_pairs_is_cut_at_each_end(self, log_ratios, effect, variance):
        found = block_effect([1.0] * len(log_ratios), np.exp(log_ratios))
        assert found.log_ratio == pytest.approx(effect)
        assert found.variance == pytest.approx(variance, rel=1e-4)


@pytest.mark.parametrize(("standard_error", "kept"), [(0.99e-12, 0.0), (1.01e-12, 1.01e-12)])
def test_a_standard_error_below_rounding_is_none(standard_error, kept):
    found = from_standard_error(0.1, standard_error, block_sd=1.0, blocks=5, degrees_of_freedom=4.0, level=0.95)
    assert (found.standard_error, found.block_sd) == (kept, 1.0 if kept else 0.0)
    assert found.interval.upper - 0.1 == pytest.approx(2.776 * kept, abs=1e-15)
