from __future__ import annotations

import math

import pytest
from scipy import stats

from perfguard.stats.power import blocks_needed, detectable_shift, minimum_detectable_effect


@pytest.mark.parametrize(("df", "alpha"), [(5, 0.008 / 12), (19, 0.008), (3, 0.05), (200, 0.05)])
def test_the_shift_has_the_power_that_the_noncentral_t_says(df, alpha):
    shift = detectable_shift(df, alpha)
    assert stats.nct.sf(stats.t.isf(alpha, df), df, shift) == pytest.approx(0.8, abs=0.004)


def test_the_mde_adds_the_margin():
    effect = minimum_detectable_effect(0.002, 19, alpha=0.008, margin_ratio=0.005)
    expected = math.expm1(math.log1p(0.005) + 0.002 * detectable_shift(19, 0.008))
    assert effect == pytest.approx(expected)


def test_unknown_precision_sees_nothing():
    assert minimum_detectable_effect(math.inf, 0, alpha=0.05, margin_ratio=0.005) == math.inf
    assert minimum_detectable_effect(1e6, 3, alpha=0.05, margin_ratio=0.005) == math.inf


def test_perfect_precision_sees_the_margin():
    assert minimum_detectable_effect(0.0, 9, alpha=0.05, margin_ratio=0.005) == 0.005


def test_the_blocks_needed_are_the_fewest_that_do():
    needed = blocks_needed(0.02, 0.01, alpha=0.008 / 12, margin_ratio=0.005)
    assert needed == 14
    settings = {"alpha": 0.008 / 12, "margin_ratio": 0.005}
    assert minimum_detectable_effect(0.01 / 14**0.5, 11, **settings) <= 0.02
    assert minimum_detectable_effect(0.01 / 13**0.5, 10, **settings) > 0.02


@pytest.mark.parametrize(("effect", "sd"), [(0.005, 0.01), (0.001, 0.01), (0.02, math.nan), (0.006, 5.0)])
def test_some_effects_cannot_be_promised(effect, sd):
    assert blocks_needed(effect, sd, alpha=0.008, margin_ratio=0.005) is None


def test_two_blocks_are_the_least():
    assert blocks_needed(0.5, 0.0, alpha=0.008, margin_ratio=0.005) == 2
