"""Effects over machines."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfguard.stats.pooling import pool_effects


def test_machines_that_agree_are_averaged_by_their_precision():
    found = pool_effects([0.040, 0.050], [0.001, 0.010])
    assert found.log_ratio == pytest.approx((0.040 / 1e-6 + 0.050 / 1e-4) / (1 / 1e-6 + 1 / 1e-4))
    assert (found.between_sd, found.machines) == (0.0, 2)
    assert found.p_alike > 0.3


def test_an_interval_of_few_machines_is_wide():
    two, ten = (pool_effects([0.04] * count, [0.01] * count) for count in (2, 10))
    assert two.upper - two.log_ratio == pytest.approx(12.706 * 0.01 / math.sqrt(2), rel=1e-3)
    assert ten.upper - ten.log_ratio == pytest.approx(2.262 * 0.01 / math.sqrt(10), rel=1e-3)


def test_machines_that_differ_are_said_to():
    found = pool_effects([0.00, 0.00, 0.10], [0.002, 0.002, 0.002])
    assert found.p_alike < 1e-6
    assert found.log_ratio == pytest.approx(0.0333, abs=1e-3)
    assert found.between_sd == pytest.approx(0.0577, rel=0.01)
    assert found.lower < 0 < found.upper


def test_the_variance_between_machines_makes_the_deviance_what_chance_gives():
    effects, errors = np.array([0.01, 0.03, 0.08, 0.02]), np.array([0.005, 0.01, 0.02, 0.004])
    found = pool_effects(list(effects), list(errors))
    weights = 1 / (errors**2 + found.between_sd**2)
    mean = (weights * effects).sum() / weights.sum()
    assert (weights * (effects - mean) ** 2).sum() == pytest.approx(3.0, rel=1e-3)
    assert found.log_ratio == pytest.approx(mean)


def test_two_machines_that_differ_by_little_more_than_chance_have_a_small_variance_between():
    error = 0.01
    found = pool_effects([0.0, error * math.sqrt(3)], [error, error])  # a deviance of 1.5 at one degree of freedom
    assert found.between_sd == pytest.approx(error * math.sqrt(0.5), rel=1e-4)


def test_equal_effects_without_errors_are_no_division_by_zero():
    found = pool_effects([0.05, 0.05], [0.0, 0.0])
    assert (found.log_ratio, found.p_alike) == (pytest.approx(0.05), pytest.approx(1.0))


@pytest.mark.parametrize(("effects", "errors"), [([0.1], [0.1]), ([], []), ([0.1, 0.2], [0.1])])
def test_less_than_two_machines_are_refused(effects, errors):
    with pytest.raises(ValueError, match="two machines"):
        pool_effects(effects, errors)
