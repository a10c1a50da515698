"""Blocks that follow each other and are alike: by how much intervals get wider."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from perfguard.stats.dependence import LEAST_BLOCKS, inflation_of, widened
from perfguard.stats.paired import estimate_paired


def autoregressive(rng, blocks, r):
    values = [rng.standard_normal()]
    for _ in range(blocks - 1):
        values.append(r * values[-1] + math.sqrt(1 - r * r) * rng.standard_normal())
    return np.array(values)


def test_the_factor_is_that_of_an_autoregression_with_the_lag_that_is_seen():
    """Two levels, one half each: the lag of 1, 1, … 0, 0 … over 40 is 37 / 40, which counts as 0.9 at most."""
    assert inflation_of([1.0] * 20 + [0.0] * 20) == pytest.approx(math.sqrt(1.9 / 0.1))
    alternating = [0.0, 1.0] * 20
    assert inflation_of(alternating) == 1.0


@pytest.mark.parametrize(
    "values",
    [[], [0.01], [0.01] * 30, [1.0] * 3 + [0.0] * 4, [math.nan] * 30, [math.nan] * 30 + [1.0] * 3 + [0.0] * 4],
    ids=["none", "one", "constant", "fewer than eight", "unknown", "few that are known"],
)
def test_where_nothing_is_shown_nothing_gets_wider(values):
    assert len([value for value in values if math.isfinite(value)]) < LEAST_BLOCKS or len(set(values)) == 1
    assert inflation_of(values) == 1.0


@pytest.mark.parametrize("blocks", [8, 20, 42])
def test_independent_blocks_get_wider_in_one_case_of_a_hundred(blocks):
    rng = np.random.default_rng([31, blocks])
    trials = 2000
    wider = sum(inflation_of(rng.standard_normal(blocks)) > 1 for _ in range(trials))
    assert wider <= stats.binom.ppf(1 - 1e-4, trials, 0.015)


def test_strong_dependence_is_noticed_and_covered():
    rng = np.random.default_rng(32)
    factors = [inflation_of(autoregressive(rng, 42, 0.6)) for _ in range(400)]
    assert np.mean(np.array(factors) > 1) > 0.85
    assert np.median(factors) == pytest.approx(math.sqrt(1.6 / 0.4), rel=0.15)


def test_an_estimate_gets_wider_around_the_same_effect():
    before = estimate_paired([0.01, 0.02, 0.03, 0.02, 0.01, 0.02], 0.95)
    after = widened(before, 1.5)
    assert after.log_ratio == before.log_ratio
    assert after.standard_error == pytest.approx(1.5 * before.standard_error)
    assert after.block_sd == before.block_sd
    width, wider = (each.interval.upper - each.interval.lower for each in (before, after))
    assert wider == pytest.approx(1.5 * width)
    assert widened(before, 1.0) is before
