"""How many examples a group gets next."""

from __future__ import annotations

import pytest

from perfguard.errors import UsageError
from perfguard.hetero.policies import AdaptiveBatches, AdditiveBatches, BatchLimits, FixedBatches

LIMITS = {
    "cpu": BatchLimits(initial=8, minimum=2, maximum=64),
    "gpu": BatchLimits(initial=512, minimum=128, maximum=1024),
}


def test_fixed_batches_stay_whatever_the_updates():
    policy = FixedBatches(LIMITS)
    assert [policy.next_batch("cpu", {"cpu": count, "gpu": 3}) for count in (0, 100)] == [8, 8]


def test_the_group_that_lags_gets_smaller_batches_and_the_one_ahead_larger_ones():
    policy = AdaptiveBatches(LIMITS)
    assert policy.next_batch("gpu", {"cpu": 10, "gpu": 1}) == 256
    assert policy.next_batch("cpu", {"cpu": 10, "gpu": 1}) == 16
    assert policy.next_batch("cpu", {"cpu": 10, "gpu": 10}) == 16


def test_adaptive_batches_stop_at_their_limits():
    policy = AdaptiveBatches(LIMITS)
    for _ in range(20):
        lagging, ahead = (policy.next_batch(group, {"cpu": 10, "gpu": 1}) for group in ("gpu", "cpu"))
    assert (lagging, ahead) == (128, 64)


def test_between_the_first_and_the_last_nothing_changes():
    limits = {name: BatchLimits(initial=8, minimum=1, maximum=64) for name in "abc"}
    assert AdaptiveBatches(limits).next_batch("b", {"a": 1, "b": 2, "c": 3}) == 8


def test_beta_discounts_updates_of_a_group():
    policy = AdaptiveBatches(LIMITS, beta=0.1, discounted=frozenset({"cpu"}))
    assert policy.next_batch("cpu", {"cpu": 50, "gpu": 10}) == 4  # 5 against 10: the CPU lags
    assert policy.next_batch("gpu", {"cpu": 50, "gpu": 10}) == 1024


def test_a_group_alone_keeps_its_batch():
    policy = AdaptiveBatches({"cpu": LIMITS["cpu"]})
    assert policy.next_batch("cpu", {"cpu": 100}) == 8


def test_the_additive_rule_changes_batches_once_a_period():
    policy = AdditiveBatches(LIMITS, step=2, period=10)
    assert policy.next_batch("cpu", {"cpu": 8, "gpu": 1}) == 8
    assert policy.next_batch("cpu", {"cpu": 9, "gpu": 1}) == 10
    assert policy.next_batch("gpu", {"cpu": 9, "gpu": 1}) == 510
    assert policy.next_batch("cpu", {"cpu": 14, "gpu": 6}) == 10  # equal shares in the second period


@pytest.mark.parametrize("batches", [(0, 0, 4), (8, 9, 10), (8, 1, 4)])
def test_limits_that_hold_no_initial_batch_are_refused(batches):
    initial, minimum, maximum = batches
    with pytest.raises(UsageError, match=f"batch = {initial}, minimum = {minimum}, maximum = {maximum}"):
        BatchLimits(initial=initial, minimum=minimum, maximum=maximum)


@pytest.mark.parametrize("wrong", [{"alpha": 1.0}, {"beta": 0.0}, {"beta": 2.0}])
def test_constants_that_could_not_balance_are_refused(wrong):
    with pytest.raises(UsageError, match="alpha"):
        AdaptiveBatches(LIMITS, **wrong)
