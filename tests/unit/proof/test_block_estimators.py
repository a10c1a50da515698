"""The comparison of estimators of a block, on made blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.proof.block_estimators import ESTIMATORS, NO_WEIGHTS, RULE, Block, _table


@pytest.mark.parametrize("name", ESTIMATORS)
def test_each_estimator_gives_the_log_ratio_of_arms_that_differ_by_a_factor(name):
    times = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    assert ESTIMATORS[name](Block(times, 1.1 * times, times, 1.1 * times)) == pytest.approx(math.log(1.1))


def test_what_errs_less_comes_first_and_passes_where_it_is_shown():
    rng = np.random.default_rng(4)

    def made():  # samples are late by far more than their fastest ones differ; CPU seconds see none of it
        def arm():
            return 1 + 0.001 * rng.random(12) + rng.exponential(0.1, 12) * (rng.random(12) < 0.6)

        return Block(arm(), arm(), 1 + 0.0001 * rng.random(12), 1 + 0.0001 * rng.random(12))

    rows = _table([{"a": [made() for _ in range(8)], "b": [made() for _ in range(8)]} for _ in range(12)])[2:]
    names = [row.split("|")[1].strip() for row in rows]
    passed = {row.split("|")[1].strip(): row.split("|")[5].strip() for row in rows}
    assert names[0] == "CPU seconds"
    assert passed["CPU seconds"] == passed["minimum of each arm"] == "yes"
    assert passed[RULE] == "no"
    assert set(names) == {*ESTIMATORS, NO_WEIGHTS}
