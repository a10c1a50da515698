"""Which points of a long series stay."""

from __future__ import annotations

import numpy as np
import pytest

from perfguard.service.decimation import kept_places


def test_a_short_series_stays_whole():
    assert kept_places([3.0, 1.0, 2.0], most=3) == [0, 1, 2]
    assert kept_places([], most=3) == []


@pytest.mark.parametrize("count", [101, 1_000, 10_007])
def test_extremes_and_ends_stay_and_no_more_points_than_asked_for(count):
    values = np.random.default_rng(count).normal(1, 0.01, count).tolist()
    values[37], values[-20] = 5.0, 0.2
    kept = kept_places(values, most=100)
    assert kept == sorted(set(kept))
    assert len(kept) <= 100
    assert {0, 37, count - 20, count - 1} <= set(kept)


def test_each_stretch_keeps_its_own_range():
    values = np.random.default_rng(1).normal(1, 0.01, 5_000)
    kept = kept_places(values.tolist(), most=202)
    for stretch in np.array_split(np.arange(5_000), 100):
        inside = [place for place in kept if stretch[0] <= place <= stretch[-1]]
        assert {values[inside].min(), values[inside].max()} >= {values[stretch].min(), values[stretch].max()}


def test_places_that_matter_stay():
    assert 777 in kept_places([1.0] * 10_000, most=50, always={777})
