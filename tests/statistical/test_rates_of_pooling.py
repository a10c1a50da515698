"""How often the interval over machines holds the true mean."""

from __future__ import annotations

import numpy as np
import pytest

from perfguard.stats.pooling import pool_effects

TRIALS = 2000


@pytest.mark.parametrize(("machines", "between"), [(2, 0.0), (2, 0.02), (3, 0.02), (8, 0.0), (8, 0.02)])
def test_its_interval_holds_the_mean_in_nineteen_of_twenty(machines, between):
    rng = np.random.default_rng([machines, int(1000 * between)])
    held = 0
    for _ in range(TRIALS):
        errors = rng.uniform(0.003, 0.02, machines)
        effects = 0.03 + rng.normal(0, between, machines) + rng.normal(0, errors)
        found = pool_effects(effects.tolist(), errors.tolist())
        held += found.lower <= 0.03 <= found.upper
    assert held / TRIALS > 0.94
    if between and machines > 2:
        assert held / TRIALS < 0.98


def test_machines_that_do_not_differ_are_rarely_said_to():
    rng = np.random.default_rng(5)
    errors = rng.uniform(0.003, 0.02, (TRIALS, 4))
    said = sum(pool_effects(rng.normal(0.03, each).tolist(), each.tolist()).p_alike < 0.05 for each in errors)
    assert 0.035 < said / TRIALS < 0.065
