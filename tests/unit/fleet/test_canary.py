"""When a host's canary says that it is another machine."""

from __future__ import annotations

import numpy as np
import pytest

from perfguard.fleet.canary import drifted

STEADY = [0.0100, 0.0101, 0.0100, 0.0099, 0.0100, 0.0101, 0.0100, 0.0099, 0.0100, 0.0101]


@pytest.mark.parametrize("factor", [1.2, 0.85])
def test_three_canaries_elsewhere_are_a_drift(factor):
    assert drifted([*STEADY, *[0.01 * factor] * 3]) == pytest.approx(np.log(factor))


@pytest.mark.parametrize(
    "later", [[], [0.012], [0.012, 0.012], [0.012, 0.010, 0.012], [0.012, 0.008, 0.012], [0.0101] * 3]
)
def test_one_slow_canary_or_two_are_none(later):
    assert drifted([*STEADY, *later]) is None


def test_a_noisy_host_is_allowed_its_noise():
    noisy = [0.010, 0.012, 0.009, 0.011, 0.010, 0.013, 0.009, 0.010, 0.012, 0.011]
    assert drifted([*noisy, 0.0125, 0.0125, 0.0125]) is None


def test_changes_below_two_per_cent_are_none_however_steady_the_host():
    assert drifted([0.01] * 10 + [0.0101] * 3) is None
    assert drifted([0.01] * 10 + [0.0103] * 3) == pytest.approx(np.log(1.03))


@pytest.mark.parametrize("sd", [0.001, 0.01, 0.05])
def test_hosts_that_stay_what_they_are_are_hardly_ever_called_unfit(sd):
    random = np.random.default_rng(7)
    hosts = [0.01 * np.exp(sd * random.standard_normal(200)) for _ in range(200)]
    alarms = sum(drifted(host[:end].tolist()) is not None for host in hosts for end in range(13, 200))
    assert alarms / (200 * 187) < 1e-3
