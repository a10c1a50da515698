from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.report.html.charts import LinearAxis, LogAxis, RatioAxis, effect_axis, near_axis

RATIOS = st.floats(min_value=-0.99, max_value=1e6)


@given(RATIOS, RATIOS, st.sampled_from([0.01, 0.05, 0.2, 1.0, 10.0]))
def test_larger_effects_are_never_further_left(one, other, limit):
    axis = RatioAxis(limit=limit)
    low, high = sorted((one, other))
    assert 0.0 <= axis.at(low) <= axis.at(high) <= 1.0


@pytest.mark.parametrize("limit", [0.01, 0.05, 0.5, 10.0])
def test_zero_is_in_the_middle_and_both_sides_are_alike(limit):
    axis = RatioAxis(limit=limit)
    assert axis.at(0.0) == 0.5
    assert axis.at(limit / 3) - 0.5 == pytest.approx(0.5 - axis.at(-limit / 3))
    assert [axis.at(-limit), axis.at(limit)] == [0.0, 1.0]
    assert axis.ticks() == sorted(-tick for tick in axis.ticks())


@given(st.floats(min_value=0.01, max_value=10.0))
def test_the_words_at_an_axis_of_effects_do_not_meet(limit):
    axis = RatioAxis(limit=limit)
    places = [axis.at(tick) for tick in axis.ticks()]
    assert all(right - left > 0.064 for left, right in pairwise(places))


def test_a_margin_of_half_a_percent_can_be_seen_beside_an_effect_of_ten_times_as_long():
    axis = RatioAxis(limit=10.0)
    assert axis.at(0.005) - axis.at(-0.005) > 0.03


def test_what_is_unknown_does_not_stretch_an_axis():
    assert effect_axis([0.008, None, math.inf, math.nan]).limit == 0.01


@given(st.lists(st.floats(min_value=-1e3, max_value=1e3), min_size=1))
def test_an_axis_around_values_shows_all_of_them(values):
    axis = near_axis(values)
    assert all(axis.low <= value <= axis.high for value in values)
    assert axis.low < axis.high


def test_an_axis_has_its_zero_where_that_is_near_and_its_detail_where_it_is_far():
    assert near_axis([0.01, 0.03]).low < 0
    assert near_axis([0.60, 0.62]).low > 0.5


def test_ticks_are_round_and_within():
    assert LinearAxis(low=0.013, high=0.049).ticks() == pytest.approx([0.02, 0.03, 0.04])
    assert LogAxis(low=0.5, high=2000.0).ticks() == pytest.approx([1.0, 10.0, 100.0, 1000.0])
