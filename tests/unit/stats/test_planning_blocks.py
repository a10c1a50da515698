from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from perfguard.stats.power import (
    blocks_needed,
    crossing_probability,
    inflation_factor,
    minimum_detectable_effect,
    sequential_blocks,
    sequential_mde,
)
from perfguard.stats.spending import Spending, nominal_levels


@pytest.mark.parametrize(("level", "analyses"), [(0.025, 1), (0.025, 4), (0.008, 8), (0.0007, 8)])
def test_without_an_effect_the_looks_together_spend_the_level(level, analyses):
    assert crossing_probability(0.0, level, analyses) == pytest.approx(level, rel=1e-4)


def test_one_look_is_the_ordinary_test():
    drift = stats.norm.isf(0.025) + stats.norm.ppf(0.9)
    assert crossing_probability(drift, 0.025, 1) == pytest.approx(0.9, abs=1e-5)
    assert inflation_factor(0.025, 0.9, 1) == 1.0


def test_the_inflation_is_that_of_published_tables():
    # Jennison & Turnbull (2000) give 1.026 for O'Brien-Fleming bounds, 5 analyses; the spending version lies below it.
    assert inflation_factor(0.025, 0.9, 5) == pytest.approx(1.023, abs=0.002)
    assert 1.0 <= inflation_factor(0.025, 0.9, 2) < inflation_factor(0.025, 0.9, 8)


def test_a_sequential_plan_needs_little_more_than_a_fixed_one():
    once = blocks_needed(0.02, 0.01, alpha=0.001, margin_ratio=0.005, power=0.95)
    planned = sequential_blocks(0.02, 0.01, level=0.001, margin_ratio=0.005, power=0.95)
    assert once <= planned <= math.ceil(1.05 * once)


def test_an_effect_within_the_margin_or_beyond_a_thousand_blocks_has_no_plan():
    assert sequential_blocks(0.005, 0.01, level=0.001, margin_ratio=0.005) is None
    assert sequential_blocks(0.006, 0.05, level=0.001, margin_ratio=0.005) is None
    assert sequential_blocks(0.02, math.nan, level=0.001, margin_ratio=0.005) is None


def test_the_mde_of_the_planned_blocks_is_the_planned_effect():
    planned = sequential_blocks(0.02, 0.012, level=0.001, margin_ratio=0.005, power=0.8)
    assert sequential_mde(0.012, planned, level=0.001, margin_ratio=0.005) <= 0.02
    assert sequential_mde(0.012, planned - 2, level=0.001, margin_ratio=0.005) > 0.0195
    assert sequential_mde(0.012, 1, level=0.001, margin_ratio=0.005) == math.inf


@pytest.mark.parametrize(
    ("level", "power", "analyses"), [(0.1, 0.05, 8), (0.0, 0.8, 8), (0.01, 1.0, 8), (0.01, 0.8, 0)]
)
def test_nonsense_is_refused(level, power, analyses):
    with pytest.raises(ValueError, match="give no plan"):
        inflation_factor(level, power, analyses)


@pytest.mark.parametrize("drift", [-1.0, 1.0, 4.0])
def test_the_chance_of_crossing_is_that_of_simulated_paths(drift):
    rng = np.random.default_rng(3)
    steps = rng.standard_normal((200_000, 4)) + drift / 2
    z = np.cumsum(steps, axis=1) / np.sqrt([1, 2, 3, 4])
    bounds = stats.norm.isf(nominal_levels(Spending.CAUTIOUS, 0.05, [1, 2, 3, 4], [0.25, 0.5, 0.75, 1.0]))
    crossed = (z >= bounds).any(axis=1).mean()
    assert crossing_probability(drift, 0.05, 4) == pytest.approx(crossed, abs=4e-3 if crossed > 0.01 else 2e-4)


def test_a_plan_reckons_with_eight_analyses_and_a_confirmation():
    settings = {"margin_ratio": 0.005, "power": 0.95}
    for sd in np.linspace(0.004, 0.022, 19):
        planned = sequential_blocks(0.02, sd, level=0.008, **settings)
        assert sequential_mde(sd, planned, level=0.008, **settings) <= 0.02 + 1e-6
        assert sequential_mde(sd, planned - 1, level=0.008, **settings) > 0.02
        assert planned >= blocks_needed(0.02, sd, alpha=0.008, **settings)


def test_what_twenty_blocks_cannot_confirm_has_no_plan():
    settings = {"level": 0.008, "margin_ratio": 0.005, "power": 0.95}
    assert sequential_blocks(0.02, 0.0235, **settings) is not None
    assert sequential_blocks(0.02, 0.026, **settings) is None


@pytest.mark.parametrize(("blocks", "kept"), [(2, 2), (3, 3), (11, 11), (12, 10), (25, 21)])
def test_the_mde_is_that_of_the_inflated_error(blocks, kept):
    error = 0.01 * math.sqrt(inflation_factor(0.008, 0.8, 8) / blocks)
    expected = minimum_detectable_effect(error, kept - 1.0, alpha=0.008, margin_ratio=0.005, block_sd=0.01)
    assert sequential_mde(0.01, blocks, level=0.008, margin_ratio=0.005) == pytest.approx(expected)


@pytest.mark.parametrize(("sd", "blocks"), [(0.0, 1), (0.01, 0), (0.01, 1), (math.nan, 9), (math.inf, 9)])
def test_without_two_blocks_or_a_known_noise_there_is_no_mde(sd, blocks):
    assert sequential_mde(sd, blocks, level=0.008, margin_ratio=0.005) == math.inf


def test_the_power_must_be_above_the_level():
    with pytest.raises(ValueError, match="give no plan"):
        inflation_factor(0.1, 0.1, 8)
    assert inflation_factor(0.1, 0.11, 4) >= 1.0
