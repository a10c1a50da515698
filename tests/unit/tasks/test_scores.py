"""LoadGen's percentile and early-stopping estimate, recomputed from time stamps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from perfguard.errors import MeasurementError
from perfguard.tasks.scores import early_stopping, percentile, snr_db


@pytest.mark.parametrize(("count", "index"), [(1, 0), (2, 1), (10, 9), (100, 90), (1024, 921)])
def test_the_percentile_is_the_latency_at_the_floor_of_its_share(count, index):
    assert percentile(list(range(count))[::-1]) == index


def test_no_latency_has_no_percentile():
    with pytest.raises(MeasurementError, match="no query was answered"):
        percentile([])


@pytest.mark.parametrize(("count", "left_out"), [(64, 1), (100, 3), (1024, 80)])
def test_the_estimate_leaves_out_as_many_of_the_highest_as_loadgen(count, left_out):
    """64 and 662 queries are LoadGen's own minima; 100 and 1,024 are from its logs."""
    assert early_stopping(list(range(count))) == count - left_out


@pytest.mark.parametrize(("count", "share"), [(63, 0.9), (661, 0.99), (0, 0.9)])
def test_too_few_queries_have_no_estimate(count, share):
    assert early_stopping(list(range(count)), share) is None


def test_662_queries_are_enough_for_the_99th_percentile():
    assert early_stopping(list(range(662)), 0.99) == 661


@given(st.integers(64, 5000))
def test_the_estimate_is_never_below_the_percentile_and_leaves_out_as_many_as_the_confidence_allows(count):
    latencies = list(range(count))
    found = early_stopping(latencies)
    assert found is not None
    left_out = count - found
    assert stats.binom.cdf(left_out, count, 0.1) <= 0.01 < stats.binom.cdf(left_out + 1, count, 0.1)
    assert found >= percentile(latencies)


def test_signal_over_noise_of_a_thousandth_is_sixty_decibels():
    signal = np.ones(100, np.float32)
    assert snr_db((signal * np.float32(1.001),), (signal,)) == pytest.approx(60, abs=0.01)
    assert snr_db((signal,), (signal,)) is None
    assert snr_db((signal * np.float32(np.nan),), (signal,)) == -np.inf
    assert snr_db((signal[:5],), (signal,)) == -np.inf
    assert snr_db((signal,), (signal * 0,)) == -np.inf
