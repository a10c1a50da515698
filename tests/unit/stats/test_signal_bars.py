"""Values of blocks and tests for amounts and counts beside wall time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from perfguard.stats.signals import (
    Bar,
    BlockPairs,
    difference_bar,
    least_sd_of_counts,
    positive_pairs,
    ratio_bar,
    readable_pairs,
    share_bar,
)


def pairs(baseline, candidate):
    return BlockPairs(np.array(baseline, dtype=float), np.array(candidate, dtype=float))


def listed(found):
    return found.baseline.tolist(), found.candidate.tolist()


def test_pairs_are_readable_where_both_values_are_amounts():
    baseline = [1.0, None, 3.0, 0.5, math.inf, -1.0, 0.0, 8.0]
    candidate = [2.0, 5.0, None, 7.0, 1.0, 1.0, 0.0, math.nan, 9.0]
    assert listed(readable_pairs(baseline, candidate)) == ([1.0, 0.5, 0.0], [2.0, 7.0, 0.0])
    assert listed(readable_pairs([None], [1.0])) == ([], [])
    assert listed(readable_pairs([], [])) == ([], [])


def test_a_ratio_needs_both_values_above_zero():
    assert listed(positive_pairs(pairs([0.0, 0.4, 0.3, 2.0], [1.0, 0.0, 0.2, 3.0]))) == ([0.3, 2.0], [0.2, 3.0])


# Of five pairs the smallest and the largest are cut.
RATIOS = pairs([1.0, 2.0, 4.0, 1.0, 1.0], [1.1, 2.6, 4.8, 9.0, 0.1])
DIFFERENCES = pairs([1.0, 5.0, 2.0, 0.0, 3.0], [2.0, 7.0, 5.0, 90.0, 0.0])


def test_each_bar_says_by_how_much_it_is_cleared_both_ways():
    middle = math.log(1.1 * 1.3 * 1.2) / 3
    bar = ratio_bar([RATIOS], 0.05)
    assert bar.up == pytest.approx((middle - math.log(1.05),))
    assert bar.down == pytest.approx((-middle - math.log(1.05),))
    assert bar.least_sd == 0.001

    bar = difference_bar([DIFFERENCES, RATIOS], 0.5, least_sd=0.25)
    assert bar.up == pytest.approx((2.0 - 0.5, (0.1 + 0.6 + 0.8) / 3 - 0.5))
    assert bar.down == pytest.approx((-2.0 - 0.5, -(0.1 + 0.6 + 0.8) / 3 - 0.5))
    assert bar.least_sd == 0.25

    bar = share_bar([DIFFERENCES], 0.5, least_sd=0.3)
    up = np.sort([2 - 1.5, 7 - 7.5, 5 - 3, 90 - 0, 0 - 4.5])[1:-1].mean()
    down = np.sort([1 - 3, 5 - 10.5, 2 - 7.5, 0 - 135, 3 - 0])[1:-1].mean()
    assert (bar.up, bar.down, bar.least_sd) == (pytest.approx((up,)), pytest.approx((down,)), 0.3)


def test_counts_scatter_by_the_root_of_their_number():
    blocks = [pairs([4.0, 6.0], [10.0, 14.0]), pairs([1.0] * 4, [2.0] * 4)]
    assert least_sd_of_counts(blocks) == pytest.approx(math.sqrt(((5 + 12) + (1 + 2)) / 2 / 3))


VALUES = (0.3, 0.1, 0.4, 0.2, 0.25)


@pytest.mark.parametrize("least_sd", [0.001, 0.5])
def test_the_p_value_is_that_of_the_t_test_with_no_smaller_scatter_than_believable(least_sd):
    bar = Bar(up=VALUES, down=tuple(value - 0.3 for value in VALUES), least_sd=least_sd)
    error = max(np.std(VALUES, ddof=1), least_sd) / math.sqrt(5)
    assert bar.p_up() == pytest.approx(stats.t.sf(0.25 / error, 4))
    assert bar.p_down() == pytest.approx(stats.t.sf(-0.05 / error, 4))


@pytest.mark.parametrize("values", [(), (5.0,)])
def test_one_block_shows_nothing(values):
    bar = Bar(up=values, down=values, least_sd=0.001)
    assert (bar.p_up(), bar.is_under(0.95)) == (1.0, False)


@pytest.mark.parametrize("least_sd", [0.001, 0.5])
def test_a_change_is_under_the_bar_where_both_intervals_are_below_zero(least_sd):
    half_width = stats.t.ppf(0.95, 4) * max(np.std(VALUES, ddof=1), least_sd) / math.sqrt(5)
    far, near = (tuple(value - 0.25 - share * half_width for value in VALUES) for share in (1.01, 0.99))
    for up, down, is_under in ((far, far, True), (far, near, False), (near, far, False), (near, near, False)):
        assert Bar(up=up, down=down, least_sd=least_sd).is_under(0.9) is is_under


def test_identical_blocks_are_as_certain_as_the_least_scatter():
    bar = Bar(up=(0.1,) * 4, down=(-0.1,) * 4, least_sd=0.02)
    assert bar.p_up() == pytest.approx(stats.t.sf(0.1 / (0.02 / 2), 3))
