from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from perfguard.records.run import Arm
from perfguard.runner.blocks.measure import plan_block, plan_blocks

seeds = st.integers(0, 2**31)


@given(seeds, st.integers(0, 20), st.integers(0, 100))
def test_a_block_is_a_function_of_seed_and_number(seed, cases, index):
    block = plan_block(cases, index=index, seed=seed)
    assert block == plan_block(cases, index=index, seed=seed)
    assert sorted(block.setup_order) == sorted(block.case_order) == list(range(cases))
    assert len(block.first_arms) == cases
    assert 1 <= block.hash_seed < 2**32
    assert 0 <= block.data_seed < 2**32


@given(seeds)
def test_blocks_are_numbered_and_differ(seed):
    blocks = list(islice(plan_blocks(8, seed=seed), 5))
    assert [block.index for block in blocks] == [0, 1, 2, 3, 4]
    assert len({block.case_order for block in blocks}) > 1
    assert len({block.data_seed for block in blocks}) == 5


def test_another_seed_gives_another_plan():
    assert len({plan_block(6, index=0, seed=seed).case_order for seed in range(20)}) > 10


def test_neither_arm_is_favoured_by_going_first():
    """4000 fair draws stay within 5 standard deviations (158) of the middle but once in a million seeds."""
    draws = [arm for block in islice(plan_blocks(10, seed=7), 400) for arm in block.first_arms]
    assert abs(draws.count(Arm.BASELINE) - 2000) < 159


def test_no_case_is_favoured_by_its_position():
    """Each of 5 cases comes first in 200 of 1000 blocks, with a standard deviation of 12.6."""
    firsts = [block.case_order[0] for block in islice(plan_blocks(5, seed=3), 1000)]
    assert all(abs(firsts.count(case) - 200) < 64 for case in range(5))


def test_neither_arm_is_favoured_by_starting_first():
    """1000 fair draws stay within 5 standard deviations (79) of the middle but once in a million seeds."""
    draws = [block.first_started for block in islice(plan_blocks(2, seed=5), 1000)]
    assert abs(draws.count(Arm.BASELINE) - 500) < 80


def test_no_case_is_favoured_by_when_it_is_set_up():
    """Each of 5 cases is set up first in 200 of 1000 blocks, with a standard deviation of 12.6."""
    blocks = list(islice(plan_blocks(5, seed=4), 1000))
    assert all(abs([block.setup_order[0] for block in blocks].count(case) - 200) < 64 for case in range(5))
    # Its order says nothing of the measuring order: both begin with the same case in a fifth of the blocks.
    assert abs(sum(block.setup_order[0] == block.case_order[0] for block in blocks) - 200) < 64
