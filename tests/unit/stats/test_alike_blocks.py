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


def wave(blocks, waves):
    """Its autocorrelation is the cosine of its step, 2 pi waves / (blocks + 1), and its mean 0."""
    return np.sin(2 * math.pi * waves * np.arange(1, blocks + 1) / (blocks + 1))


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_a_weaker_dependence_is_corrected_for_its_bias(scale):
    found = math.cos(2 * math.pi * 6 / 41)
    likely = found + (1 + 4 * found) / 40
    assert inflation_of(scale * wave(40, 6)) == pytest.approx(math.sqrt((1 + likely) / (1 - likely)))


@pytest.mark.parametrize(("blocks", "waves", "is_shown"), [(8, 1, True), (40, 8, False), (50, 10, True)])
def test_a_dependence_is_shown_from_233_standard_errors_above_the_mean_of_independent_blocks(blocks, waves, is_shown):
    z = (math.cos(2 * math.pi * waves / (blocks + 1)) + 1 / blocks) * math.sqrt(blocks)
    assert (z > 2.33) is is_shown
    assert (inflation_of(wave(blocks, waves)) > 1) is is_shown


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
