"""Weighting blocks by how much their samples scatter: no more false alarms, and more slowdowns found on noisy hosts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfguard.stats.p_values import p_slower
from perfguard.stats.paired import block_effect, estimate_paired

SAMPLES = 12
TRIALS = 4000
LEVEL = 0.008


def gates(kind, blocks, seed):
    """Samples of both arms, shape `(trials, blocks, samples)`; the arms do the same work.

    `quiet`: all blocks alike. `busy`: the scatter of a block's samples varies three-fold and more from block to block,
    in both arms alike, as beside a neighbour that comes and goes.
    """
    rng = np.random.default_rng(seed)
    shape = (TRIALS, blocks)
    scatter = np.full(shape, 0.01) if kind == "quiet" else 0.01 * np.exp(rng.normal(0, 1.1, shape))
    process = 0.002 * rng.standard_normal((2, *shape))
    noise = scatter[..., None] * rng.standard_normal((2, *shape, SAMPLES))
    return np.exp(process[..., None] + noise)


def p_values(samples, *, weighted, slowdown=1.0, margin=0.0):
    found = []
    for baseline, candidate in zip(samples[0], samples[1] * slowdown, strict=True):
        effects = [block_effect(a, b) for a, b in zip(baseline, candidate, strict=True)]
        variances = [effect.variance for effect in effects] if weighted else None
        estimate = estimate_paired([effect.log_ratio for effect in effects], 0.95, variances)
        found.append(p_slower(estimate, margin))
    return np.array(found)


@pytest.mark.parametrize("kind", ["quiet", "busy"])
@pytest.mark.parametrize("blocks", [6, 14])
def test_identical_arms_are_flagged_no_more_often_than_allowed(kind, blocks):
    flagged = (p_values(gates(kind, blocks, seed=31), weighted=True) < LEVEL).sum()
    allowed = LEVEL * TRIALS * 1.2  # what trimming costs at worst, see decision 0003
    assert flagged <= allowed + 3 * math.sqrt(allowed)


def test_on_a_host_that_comes_and_goes_many_more_slowdowns_are_found():
    samples = gates("busy", 8, seed=32)
    plain, weighted = (
        (p_values(samples, weighted=weighted, slowdown=1.015) < LEVEL).mean() for weighted in (False, True)
    )
    assert weighted > plain + 0.15


def test_on_a_quiet_host_it_costs_next_to_nothing():
    samples = gates("quiet", 8, seed=33)
    plain, weighted = (
        (p_values(samples, weighted=weighted, slowdown=1.008) < LEVEL).mean() for weighted in (False, True)
    )
    assert weighted > plain - 0.03
