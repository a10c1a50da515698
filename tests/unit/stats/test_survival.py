from __future__ import annotations

import numpy as np
import pytest

from perfguard.stats.calibration import survival


def test_is_the_share_that_lasted_where_everything_was_watched_to_its_end():
    assert survival([(1, True), (3, True), (3, True), (4, True)]) == pytest.approx((1, 3 / 4, 3 / 4, 1 / 4, 0))


def test_counts_what_was_not_watched_to_its_end_for_as_long_as_it_was():
    # By hand: at 2 one of three ends; the one that was watched up to 2 says nothing of 3, where one of one ends.
    assert survival([(2, True), (2, False), (3, True)]) == pytest.approx((1, 1, 2 / 3, 0))
    assert survival([(5, False), (5, False)]) == (1,) * 6


def test_of_nothing_is_nothing():
    assert survival([]) == ()


def test_finds_the_chance_of_lasting_although_watching_ends_early():
    rng = np.random.default_rng(5)
    lasting, watched = rng.geometric(0.1, 4000), rng.integers(5, 31, 4000)
    found = survival([(int(min(n, w)), bool(n <= w)) for n, w in zip(lasting, watched, strict=True)])
    assert found[:25] == pytest.approx([0.9**n for n in range(25)], abs=0.03)
