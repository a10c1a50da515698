"""LoadGen's latencies are confirmed by time stamps around each query."""

import numpy as np
import pytest

from perfguard.errors import StoreError
from perfguard.tasks.two_clocks import OtherFigure, StampedQueries, contradicted, read_stamps, write_stamps

P90 = "result_90.00_percentile_latency_ns"


def stamped(latencies_ns, between_ns=0):
    """Queries one after the other, with something in between."""
    begun, ended, returned = [], [], [0]
    for latency in latencies_ns:
        begun.append(returned[-1] + between_ns)
        ended.append(begun[-1] + latency)
        returned.append(ended[-1])
    return StampedQueries(begun, ended, returned)


def is_confirmed(queries, theirs_ns, key=P90):
    return not list(contradicted(queries, {key: theirs_ns}.get))


@pytest.mark.parametrize(("latency_ns", "slack_ns"), [(1_000_000, 10_000), (10_000_000, 50_000)])
def test_clocks_may_differ_by_ten_microseconds_or_half_a_percent(latency_ns, slack_ns):
    queries = stamped([latency_ns] * 1000)
    assert is_confirmed(queries, latency_ns + slack_ns)
    assert is_confirmed(queries, latency_ns - 0.99 * slack_ns)
    assert not is_confirmed(queries, latency_ns + 1.01 * slack_ns)
    assert not is_confirmed(queries, latency_ns - 1.01 * slack_ns)


def test_a_busy_host_between_two_queries_may_be_in_loadgens_latency():
    busy = stamped([1_000_000] * 1000, between_ns=200_000)
    assert is_confirmed(busy, 1_209_000)
    assert not is_confirmed(busy, 1_220_000)
    assert not is_confirmed(busy, 980_000)


def test_one_query_of_a_percentile_cannot_hide_behind_a_longer_one():
    queries = stamped([50_000] * 900 + [4_000_000] * 100)  # p90 is the first long one
    assert not is_confirmed(queries, 500_000)
    assert list(contradicted(queries, {P90: 55_000.0}.get)) == [OtherFigure(4_000_000, 55_000.0)]


def test_the_early_stopping_estimate_is_confirmed_as_well():
    queries = stamped([1_000_000] * 1000)
    assert is_confirmed(queries, 1_005_000, "early_stopping_latency_ss")
    assert not is_confirmed(queries, 1_105_000, "early_stopping_latency_ss")


def test_too_few_queries_for_an_estimate_contradict_nothing():
    assert is_confirmed(stamped([1_000_000] * 3), 9_000_000, "early_stopping_latency_ss")


def test_stamps_are_read_as_they_were_written(tmp_path):
    queries = stamped([5, 6, 7], between_ns=1)
    write_stamps(tmp_path / "stamps.npz", queries)
    assert read_stamps(tmp_path / "stamps.npz") == queries


@pytest.mark.parametrize(
    "stamps",
    [
        {"begun_ns": [1], "ended_ns": [2]},
        {"begun_ns": [1], "ended_ns": [2], "returned_ns": [3]},
        {"begun_ns": [1.0], "ended_ns": [2.0], "returned_ns": [0.0, 3.0]},
        {"begun_ns": ["1"], "ended_ns": ["2"], "returned_ns": ["0", "3"]},
        {"begun_ns": [[1]], "ended_ns": [[2]], "returned_ns": [[0], [3]]},
    ],
)
def test_other_contents_are_refused(tmp_path, stamps):
    np.savez(tmp_path / "stamps.npz", **stamps)
    with pytest.raises(StoreError, match=r"stamps\.npz"):
        read_stamps(tmp_path / "stamps.npz")
