from __future__ import annotations

import numpy as np
import pytest

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


def test_one_arm_alone_may_have_the_modes():
    found = find_modes(*blocks([0] * 14, CANDIDATE))
    assert found is not None
    assert not any(found.baseline_slow)
    assert [int(slow) for slow in found.candidate_slow] == CANDIDATE


def test_a_step_of_the_machine_that_both_arms_follow_is_no_mode():
    steps = np.repeat([0.0, SLOW], 10)
    assert find_modes(*blocks([0] * 20, [0] * 20, machine=steps)) is None


def test_a_slower_candidate_is_no_mode():
    assert find_modes(*blocks([0] * 20, [1] * 20)) is None


def test_a_single_odd_block_is_no_mode():
    assert find_modes(*blocks([0] * 20, [0, 1] + [0] * 18)) is None
    assert find_modes(*blocks([0] * 20, [1, 1] + [0] * 18)) is None


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
