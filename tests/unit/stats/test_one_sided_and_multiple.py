from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from perfguard.stats.p_values import benjamini_hochberg, holm, p_faster, p_outside, p_slower
from perfguard.stats.paired import estimate_paired, from_standard_error
from tests.changed_values import replace


def test_p_is_the_one_sided_t_test_against_the_margin():
    values = np.random.default_rng(1).normal(0.01, 0.02, 9)
    expected = stats.ttest_1samp(values, math.log1p(0.005), alternative="greater").pvalue
    assert p_slower(estimate_paired(values.tolist(), 0.95), 0.005) == pytest.approx(expected)


def test_faster_mirrors_slower():
    values = [0.01, 0.03, 0.02, 0.015]
    mirrored = estimate_paired([-v for v in values], 0.95)
    assert p_faster(mirrored, 0.005) == pytest.approx(p_slower(estimate_paired(values, 0.95), 0.005))


def test_without_variance_nothing_is_significant():
    assert p_slower(estimate_paired([5.0], 0.95), 0.0) == 1.0


def test_identical_blocks_are_as_significant_as_their_signs():
    estimate = estimate_paired([0.02] * 10, 0.95)
    assert p_slower(estimate, 0.005) == 2.0**-10
    assert p_faster(estimate, 0.005) == 1.0


def test_identical_arms_are_significant_in_neither_direction():
    estimate = estimate_paired([0.0] * 10, 0.95)
    assert p_slower(estimate, 0.0) == p_faster(estimate, 0.0) == 1.0


def estimated(log_ratio, standard_error, degrees_of_freedom, *, blocks=10):
    return from_standard_error(
        log_ratio,
        standard_error,
        block_sd=standard_error,
        blocks=blocks,
        degrees_of_freedom=degrees_of_freedom,
        level=0.95,
    )


@pytest.mark.parametrize("p_value", [p_slower, p_faster, p_outside])
@pytest.mark.parametrize(("standard_error", "degrees_of_freedom"), [(0.001, 0.0), (0.001, -1.0), (math.inf, 9.0)])
def test_an_estimate_of_unknown_precision_shows_nothing(p_value, standard_error, degrees_of_freedom):
    unknown = replace(estimated(0.0, 0.001, 9.0), standard_error=standard_error, degrees_of_freedom=degrees_of_freedom)
    assert p_value(unknown, 0.01) == 1.0


@pytest.mark.parametrize("effect", [-0.03, -0.004, 0.0, 0.004, 0.03])
@pytest.mark.parametrize("degrees_of_freedom", [0.5, 1.0, 7.3])
def test_equivalence_is_the_larger_of_two_one_sided_tests(effect, degrees_of_freedom):
    estimate = estimated(effect, 0.006, degrees_of_freedom)
    limit = math.log1p(0.02)
    below = stats.t.sf((limit - effect) / 0.006, degrees_of_freedom)
    above = stats.t.sf((limit + effect) / 0.006, degrees_of_freedom)
    assert p_outside(estimate, 0.02) == pytest.approx(max(below, above))
    assert p_slower(estimate, 0.02) == pytest.approx(stats.t.sf((effect - limit) / 0.006, degrees_of_freedom))
    # The same as whether the two-sided interval lies inside the limits.
    is_inside = -limit < estimate.interval.lower and estimate.interval.upper < limit
    assert (p_outside(estimate, 0.02) <= 0.025) == is_inside


@pytest.mark.parametrize(
    ("effect", "p_value"), [(0.0, 2.0**-10), (0.01, 2.0**-10), (-0.01, 2.0**-10), (math.log1p(0.02), 1.0), (-0.5, 1.0)]
)
def test_identical_blocks_are_inside_as_surely_as_their_signs_say(effect, p_value):
    assert p_outside(estimated(effect, 0.0, 9.0), 0.02) == p_value


@pytest.mark.parametrize("margin", [-0.01, math.nan, math.inf])
def test_a_margin_is_finite_and_not_negative(margin):
    with pytest.raises(ValueError, match="margin"):
        p_slower(estimate_paired([0.0, 0.1], 0.95), margin)


def test_holm_steps_down():
    # 4 x 0.005, 3 x 0.01, then 2 x 0.03 = 0.06 holds up 0.04.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))


def test_benjamini_hochberg_steps_up_as_scipy_does():
    values = [0.01, 0.04, 0.03, 0.005, 0.9]
    assert benjamini_hochberg(values) == pytest.approx(tuple(stats.false_discovery_control(values)))


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_adjusting_nothing_and_one_changes_nothing(adjust):
    assert adjust([]) == ()
    assert adjust([0.3]) == (0.3,)


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
@pytest.mark.parametrize("bad", [math.nan, -0.1, 1.1])
def test_what_is_no_probability_is_refused(adjust, bad):
    with pytest.raises(ValueError, match="p-values"):
        adjust([0.5, bad])
