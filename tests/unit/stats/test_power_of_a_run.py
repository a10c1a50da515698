from __future__ import annotations

import math

import pytest
from scipy import stats

from perfguard.stats.confirming import confirmation_power
from perfguard.stats.paired import trimmed_blocks
from perfguard.stats.power import blocks_needed, detectable_shift, flag_power, minimum_detectable_effect


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


@pytest.mark.parametrize("degrees_of_freedom", [0.0, -1.0])
def test_a_precision_without_degrees_of_freedom_is_unknown(degrees_of_freedom):
    assert minimum_detectable_effect(0.01, degrees_of_freedom, alpha=0.05, margin_ratio=0.005) == math.inf


@pytest.mark.parametrize(("standard_error", "degrees_of_freedom"), [(0.01, 0.5), (0.01, 1.0), (1.0, 19)])
def test_every_known_precision_sees_something(standard_error, degrees_of_freedom):
    expected = math.expm1(math.log1p(0.005) + standard_error * detectable_shift(degrees_of_freedom, 0.05))
    found = minimum_detectable_effect(standard_error, degrees_of_freedom, alpha=0.05, margin_ratio=0.005)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(("log_effect", "is_seen"), [(49.9, True), (50.1, False)])
def test_an_effect_beyond_all_numbers_is_not_seen(log_effect, is_seen):
    error = log_effect / detectable_shift(19, 0.05)
    assert math.isfinite(minimum_detectable_effect(error, 19, alpha=0.05, margin_ratio=0.0)) is is_seen


@pytest.mark.parametrize("block_sd", [0.005, 0.02, 0.1])
@pytest.mark.parametrize("blocks", [6, 12, 40])
@pytest.mark.parametrize("margin_ratio", [0.0, 0.01])
def test_with_a_confirmation_the_mde_is_flagged_and_confirmed_with_the_power_together(block_sd, blocks, margin_ratio):
    error, settings = block_sd / math.sqrt(blocks), {"alpha": 0.05, "margin_ratio": margin_ratio}
    found = math.log1p(minimum_detectable_effect(error, blocks - 1, block_sd=block_sd, **settings))
    flagged = flag_power((found - math.log1p(margin_ratio)) / error, blocks - 1, 0.05)
    assert flagged * confirmation_power(found / block_sd) == pytest.approx(0.8, abs=1e-3)
    assert found >= math.log1p(minimum_detectable_effect(error, blocks - 1, **settings))


def test_blocks_that_do_not_scatter_need_no_confirmation():
    settings = {"alpha": 0.05, "margin_ratio": 0.005}
    assert minimum_detectable_effect(0.01, 9, block_sd=0.0, **settings) == minimum_detectable_effect(
        0.01, 9, **settings
    )


def test_a_confirmation_that_needs_more_than_all_numbers_sees_nothing():
    assert minimum_detectable_effect(0.1, 40, alpha=0.05, margin_ratio=0.005, block_sd=100.0) == math.inf


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
    assert blocks_needed(0.5, 1e-6, alpha=0.008, margin_ratio=0.005) == 2
    assert blocks_needed(0.5, 0.0, alpha=0.008, margin_ratio=0.005) == 2


def test_an_effect_at_the_margin_is_never_found():
    assert blocks_needed(0.005, 0.0, alpha=0.008, margin_ratio=0.005) is None
    assert blocks_needed(0.0051, 0.0, alpha=0.008, margin_ratio=0.005) == 2


@pytest.mark.parametrize("sd", [0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007])
def test_no_fewer_blocks_would_do(sd):
    settings = {"alpha": 0.008, "margin_ratio": 0.005}
    enough = [n for n in range(2, 12) if minimum_detectable_effect(sd / n**0.5, n - 1, **settings) <= 0.02]
    assert blocks_needed(0.02, sd, **settings) == min(enough)


@pytest.mark.parametrize(("enough", "needed"), [(999.5, 1000), (1000.5, None)])
def test_nobody_waits_for_more_than_a_thousand_blocks(enough, needed):
    settings = {"margin_ratio": 0.005, "power": 0.8}
    reach = math.log1p(0.02) - math.log1p(0.005)
    sd = reach * math.sqrt(enough) / detectable_shift(1000 - 2.0 * trimmed_blocks(1000) - 1, 0.008, 0.8)
    assert blocks_needed(0.02, sd, alpha=0.008, **settings) == needed
