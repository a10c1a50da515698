from __future__ import annotations

import math

import pytest
from scipy import stats

from perfguard.stats.planning import crossing_probability, inflation_factor, sequential_blocks, sequential_mde
from perfguard.stats.power import blocks_needed


@pytest.mark.parametrize(("level", "looks"), [(0.025, 1), (0.025, 4), (0.008, 8), (0.0007, 8)])
def test_without_an_effect_the_looks_together_spend_the_level(level, looks):
    assert crossing_probability(0.0, level, looks) == pytest.approx(level, rel=1e-4)


def test_one_look_is_the_ordinary_test():
    drift = stats.norm.isf(0.025) + stats.norm.ppf(0.9)
    assert crossing_probability(drift, 0.025, 1) == pytest.approx(0.9, abs=1e-5)
    assert inflation_factor(0.025, 0.9, 1) == 1.0


def test_the_inflation_is_that_of_published_tables():
    # Jennison & Turnbull (2000) give 1.026 for O'Brien-Fleming bounds, 5 looks; the spending version lies below it.
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


@pytest.mark.parametrize(("level", "power", "looks"), [(0.1, 0.05, 8), (0.0, 0.8, 8), (0.01, 1.0, 8), (0.01, 0.8, 0)])
def test_nonsense_is_refused(level, power, looks):
    with pytest.raises(ValueError, match="give no plan"):
        inflation_factor(level, power, looks)
