from __future__ import annotations

import numpy as np
import pytest

from perfguard.profile.changes.diff import PRECISION, is_settled


def arms(rng, *, pairs=4, noise=0.0, effect=0.0, steps=9):
    """Steps of 10 ms in pairs of processes; a pair is as fast or slow as its machine was."""
    machine = np.exp(0.3 * rng.standard_normal((pairs, 1))) * 10e-3
    own = np.exp(noise * rng.standard_normal((2, pairs, 1)))
    jitter = np.exp(0.001 * rng.standard_normal((2, pairs, steps)))
    baseline, candidate = machine * own * jitter
    return baseline.tolist(), (candidate * (1 + effect)).tolist()


@pytest.mark.parametrize("effect", [0.0, 0.05, 12.0])
def test_quiet_pairs_settle_any_difference(effect):
    assert is_settled(*arms(np.random.default_rng(1), noise=0.002, effect=effect))


@pytest.mark.parametrize("effect", [0.0, 0.05, 12.0])
def test_noisy_pairs_settle_none(effect):
    assert not is_settled(*arms(np.random.default_rng(2), noise=0.2, effect=effect))


def test_a_step_that_was_held_up_unsettles_nothing():
    baseline, candidate = arms(np.random.default_rng(3), noise=0.002)
    candidate[1][4] = 10.0
    assert is_settled(baseline, candidate)


def test_the_limit_is_the_half_width_of_the_interval():
    # Log ratios of d, -d, d, -d: mean 0, SD d * sqrt(4 / 3), so a half-width of 3.182 * d * sqrt(4 / 3) / 2.
    d = PRECISION / (3.1824463 * np.sqrt(4 / 3) / 2)
    for factor, settled in ((0.99, True), (1.01, False)):
        ratios = np.exp(np.array([1, -1, 1, -1]) * d * factor)
        assert is_settled([[1.0]] * 4, [[ratio] for ratio in ratios]) is settled


def test_three_percent_to_either_side_are_enough():
    for half_width, settled in ((0.029, True), (0.031, False)):
        d = half_width / (3.1824463 * np.sqrt(4 / 3) / 2)
        ratios = np.exp(np.array([1, -1, 1, -1]) * d)
        assert is_settled([[1.0]] * 4, [[ratio] for ratio in ratios]) is settled


@pytest.mark.parametrize("pairs", [0, 1])
def test_fewer_than_two_pairs_settle_nothing(pairs):
    assert not is_settled([[1.0]] * pairs, [[1.0]] * pairs)


def test_pairs_without_steps_count_for_nothing():
    assert not is_settled([[1.0], []], [[1.0], []])


def test_pairs_of_which_one_arm_has_no_step_are_left_out():
    # Two alike leave an interval of no width.
    assert is_settled([[1.0], [2.0], [1.0], []], [[1.0], [2.0], [], [1.0]])
