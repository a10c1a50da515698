from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from perfguard.stats.spending import SMALLEST_LEVEL, Spending, nominal_levels, sequential_p, simpson_weights, spent

ANALYSES = [1.0, 2.0, 3.0, 4.0, 5.0]
FIFTHS = [0.2, 0.4, 0.6, 0.8, 1.0]


def test_bounds_of_the_cautious_function_are_the_published_ones():
    """Lan & DeMets' O'Brien-Fleming type, one-sided 2.5 %, five equal analyses: 4.877, 3.357, 2.680, 2.290, 2.031."""
    levels = nominal_levels(Spending.CAUTIOUS, 0.025, ANALYSES, FIFTHS)
    assert stats.norm.isf(levels) == pytest.approx([4.8769, 3.3570, 2.6803, 2.2898, 2.0310], abs=2e-4)


def test_bounds_of_the_even_function_are_the_published_ones():
    """Kim & DeMets with rho = 1, one-sided 2.5 %, five equal analyses: 2.576, 2.492, 2.411, 2.339, 2.276."""
    levels = nominal_levels(Spending.EVEN, 0.025, ANALYSES, FIFTHS)
    assert stats.norm.isf(levels) == pytest.approx([2.5758, 2.4920, 2.4108, 2.3391, 2.2755], abs=2e-4)


@pytest.mark.parametrize("spending", list(Spending))
def test_everything_is_spent_at_the_end_and_nothing_before_the_start(spending):
    assert spent(spending, 0.03, 0.0) == 0.0
    assert spent(spending, 0.03, 1.0) == pytest.approx(0.03)
    assert spent(spending, 0.03, 7.0) == pytest.approx(0.03)


@pytest.mark.parametrize("p_value", [1e-9, 1e-4, 0.012, 0.3])
def test_a_single_look_is_an_ordinary_test(p_value):
    assert sequential_p(Spending.CAUTIOUS, [p_value], [12], [1.0]) == pytest.approx(p_value, rel=0.02)


def test_without_a_look_nothing_is_known():
    assert sequential_p(Spending.CAUTIOUS, [], [], []) == 1.0


def test_an_early_look_counts_less_than_the_last():
    early = sequential_p(Spending.CAUTIOUS, [1e-3], [6], [0.3])
    late = sequential_p(Spending.CAUTIOUS, [1e-3], [6], [1.0])
    assert early > 20 * late


def test_two_looks_at_the_same_data_cost_next_to_nothing():
    once = sequential_p(Spending.EVEN, [0.5, 0.01], [10, 20], [0.5, 1.0])
    again = sequential_p(Spending.EVEN, [0.5, 0.01, 0.01], [10, 20, 20], [0.5, 0.95, 1.0])
    assert again == pytest.approx(once, rel=0.15)


@settings(deadline=None, max_examples=40)
@given(p_values=st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=6), spending=st.sampled_from(list(Spending)))
def test_a_further_look_never_raises_the_p_value(p_values, spending):
    information = [float(6 + 3 * analysis) for analysis in range(len(p_values))]
    fractions = [min(0.95, 0.3 + 0.1 * analysis) for analysis in range(len(p_values))]
    found = [
        sequential_p(spending, p_values[: n + 1], information[: n + 1], fractions[: n + 1])
        for n in range(len(p_values))
    ]
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(found))


@pytest.mark.parametrize("spending", list(Spending))
def test_sequential_p_values_are_valid_under_the_null(spending):
    """P(p <= level) <= level, by simulation of Brownian paths seen at five analyses; also at levels far from 5 %."""
    rng = np.random.default_rng(11)
    paths = 4000
    scores = np.cumsum(rng.standard_normal((paths, len(ANALYSES))), axis=1) / np.sqrt(ANALYSES)
    p_values = stats.norm.sf(scores)
    found = np.array([sequential_p(spending, row, ANALYSES, FIFTHS) for row in p_values.tolist()])
    for level in (0.2, 0.05, 0.01):
        hits = int((found <= level).sum())
        assert stats.binom.ppf(1e-4, paths, level) <= hits <= stats.binom.ppf(1 - 1e-4, paths, level)


def test_levels_far_out_in_the_tail_stay_positive_and_ordered():
    levels = nominal_levels(Spending.CAUTIOUS, 1e-12, ANALYSES, FIFTHS)
    assert all(0 <= level <= 1e-12 for level in levels)
    assert math.isclose(levels[-1], 1e-12, rel_tol=0.2)


def test_p_values_are_never_above_one_nor_below_what_is_resolved():
    assert sequential_p(Spending.CAUTIOUS, [1.0], [12.0], [1.0]) == 1.0
    assert sequential_p(Spending.CAUTIOUS, [0.9, 0.99], [6.0, 12.0], [0.5, 1.0]) == 1.0
    assert sequential_p(Spending.EVEN, [0.0], [12.0], [1.0]) == SMALLEST_LEVEL == 1e-15


@pytest.mark.parametrize("analyses", [1, 2, 5])
@pytest.mark.parametrize("spending", list(Spending))
def test_a_p_value_is_the_level_whose_bound_it_reaches(analyses, spending):
    """The levels are tabulated; between them the answer is exact to four in a thousand."""
    information, fractions = ANALYSES[:analyses], FIFTHS[:analyses]
    for level in (1e-9, 3e-5, 0.0047, 0.031, 0.2):
        bound = nominal_levels(spending, level, information, fractions)[-1]
        p_values = [0.999] * (analyses - 1) + [bound]
        assert sequential_p(spending, p_values, information, fractions) == pytest.approx(level, rel=0.004)


def test_information_that_is_not_evenly_spread_is_taken_as_it_is():
    """By simulation of two analyses, the second with nine times the data of the first."""
    rng = np.random.default_rng(12)
    first, rest = rng.standard_normal((2, 400_000))
    z = np.stack([first, (first + math.sqrt(8) * rest) / 3])
    bounds = stats.norm.isf(nominal_levels(Spending.EVEN, 0.1, [4.0, 36.0], [0.4, 1.0]))
    assert (z[0] >= bounds[0]).mean() == pytest.approx(0.04, abs=1.5e-3)
    assert ((z[0] >= bounds[0]) | (z[1] >= bounds[1])).mean() == pytest.approx(0.1, abs=2e-3)


def test_a_look_that_may_spend_nothing_has_the_level_zero():
    first, last = nominal_levels(Spending.EVEN, 0.03, [5.0, 10.0], [0.0, 1.0])
    assert first == 0.0
    assert last == pytest.approx(0.03, rel=1e-4)
    _, again = nominal_levels(Spending.EVEN, 0.03, [5.0, 10.0], [0.5, 0.5])
    assert again == pytest.approx(0.0, abs=1e-290)

    assert sequential_p(Spending.EVEN, [1e-320], [5.0], [0.0]) == 1.0


@pytest.mark.parametrize("spending", list(Spending))
@pytest.mark.parametrize("information", [[50, 100], [95, 100], [99, 100], [100, 101]])
def test_two_looks_spend_the_level_together_however_close_they_are(spending, information):
    """By the distribution function of two normal variables that have the first look's data in common."""
    for level in (0.05, 0.001):
        bounds = stats.norm.isf(nominal_levels(spending, level, information, [0.95 * information[0] / 100, 1.0]))
        common = math.sqrt(information[0] / information[1])
        neither = stats.multivariate_normal(cov=[[1.0, common], [common, 1.0]]).cdf(bounds)
        assert 1 - neither == pytest.approx(level, rel=3e-4)


@pytest.mark.parametrize("spending", list(Spending))
def test_the_unit_of_the_information_does_not_matter(spending):
    levels = nominal_levels(spending, 0.008, ANALYSES, FIFTHS)
    assert nominal_levels(spending, 0.008, [0.01 * blocks for blocks in ANALYSES], FIFTHS) == pytest.approx(levels)
    assert nominal_levels(spending, 0.008, [100 * blocks for blocks in ANALYSES], FIFTHS) == pytest.approx(levels)


def test_simpsons_rule_is_exact_for_cubics():
    nodes = np.array([np.linspace(0.0, 2.0, 5), np.linspace(-1.0, 3.0, 5)])
    exact = [2**4 / 4 - 2**2 + 3 * 2, (3**4 - 1) / 4 - (3**2 - 1) + 3 * 4]
    np.testing.assert_allclose((simpson_weights(nodes) * (nodes**3 - 2 * nodes + 3)).sum(axis=1), exact)
