from __future__ import annotations

import numpy as np
import pytest

from perfguard.profile.op_times.typical_steps import leaves_steps_out, middle_steps, typical_steps


@pytest.mark.parametrize(("steps", "left"), [(1, 1), (2, 2), (3, 1), (4, 2), (6, 2), (10, 4)])
def test_what_is_told_are_the_middle_third_of_the_steps_and_all_of_one_or_two(steps, left):
    one = np.zeros(steps, dtype=np.int64)
    chosen = middle_steps(np.arange(steps, dtype=np.float64), one)
    assert chosen.sum() == left
    assert leaves_steps_out(steps) == (left < steps)
    held_up = np.arange(steps, dtype=np.float64)
    held_up[-1] = 1e6
    assert typical_steps(held_up, one, (0,))[0] < 1e6 or not leaves_steps_out(steps)


def test_each_process_has_a_middle_of_its_own():
    wall_s = np.array([1.0, 2.0, 3.0, 30.0, 10.0, 20.0])
    process = np.array([0, 0, 0, 1, 1, 1])
    assert middle_steps(wall_s, process).tolist() == [False, True, False, False, False, True]
    assert typical_steps(wall_s, process, (1, 0)).tolist() == [20.0, 2.0]
