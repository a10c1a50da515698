"""Which causes are established: what is significant alone or as a sum, which sums are one cause, what is too small."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from perfguard.profile.changes.causes import established, find_causes
from perfguard.profile.changes.diff import diff_ops
from perfguard.profile.changes.paired_ops import CauseKind, Certainty
from perfguard.records.steps.ops import ChangeClass
from tests.changed_values import replace
from tests.culprit_network import CONV, NET, module, slower
from tests.simulated_profiles import SILENCE, Arm, Op, op_key, profiled

EXACTLY = replace(SILENCE, processes=4, event_s=0)
FIRST, *_ = FOUR = [op_key(f"aten::op{number}", f"Net.{number}") for number in range(4)]
FOUR_OPS = Arm(dict.fromkeys(FOUR, Op(1, 10e-3)))
CONVS = [op_key(CONV, module(number)) for number in range(8)]
RELUS = [op_key("aten::relu", module(number)) for number in range(8)]


def scattered(baseline, candidate, key, scatter_s):
    """The ops of both arms, one of them by so many seconds more and less in turn from process to process."""
    before, measured = profiled(baseline, candidate, EXACTLY)
    profile = measured.profile
    self_s = profile.self_s.copy()
    self_s[:, profile.keys.index(key)] += scatter_s * np.array([1, -1, 1, -1])[profile.process]
    return diff_ops(before, replace(measured, profile=replace(profile, self_s=self_s)))


def ops_of(diff, causes):
    return [{diff.ops.keys[column] for column in cause.columns} for cause in causes]


@pytest.mark.parametrize(
    ("p", "change", "is_blamed"),
    [
        (0.024, ChangeClass.SLOWER, True),
        (0.026, ChangeClass.SLOWER, False),
        (0.049, ChangeClass.SLOWER, False),
        (0.051, ChangeClass.UNCHANGED, False),
    ],
)
def test_one_op_in_twenty_may_be_called_slower_by_mistake_and_one_in_forty_blamed(p, change, is_blamed):
    """A quarter of p for each of four ops, by Student's t of four pairs."""
    t = -special.stdtrit(3, p / 4 / 2)
    slow = FOUR_OPS.with_ops({FIRST: Op(1, 11e-3)})
    diff = scattered(FOUR_OPS, slow, FIRST, 1e-3 * math.sqrt(3) / t)
    column = diff.ops.keys.index(FIRST)
    assert diff.q[column] == pytest.approx(p)
    assert diff.changes[column] is change
    assert ops_of(diff, established(diff, find_causes(diff))) == ([{FIRST}] if is_blamed else [])


def test_ops_that_differ_by_a_thousandth_of_the_step_are_told_from_the_rest_of_their_kind():
    least_s = NET.step_s / 1000
    stem = replace(CONVS[7], module="Net.stem")
    changed = {
        **slower(CONVS[0], by_s=20 * least_s),
        **slower(CONVS[1], by_s=1.1 * least_s),
        **slower(CONVS[2], by_s=0.9 * least_s),
        **slower(CONVS[3], by_s=-1.1 * least_s),
        **slower(CONVS[4], by_s=-0.9 * least_s),
        CONVS[7]: None,
        stem: Op(1, 5e-3),
    }
    diff = diff_ops(*profiled(NET, NET.with_ops(changed)))
    causes = [cause for cause in find_causes(diff) if diff.ops.keys[cause.columns[0]].op == CONV]
    assert ops_of(diff, causes) == [{*CONVS[:2]}, {CONVS[3]}, {CONVS[2], *CONVS[4:], stem}]
    assert [cause.certainty for cause in causes] == [Certainty.SIGNIFICANT, Certainty.SIGNIFICANT, Certainty.OPEN]


def test_single_ops_and_the_rest_of_their_kind_are_one_cause_where_all_point_one_way():
    changed = {**slower(CONVS[0], by_s=1e-3), **slower(*CONVS[1:], by_s=0.04e-3), **slower(RELUS[0], by_s=-0.3e-3)}
    diff = diff_ops(*profiled(NET, NET.with_ops(changed)))
    causes = established(diff, find_causes(diff))
    assert ops_of(diff, causes) == [{*CONVS}, {RELUS[0]}]
    assert [cause.delta_s for cause in causes] == pytest.approx([1.28e-3, -0.3e-3])


def test_what_points_different_ways_stays_apart_in_every_kind_of_op():
    changed = {
        **slower(CONVS[0], by_s=1e-3),
        **slower(CONVS[1], by_s=-0.5e-3),
        **slower(RELUS[0], by_s=0.3e-3),
        **slower(RELUS[1], by_s=-0.2e-3),
    }
    diff = diff_ops(*profiled(NET, NET.with_ops(changed)))
    causes = established(diff, find_causes(diff))
    assert ops_of(diff, causes) == [{CONVS[0]}, {CONVS[1]}, {RELUS[0]}, {RELUS[1]}]
    assert [cause.delta_s for cause in causes] == pytest.approx([1e-3, -0.5e-3, 0.3e-3, -0.2e-3])


@pytest.mark.parametrize(
    ("delta", "half_width", "is_kept"),
    [
        (1.1, 0.5, True),
        (0.9, 0.5, False),
        (-1.1, 0.5, True),
        (-0.9, 0.5, False),
        (0.1, 0.8, False),
        (0.1, 1.0, True),
        (-0.1, 0.8, False),
        (-0.1, 1.0, True),
    ],
)
def test_a_fact_must_cost_a_thousandth_of_the_step_or_be_able_to_if_it_is_within_the_noise(delta, half_width, is_kept):
    """Both in thousandths of the step."""
    copies = op_key("aten::copy_", "Net.head")
    baseline = FOUR_OPS.with_ops({copies: Op(4, 10e-3)})
    least_s = baseline.step_s / 1000
    candidate = baseline.with_ops({copies: Op(5, 10e-3 + delta * least_s)})
    scatter_s = half_width * least_s * math.sqrt(3) / -special.stdtrit(3, 0.025)
    diff = scattered(baseline, candidate, copies, scatter_s)
    causes = established(diff, find_causes(diff))
    assert ops_of(diff, causes) == ([{copies}] if is_kept else [])
    for cause in causes:
        assert cause.kind is CauseKind.CALLS
        assert (cause.delta_s, cause.upper_s) == pytest.approx((delta * least_s, (delta + half_width) * least_s))
