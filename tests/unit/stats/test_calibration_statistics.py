from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from perfguard.stats.calibration import (
    PlaceboSpread,
    autocorrelation,
    intraclass_correlation,
    placebo_spread,
    pooled_spread,
    upper_bound,
)
from perfguard.stats.paired import SAMPLE_TRIM, estimate_paired, trimmed_mean
from tests.changed_values import replace


def sample_variance(values, trim):
    """Of one sample, as far as the mean of them feels it."""
    return len(values) * trimmed_mean(np.asarray(values), trim)[1]


class TestTheBoundOfARate:
    @pytest.mark.parametrize(
        ("count", "trials", "bound"),
        [
            (0, 35, 0.0820),
            (0, 299, 0.00997),
            (1, 473, 0.00999),
            (0, 1, 0.95),
            (2, 10, 0.5069),
            (0, 0, 1.0),
            (5, 5, 1.0),
        ],
    )
    def test_matches_the_tables(self, count, trials, bound):
        assert upper_bound(count, trials) == pytest.approx(bound, rel=2e-3)

    def test_is_the_rate_at_which_so_few_are_a_one_in_twenty_event(self):
        assert stats.binom.cdf(3, 40, upper_bound(3, 40)) == pytest.approx(0.05)

    def test_refuses_more_events_than_trials(self):
        with pytest.raises(ValueError, match="3 events in 2 trials"):
            upper_bound(3, 2)


class TestThePooledSpread:
    def test_of_one_gate_is_its_block_sd_with_the_chi_squared_interval(self):
        values = [0.9, 1.1, 1.0, 1.2, 0.8]
        spread = pooled_spread([values])
        assert spread.sd == pytest.approx(np.std(values, ddof=1))
        assert spread.interval.lower == pytest.approx(spread.sd * math.sqrt(4 / stats.chi2.ppf(0.975, 4)))
        assert spread.interval.upper == pytest.approx(spread.sd * math.sqrt(4 / stats.chi2.ppf(0.025, 4)))

    def test_weighs_gates_by_degrees_of_freedom_and_ignores_their_levels(self):
        a, b = [1.0, 2.0, 3.0], [10.0, 14.0, 12.0, 11.0, 13.0]
        assert pooled_spread([a, b]).sd == pytest.approx(math.sqrt((2 * 1.0 + 4 * 2.5) / 6))

    def test_uses_the_same_robust_spread_as_the_gate(self):
        values = [*np.linspace(-0.01, 0.01, 19), 0.5]
        assert pooled_spread([values]).sd == pytest.approx(estimate_paired(values, 0.95).block_sd)

    def test_wild_blocks_widen_its_interval(self):
        calm = list(np.linspace(-1, 1, 11))
        wild = [*calm[1:], 8.0]
        calm_width, wild_width = (
            s.interval.upper / s.interval.lower for s in (pooled_spread([calm]), pooled_spread([wild]))
        )
        assert wild_width > 1.3 * calm_width

    @pytest.mark.parametrize("gates", [[], [[0.1]]])
    def test_is_unknown_without_two_blocks(self, gates):
        spread = pooled_spread(gates)
        assert math.isnan(spread.sd)
        assert spread.interval.upper == math.inf

    def test_leaves_gates_of_one_block_out_and_takes_those_of_two(self):
        assert pooled_spread([[0.1, 0.3], [7.0]]) == pooled_spread([[0.1, 0.3]])
        assert pooled_spread([[0.1, 0.3]]).sd == pytest.approx(math.sqrt(0.02))
        assert pooled_spread([[0.1], []]).interval.lower == 0.0

    def test_its_interval_has_fewer_degrees_of_freedom_the_heavier_the_tails(self):
        gates = [np.array([0.0, 0.1, -0.1, 0.05, 2.0]), np.array([5.0, 5.1, 4.9, 5.0]), np.array([1.0, 1.1])]
        found = pooled_spread(gates, 0.9)
        scaled = np.concatenate([(g - g.mean()) * math.sqrt(g.size / (g.size - 1)) for g in gates])
        kurtosis = np.mean(scaled**4) / np.mean(scaled**2) ** 2 - 3
        assert kurtosis > 0.5
        effective = (4 + 3 + 1) / (1 + kurtosis / 2)
        assert found.interval.lower == pytest.approx(found.sd * math.sqrt(effective / stats.chi2.ppf(0.95, effective)))
        assert found.interval.upper == pytest.approx(found.sd * math.sqrt(effective / stats.chi2.ppf(0.05, effective)))

    def test_of_blocks_that_are_all_alike_is_none(self):
        assert pooled_spread([[0.5, 0.5, 0.5]]).interval.upper == 0.0


class TestTheIntraclassCorrelation:
    def test_equals_the_textbook_from_mean_squares(self):
        # Shrout & Fleiss (1979), table 2: four judges rate six targets; ICC(1,1) = 0.17.
        ratings = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], float)
        within = np.mean([sample_variance(row, 0.0) for row in ratings])
        assert intraclass_correlation(ratings.mean(axis=1).var(ddof=1), within, 4) == pytest.approx(0.166, abs=0.001)

    def test_is_zero_where_samples_explain_all_and_one_where_they_explain_nothing(self):
        assert intraclass_correlation(0.5, 4.0, 8) == 0.0
        assert intraclass_correlation(0.4, 4.0, 8) == 0.0
        assert intraclass_correlation(0.5, 0.0, 8) == 1.0

    def test_is_unknown_where_a_variance_is(self):
        assert math.isnan(intraclass_correlation(math.nan, 1.0, 4))
        assert math.isnan(intraclass_correlation(0.0, 0.0, 4))
        assert math.isnan(sample_variance([0.1], SAMPLE_TRIM))

    def test_the_sample_variance_is_what_the_trimmed_mean_of_a_block_feels(self):
        rng = np.random.default_rng(5)
        values = np.sort(rng.standard_normal((4000, 12)), axis=1)
        cut = int(SAMPLE_TRIM * 12)
        seen = values[:, cut : 12 - cut].mean(axis=1).var()
        told = np.mean([sample_variance(row, SAMPLE_TRIM) for row in values]) / 12
        assert told == pytest.approx(seen, rel=0.12)

    @pytest.mark.parametrize(
        ("values", "trim", "expected"),
        [
            ([0.1, 0.3], 0.0, 0.02),
            ([1.0, 2.0, 6.0, 4.0], 0.25, 4 / 3 * 4 * 3 / 2),  # winsorised: 2, 2, 4, 4
            ([1.0, 2.0, 6.0, 4.0, 9.0], 0.2, 4 * 5 * 4 / 6),  # winsorised: 2, 2, 4, 6, 6
        ],
    )
    def test_the_sample_variance_is_yuens(self, values, trim, expected):
        assert sample_variance(values, trim) == pytest.approx(expected)

    def test_the_sample_variance_is_unknown_where_one_sample_is_left(self):
        assert math.isnan(sample_variance([1.0, 2.0, 6.0, 4.0, 9.0], 0.4))


class TestTheAutocorrelation:
    def test_equals_the_definition(self):
        values = np.array([0.3, -0.1, 0.4, 0.0, -0.6])
        centred = values - values.mean()
        expected = (centred[1:] * centred[:-1]).sum() / (centred**2).sum()
        assert autocorrelation([values])[0] == pytest.approx(expected)

    def test_pools_gates_about_their_own_means(self):
        values = np.array([0.3, -0.1, 0.4, 0.0, -0.6])
        assert autocorrelation([values, values + 5])[0] == pytest.approx(autocorrelation([values])[0])

    def test_its_band_holds_independent_blocks_and_not_drifting_ones(self):
        rng = np.random.default_rng(6)
        found = [autocorrelation(rng.standard_normal((4, 15)).tolist()) for _ in range(200)]
        inside = sum(band.lower <= value <= band.upper for value, band in found)
        assert inside >= stats.binom.ppf(1e-4, 200, 0.95)
        drifting = np.cumsum(rng.standard_normal((4, 15)), axis=1)
        value, band = autocorrelation(drifting.tolist())
        assert value > band.upper

    def test_is_unknown_without_three_blocks(self):
        assert math.isnan(autocorrelation([[0.1, 0.2]])[0])
        assert not math.isnan(autocorrelation([[0.1, 0.2, 0.5]])[0])
        band = autocorrelation([[0.1, 0.2]])[1]
        assert (band.lower, band.upper, band.level) == (-1.0, 1.0, 0.95)

    def test_its_band_holds_the_middle_of_all_orders(self):
        values = np.random.default_rng(8).standard_normal(9)
        nothing, half, most = (autocorrelation([values], level)[1] for level in (0.0, 0.5, 0.9))
        assert nothing.lower == nothing.upper
        assert most.lower < half.lower < nothing.lower < half.upper < most.upper

    def test_its_band_is_that_of_all_orders(self):
        values = np.random.default_rng(8).standard_normal(7)
        orders = np.array(list(itertools.permutations(values - values.mean())))
        all_of_them = (orders[:, 1:] * orders[:, :-1]).sum(axis=1) / values.var() / 7
        band = autocorrelation([values], 0.8)[1]
        for end, share in ((band.lower, 0.1), (band.upper, 0.9)):
            low, high = stats.binom.ppf([1e-4, 1 - 1e-4], 999, share) / 999
            assert low <= (all_of_them <= end).mean() <= high


class TestThePlaceboSpread:
    @staticmethod
    def gates(effects, sd=0.005, blocks=12):
        wave = sd * np.array([1.0, -1.0] * (blocks // 2))
        return [estimate_paired((effect + wave[:10]).tolist(), 0.95) for effect in effects]

    def test_is_the_second_moment_beyond_the_blocks_own_noise(self):
        estimates = self.gates([0.02, -0.03, 0.01])
        error = estimates[0].standard_error ** 2
        found = placebo_spread(estimates)
        assert found.spread == pytest.approx(math.sqrt((0.02**2 + 0.03**2 + 0.01**2) / 3 - error))
        assert found.upper > found.spread
        assert found.floor_ratio == pytest.approx(math.expm1(2 * found.upper))

    def test_gates_weigh_by_their_blocks(self):
        few, many = self.gates([0.04], blocks=12)[0], self.gates([0.01], sd=0.002, blocks=12)[0]
        estimates = [replace(few, blocks=5), replace(many, blocks=20)]
        excesses = [e.log_ratio**2 - e.standard_error**2 for e in estimates]
        expected = (5 * excesses[0] + 20 * excesses[1]) / 25
        assert placebo_spread(estimates).spread == pytest.approx(math.sqrt(expected))

    def test_is_nothing_where_the_gates_agree(self):
        found = placebo_spread(self.gates([0.0005, -0.001, 0.0]))
        assert (found.spread, found.upper, found.floor_ratio) == (0.0, 0.0, 0.0)

    @pytest.mark.parametrize(
        ("gates", "p_none", "counts"), [(3, 0.01, True), (3, 0.011, False), (0, 1.0, False), (0, 0.001, False)]
    )
    def test_counts_where_chance_gives_it_in_fewer_than_one_case_of_a_hundred(self, gates, p_none, counts):
        found = PlaceboSpread(gates=gates, spread=0.01, upper=0.02, p_none=p_none)
        assert found.floor_ratio == (pytest.approx(math.expm1(0.04)) if counts else 0.0)

    def test_is_tested_by_the_squares_of_normal_scores(self):
        estimates = self.gates([0.02, -0.003, 0.001, 0.0])
        t = [abs(e.log_ratio) / e.standard_error for e in estimates]
        scores = [
            stats.norm.isf(stats.t.sf(value, e.degrees_of_freedom)) for value, e in zip(t, estimates, strict=True)
        ]
        assert placebo_spread(estimates).p_none == pytest.approx(stats.chi2.sf(np.sum(np.square(scores)), 4))

    def test_leaves_gates_out_whose_noise_is_unknown_or_none(self):
        known = self.gates([0.02, -0.03])
        found = placebo_spread([*known, estimate_paired([0.5], 0.95), estimate_paired([0.5, 0.5], 0.95)])
        assert found == placebo_spread(known)
        assert found.gates == 2

    def test_a_constant_bias_between_the_arms_counts(self):
        assert placebo_spread(self.gates([0.03, 0.03, 0.03])).spread == pytest.approx(0.03, rel=0.01)

    @pytest.mark.parametrize("times", [0.04, 0.05, 0.1, 1.0, 1000.0])
    def test_its_limit_solves_the_q_profile(self, times):
        estimates = self.gates([0.02 * times, -0.03 * times, 0.01 * times, 0.0])
        limit = placebo_spread(estimates, 0.95).upper
        assert limit > 0
        profile = sum(e.log_ratio**2 / (limit**2 + e.standard_error**2) for e in estimates)
        assert profile == pytest.approx(stats.chi2.ppf(0.05, 4))

    def test_where_the_blocks_hardly_scatter_the_effects_alone_set_the_limit(self):
        estimates = [replace(e, standard_error=1e-13) for e in self.gates([0.02, -0.03, 0.01])]
        expected = math.sqrt((0.02**2 + 0.03**2 + 0.01**2) / stats.chi2.ppf(0.05, 3))
        assert placebo_spread(estimates, 0.95).upper == pytest.approx(expected)

    def test_is_unknown_without_a_gate(self):
        found = placebo_spread([])
        assert (found.gates, found.upper, found.p_none, found.floor_ratio) == (0, math.inf, 1.0, 0.0)
