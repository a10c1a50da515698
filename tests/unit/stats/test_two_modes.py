from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from perfguard.stats.modes import MIN_BLOCKS, Modes, find_modes

SLOW = 0.08


def blocks(baseline_slow, candidate_slow, *, noise=0.003, shift=0.0, machine=None, seed=5):
    """Log-ratios and levels of blocks whose arms were in the given modes."""
    rng = np.random.default_rng(seed)
    size = len(baseline_slow)
    machine = np.zeros(size) if machine is None else machine
    baseline = machine + SLOW * np.array(baseline_slow) + noise * rng.standard_normal(size)
    candidate = machine + SLOW * np.array(candidate_slow) + shift + noise * rng.standard_normal(size)
    return candidate - baseline, (candidate + baseline) / 2


BASELINE = [0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0]
CANDIDATE = [1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 0, 1]


@pytest.mark.parametrize(
    "machine",
    [None, np.linspace(0, 0.3, 14), np.repeat([0.0, 0.5], 7), 0.02 * np.sin(np.arange(14))],
    ids=["still", "drifting", "stepping", "swaying"],
)
def test_modes_are_found_in_every_block_whatever_the_machine_does(machine):
    found = find_modes(*blocks(BASELINE, CANDIDATE, machine=machine))
    assert found is not None
    assert found.separation == pytest.approx(SLOW, rel=0.05)
    assert [int(slow) for slow in found.baseline_slow] == BASELINE
    assert [int(slow) for slow in found.candidate_slow] == CANDIDATE


def test_exchanging_the_arms_exchanges_their_modes():
    log_ratios, levels = blocks(BASELINE, CANDIDATE)
    there, back = find_modes(log_ratios, levels), find_modes(-log_ratios, levels)
    assert there is not None
    assert back is not None
    assert (back.baseline_slow, back.candidate_slow) == (there.candidate_slow, there.baseline_slow)
    assert back.p_mix() == there.p_mix()


def test_a_shift_within_the_modes_is_no_mode():
    found = find_modes(*blocks(BASELINE, CANDIDATE, shift=0.02))
    assert found is not None
    assert [int(slow) for slow in found.candidate_slow] == CANDIDATE


@pytest.mark.parametrize("seed", range(8))
def test_one_arm_alone_may_have_the_modes(seed):
    log_ratios, levels = blocks([0] * 14, CANDIDATE, seed=seed)
    found, exchanged = find_modes(log_ratios, levels), find_modes(-log_ratios, levels)
    assert found is not None
    assert exchanged is not None
    assert not any((*found.baseline_slow, *exchanged.candidate_slow))
    assert [int(slow) for slow in found.candidate_slow] == CANDIDATE
    assert [int(slow) for slow in exchanged.baseline_slow] == CANDIDATE


def test_a_step_of_the_machine_that_both_arms_follow_is_no_mode():
    steps = np.repeat([0.0, SLOW], 10)
    assert find_modes(*blocks([0] * 20, [0] * 20, machine=steps)) is None


def test_a_slower_candidate_is_no_mode():
    assert find_modes(*blocks([0] * 20, [1] * 20)) is None


def test_a_single_odd_block_is_no_mode():
    assert find_modes(*blocks([0] * 20, [0, 1] + [0] * 18)) is None
    assert find_modes(*blocks([0] * 20, [1, 1] + [0] * 18)) is None


@pytest.mark.parametrize(
    ("size", "unequal", "is_found"), [(40, 4, True), (40, 3, False), (35, 4, True), (35, 3, False), (30, 3, True)]
)
def test_a_tenth_of_the_blocks_must_have_their_arms_in_different_modes(size, unequal, is_found):
    found = find_modes(*blocks([0] * size, [1] * unequal + [0] * (size - unequal)))
    assert (found is not None) == is_found
    assert found is None or sum(found.candidate_slow) == unequal


def test_modes_that_are_less_than_five_spreads_apart_are_found():
    """Log-ratios scatter by 1.4 times the noise."""
    assert find_modes(*blocks([0, 0, 1, 1] * 30, [0, 1, 0, 1] * 30, noise=0.012)) is not None


@pytest.mark.parametrize("size", [0, 1, 2, MIN_BLOCKS - 1])
def test_few_blocks_show_no_modes(size):
    assert find_modes(*blocks([0] * size, ([0, 1] * size)[:size])) is None


def test_identical_blocks_and_blocks_of_two_exact_values_do_not_crash():
    assert find_modes([0.0] * 12, [0.0] * 12) is None
    found = find_modes([0.0, 0.1] * 6, [0.0, 0.05] * 6)
    assert found is not None
    assert sum(found.candidate_slow) == 6
    assert not any(found.baseline_slow)


@pytest.mark.parametrize(
    ("only_candidate", "only_baseline", "p"), [(8, 0, 0.0078125), (4, 4, 1.0), (5, 1, 0.21875), (0, 3, 0.25)]
)
def test_the_mix_is_tested_on_the_blocks_whose_arms_differ(only_candidate, only_baseline, p):
    modes = Modes(
        separation=SLOW,
        evidence=20.0,
        baseline_slow=(True,) * only_baseline + (False,) * only_candidate + (True, False),
        candidate_slow=(False,) * only_baseline + (True,) * only_candidate + (True, False),
    )
    assert modes.p_mix() == pytest.approx(p)
    assert modes.same[-2:] == (True, True)


class Expected:
    """The definition, worked out the long way: every split, every choice of who was slow."""

    def __init__(self, ratios, levels):
        self.size, self.order = len(ratios), np.argsort(ratios, kind="stable")
        splits = [
            self.split(np.sort(ratios), *cut)
            for cut in itertools.combinations_with_replacement(range(self.size + 1), 2)
        ]
        allowed = [split for split in splits if split]
        self.modes = None
        if not allowed:
            return
        criterion, separation, spread, centre, (below, middle, above) = min(allowed, key=lambda split: split[0])
        self.evidence = self.criterion_of_one(ratios) - criterion
        if separation <= 3 * spread or self.evidence < 10:
            return
        # Two clusters only: those nearer to no shift are the blocks with equal arms.
        if below == 0 and abs(centre + separation) < abs(centre):
            below, middle, above = middle, above, 0
        elif above == 0 and abs(centre - separation) < abs(centre):
            below, middle, above = 0, below, middle
        self.separation = separation
        unequal = np.zeros(self.size, dtype=int)
        unequal[self.order[:below]] = -1
        unequal[self.order[below + middle :]] = 1
        both = self.both_slow(levels, unequal)
        self.modes = [(u < 0 or b, u > 0 or b) for u, b in zip(unequal, both, strict=True)]

    def split(self, ratios, first, last):
        least = max(3, math.ceil(0.1 * self.size))
        counts = (first, last - first, self.size - last)
        if counts[1] < least or self.size - counts[1] < least:
            return None
        z = np.repeat([-1, 0, 1], counts)
        (centre, separation), *_ = np.linalg.lstsq(np.stack([np.ones(self.size), z], axis=1), ratios, rcond=None)
        if separation <= 0:
            return None
        squares = np.sum((ratios - centre - separation * z) ** 2)
        likelihood = stats.norm.logpdf(ratios, centre + separation * z, math.sqrt(squares / self.size)).sum()
        likelihood += sum(count * math.log(count / self.size) for count in counts if count)
        parameters = 3 + (counts[0] > 0) + (counts[2] > 0)
        criterion = parameters * math.log(self.size) - 2 * likelihood
        return criterion, separation, math.sqrt(squares / (self.size - 2)), centre, counts

    def criterion_of_one(self, ratios):
        normal = stats.norm.logpdf(ratios, np.mean(ratios), np.std(ratios)).sum()
        start = [np.median(ratios), math.log(np.median(np.abs(ratios - np.median(ratios))))]
        fitted = optimize.minimize(
            lambda at: -stats.t.logpdf(ratios, 3, at[0], math.exp(at[1])).sum(), start, method="Nelder-Mead"
        )
        return 2 * math.log(self.size) - 2 * max(normal, -fitted.fun)

    def both_slow(self, levels, unequal):
        free = [index for index, arms in enumerate(unequal) if not arms]
        offsets = np.where(unequal != 0, self.separation / 2, 0.0)
        choices = np.array(list(itertools.product([0.0, 1.0], repeat=len(free))))
        paths = np.tile(levels - offsets, (len(choices), 1))
        paths[:, free] -= self.separation * choices
        best = choices[np.argmin(np.abs(np.diff(paths, axis=1)).sum(axis=1))]
        both = np.zeros(self.size, dtype=bool)
        both[free] = best.astype(bool)
        return both


@pytest.mark.parametrize("seed", range(80))
def test_modes_are_those_of_the_definition(seed):
    rng = np.random.default_rng([9, seed])
    size = int(rng.integers(5, 17))
    slow = (rng.random((2, size)) < rng.uniform(0.05, 0.6, (2, 1))).astype(int)
    noise, machine = rng.choice([0.003, 0.006, 0.012]), 0.01 * np.cumsum(rng.standard_normal(size))
    ratios, levels = blocks(*slow, noise=noise, machine=machine, shift=rng.choice([0.0, 0.05]), seed=seed)
    expected, found = Expected(ratios, levels), find_modes(ratios, levels)
    if expected.modes is None or size < 6:
        assert found is None
        return
    assert found.separation == pytest.approx(expected.separation)
    assert found.evidence == pytest.approx(expected.evidence, abs=0.05)
    assert list(zip(found.baseline_slow, found.candidate_slow, strict=True)) == expected.modes
