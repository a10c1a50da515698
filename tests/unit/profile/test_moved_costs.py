"""Which rises and falls are one moved cost, and when a note says so; sizes in units, at the limits of the rules."""

from __future__ import annotations

import math

import pytest

from perfguard.profile.changes.attribution import is_worth_telling, moved_costs
from perfguard.profile.changes.causes import MovedCost
from perfguard.profile.changes.paired_ops import Cause, CauseKind, Certainty
from perfguard.records.steps.ops import StepBalance

STEP = 1000
CHANGED, SAME = (1, 1, 1), (1, -1, 3)
"""Difference of the step, with its interval."""
ONE_PROCESS = (-math.inf, math.inf)


def cause(number, delta, reach=0.0):
    return Cause(
        kind=CauseKind.TIME,
        certainty=Certainty.SIGNIFICANT,
        columns=(number,),
        delta_s=delta,
        lower_s=delta - reach,
        upper_s=delta + reach,
    )


def balance(delta, lower, upper):
    parts = dict.fromkeys(("ops_s", "python_s", "idle_s", "unexplained_s", "overhead_ratio"), 0.0)
    return StepBalance(baseline_s=STEP, candidate_s=STEP + delta, delta_s=delta, lower_s=lower, upper_s=upper, **parts)


def moved(*deltas, step, reach=0.0):
    """Sizes of what moved: which rises and which falls are one cost."""
    causes = [cause(number, delta, reach) for number, delta in enumerate(deltas)]
    return [tuple(tuple(part.delta_s for part in side) for side in (cost.rises, cost.falls))
            for cost in moved_costs(causes, balance(*step))]  # fmt: skip


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ((8, -6), [((8,), (-6,))]),
        ((6, -8), [((6,), (-8,))]),
        ((8, -5.75), []),
        ((-9, 10, 9, -8), [((10,), (-9,)), ((9,), (-8,))]),
        ((10, -9.25, -2), [((10,), (-9.25,))]),
        ((8, 8, -8), [((8,), (-8,))]),
        ((4, 4, -8), [((4, 4), (-8,))]),
        ((8, -3, -3), [((8,), (-3, -3))]),
        ((8, -8, 4, 2, -6), [((8,), (-8,)), ((4, 2), (-6,))]),
        ((4, 4), []),
        ((-4, -4), []),
    ],
    ids=[
        *("a quarter less went", "a quarter more went", "more than a quarter", "the largest chooses first"),
        *(
            "the nearest is chosen",
            "none is chosen twice",
            "one went to two",
            "a quarter is left",
            "a pair and the rest",
        ),
        *("nothing went", "nothing came"),
    ],
)
def test_where_the_step_is_unchanged_rises_and_falls_of_about_one_size_are_one_cost(deltas, expected):
    assert moved(*deltas, step=SAME) == expected


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ((20, -17), [((20,), (-17,))]),
        ((17, -20), [((17,), (-20,))]),
        ((20, -16.75), []),
        ((20, -17, -14), []),
        ((20, -17, -13.75), [((20,), (-17,))]),
        ((20, 14, -20), []),
        ((20, 13.75, -20), [((20,), (-20,))]),
        ((10, 10, -20), []),
    ],
    ids=[
        *("nearly as much went", "nearly as much came", "less went", "another one may have gone"),
        *("another one is too small", "another one may have come", "another rise is too small", "no sums"),
    ],
)
def test_where_the_step_changed_only_one_rise_and_one_fall_without_rivals_are_one_cost(deltas, expected):
    assert moved(*deltas, step=CHANGED) == expected


@pytest.mark.parametrize(
    ("step", "is_unchanged"),
    [
        ((1, 0, 2), True),
        ((-1, -2, 0), True),
        ((-0.25, -1, 0.5), True),
        ((9, -1, 19), True),
        ((0.75, 0.5, 1), True),
        ((1, 0.5, 1.5), False),
        ((-1, -1.5, -0.5), False),
        ((2, *ONE_PROCESS), True),
        ((2.25, *ONE_PROCESS), False),
        ((-2.25, *ONE_PROCESS), False),
    ],
    ids=[
        *("up to 0", "down to 0", "around 0", "far around 0", "less than a thousandth", "a thousandth more"),
        *("a thousandth less", "a quarter of the rise", "more than that", "less by more than that"),
    ],
)
def test_a_step_is_unchanged_within_its_interval_or_by_next_to_nothing(step, is_unchanged):
    """A rise and a fall that differ by a fifth are one cost in an unchanged step alone."""
    assert moved(8, -6.5, step=step) == ([((8,), (-6.5,))] if is_unchanged else [])


@pytest.mark.parametrize("deltas", [(8, -8), (4, 4, -8)])
def test_what_may_be_noise_did_not_move(deltas):
    assert moved(*deltas, step=SAME, reach=8) == []
    assert moved(*deltas, step=SAME, reach=3) != []


def test_of_single_traces_what_costs_the_same_is_neither_a_rise_nor_a_fall():
    step = (0, *ONE_PROCESS)
    assert moved(0, 4, 4, 0, -8, step=step, reach=math.inf) == [((4, 4), (-8,))]
    assert moved(0, 8, 0, -3, -3, step=step, reach=math.inf) == [((8,), (-3, -3))]
    assert moved(-3, -3, step=step, reach=math.inf) == []


@pytest.mark.parametrize(
    ("moved_s", "step_s", "blamed", "is_told"),
    [(1, 20, 1, True), (0.75, 20, 1, False), (1, -20, 1, True), (0.75, -20, 1, False), (0.75, 20, 0, True)],
    ids=["a twentieth", "less", "a twentieth of a faster step", "less of it", "nothing else to tell"],
)
def test_a_cost_that_moved_is_told_where_it_is_worth_it(moved_s, step_s, blamed, is_told):
    cost = MovedCost(rises=(cause(0, moved_s),), falls=(cause(1, -moved_s),))
    assert is_worth_telling(cost, balance(step_s, step_s, step_s), ["op.slower"] * blamed) is is_told
