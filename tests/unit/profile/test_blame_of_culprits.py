from __future__ import annotations

import math

import numpy as np
import pytest

from perfguard.profile.changes.attribution import attribute
from perfguard.records.steps.ops import ChangeClass
from tests.changed_values import replace
from tests.culprit_network import CONV, NET, changes_of, contiguous, copy_in, found, module, slower, told
from tests.simulated_profiles import BACKWARD, SILENCE, Noise, Op, op_key, profiled, python_key

RELU = op_key("aten::relu", module(5))
INNER_CONV = op_key(CONV, module(2))
LAST_BACKWARD = op_key("aten::convolution_backward", module(5), BACKWARD)


def test_fewer_calls_are_no_culprit_of_a_slower_step():
    conv = op_key(CONV, module(0))
    result = found(NET.with_ops({conv: None, **slower(op_key("aten::relu", module(1)), by_s=5e-3)}))
    assert [culprit.ops[0].op for culprit in result.culprits] == ["aten::relu"]
    assert result.culprits[0].share == 1  # of what became slower: the step itself only by 3 of these 5 ms


def test_a_faster_step_has_culprits_too():
    conv = op_key(CONV, module(0))
    result = found(NET.with_ops({conv: None, **slower(op_key("aten::relu", module(1)), by_s=0.5e-3)}))
    assert [culprit.ops[0] for culprit in result.culprits] == [conv]
    assert result.culprits[0].change is ChangeClass.GONE
    assert result.culprits[0].share == 1


def test_a_step_that_became_faster_by_next_to_nothing_has_the_culprits_of_a_slower_one():
    """Nobody looks for what saved a thousandth."""
    changed = {**slower(RELU, by_s=1e-4), **slower(INNER_CONV, by_s=-1.4e-4)}
    result = found(NET.with_ops(changed))
    assert -NET.step_s / 1000 < result.balance.upper_s < 0
    assert all(culprit.delta_s > 0 for culprit in result.culprits)


def test_the_largest_part_comes_first_and_shares_add_up():
    changed = {**slower(RELU, by_s=1e-3), **slower(LAST_BACKWARD, by_s=4e-3), **slower(INNER_CONV, by_s=2e-3)}
    result = found(NET.with_ops(changed))
    assert [culprit.ops[0] for culprit in result.culprits] == [LAST_BACKWARD, INNER_CONV, RELU]
    assert [culprit.share for culprit in result.culprits] == pytest.approx([4 / 7, 2 / 7, 1 / 7])


def test_a_cost_that_moved_within_an_unchanged_step_is_labelled_and_not_blamed():
    result = found(NET.with_ops({**slower(RELU), **slower(INNER_CONV, by_s=-1e-3)}))
    assert result.culprits == ()
    assert changes_of(result)[RELU] is changes_of(result)[INNER_CONV] is ChangeClass.MOVED


def test_a_cost_that_moved_to_two_ops_is_labelled_too():
    changed = {**slower(RELU, by_s=0.6e-3), **slower(LAST_BACKWARD, by_s=0.4e-3), **slower(INNER_CONV, by_s=-1e-3)}
    result = found(NET.with_ops(changed))
    assert result.culprits == ()
    assert {changes_of(result)[key] for key in (RELU, LAST_BACKWARD, INNER_CONV)} == {ChangeClass.MOVED}


def test_a_reorder_that_left_the_op_that_hid_it_is_not_blamed():
    result = found(NET.with_ops({copy_in(2): Op(1, 1e-3), **slower(INNER_CONV, by_s=-1e-3)}))
    assert result.culprits == ()
    assert changes_of(result)[copy_in(2)] is ChangeClass.MOVED


def test_a_moved_cost_beside_a_real_slowdown_is_told_from_it():
    changed = {**slower(RELU), **slower(INNER_CONV, by_s=-1e-3), **slower(LAST_BACKWARD, by_s=4e-3)}
    result = found(NET.with_ops(changed))
    assert [culprit.ops[0] for culprit in result.culprits] == [LAST_BACKWARD]
    assert changes_of(result)[RELU] is ChangeClass.MOVED


def test_of_two_slowdowns_that_could_be_the_moved_one_none_is_excused():
    changed = {**slower(RELU), **slower(INNER_CONV, by_s=-1e-3), **slower(LAST_BACKWARD, by_s=1.1e-3)}
    assert {culprit.ops[0] for culprit in found(NET.with_ops(changed)).culprits} == {RELU, LAST_BACKWARD}


def test_a_gain_elsewhere_that_is_much_smaller_excuses_nothing():
    result = found(NET.with_ops({**slower(RELU, by_s=4e-3), **slower(INNER_CONV, by_s=-1e-3)}))
    assert [culprit.ops[0] for culprit in result.culprits] == [RELU]


def test_an_op_that_moved_and_became_slower_is_blamed_for_what_it_costs_more():
    there = replace(INNER_CONV, module="Net.stem")
    (culprit,) = found(NET.with_ops({INNER_CONV: None, there: Op(1, 5e-3)})).culprits
    assert culprit.delta_s == pytest.approx(3e-3)
    assert culprit.change is ChangeClass.SLOWER
    assert {INNER_CONV, there} <= set(culprit.ops)


def test_single_traces_blame_only_what_is_counted():
    one = replace(Noise(), processes=1)
    result = found(NET.with_ops({**slower(RELU, by_s=9e-3), copy_in(1): Op(1, 3e-3)}), noise=one)
    assert [culprit.ops[0] for culprit in result.culprits] == [copy_in(1)]
    assert (result.culprits[0].lower_s, result.culprits[0].upper_s) == (-math.inf, math.inf)
    assert result.processes == 1


def test_single_traces_blame_nothing_that_is_less_than_half_of_what_may_be_noise():
    one = replace(SILENCE, processes=1)
    (culprit,) = found(NET.with_ops({**slower(RELU, by_s=9e-3), copy_in(1): Op(1, 3e-3)}), noise=one).culprits
    assert culprit.ops[0] == copy_in(1)
    assert math.isnan(culprit.share)


def test_a_pause_in_a_single_trace_does_not_turn_the_cost_of_what_was_added_there():
    copy, python = op_key("aten::copy_", module(2)), python_key(module(2))
    paused = NET.with_ops({python: Op(1, 5e-3)})
    (culprit,) = found(
        NET.with_ops({copy: Op(1, 1e-3), python: Op(1, 1e-3)}), paused, replace(SILENCE, processes=1)
    ).culprits
    assert (culprit.ops, culprit.delta_s) == ((copy,), pytest.approx(1e-3))
    # Where steps repeat, what an op costs and saves beside it is its net cost.
    (culprit,) = found(NET.with_ops({copy: Op(1, 1e-3), python: Op(1, 1e-3)}), paused).culprits
    assert (set(culprit.ops), culprit.delta_s) == ({copy, python}, pytest.approx(-3e-3))


@pytest.mark.parametrize("processes", [1, 3])
def test_a_culprit_too_small_to_matter_is_not_named(processes):
    noise = replace(SILENCE, processes=processes)
    assert found(NET.with_ops({copy_in(1): Op(1, 1e-6)}), noise=noise).culprits == ()


def test_python_time_of_a_renamed_module_is_not_blamed_whatever_else_changed_in_it():
    renamed = {}
    for key, op in NET.ops.items():
        if key.module == module(0):
            now = replace(key, module="Net.stem", shapes=key.shapes.replace("[2,", "[4,"))
            renamed |= {key: None, now: op}
    result = found(NET.with_ops({**renamed, **slower(RELU)}))
    assert [culprit.ops[0].op for culprit in result.culprits] == ["aten::relu"]


def unsettled(candidate, key, scatter_s):
    """What is found where the steps scatter, and one op by so many seconds from process to process."""
    baseline, measured = profiled(NET, candidate, replace(SILENCE, processes=4))
    turn = np.array([1, -1, 1, -1])
    profile = measured.profile
    self_s = profile.self_s.copy()
    self_s[:, profile.keys.index(key)] += scatter_s * turn[profile.process]
    noisy = replace(
        measured, profile=replace(profile, self_s=self_s), bare_s=measured.bare_s + 10e-3 * turn[measured.bare_process]
    )
    return attribute("case", baseline, noisy, ())


def test_where_steps_cannot_be_told_apart_what_is_certain_comes_before_what_rests_on_times():
    conv, python = op_key(CONV, module(0)), python_key(module(5))
    lost = NET.with_ops({conv: None, contiguous(conv): Op(1, 5e-3), **slower(python, by_s=0.3e-3)})
    result = unsettled(lost, contiguous(conv), 4.9e-3)
    assert result.balance.is_in_doubt
    first, second = result.culprits
    assert (told(first), told(second)) == (("layout.lost", module(0), 1), ("python.time", module(5), 1))
    assert first.is_within_noise


def test_a_fact_that_cannot_have_cost_as_much_comes_behind_what_did():
    python = python_key(module(4))
    lost = NET.with_ops({RELU: None, contiguous(RELU): Op(1, 0.5e-3), **slower(python, by_s=3e-3)})
    result = unsettled(lost, contiguous(RELU), 0.1e-3)
    assert result.balance.is_in_doubt
    first, second = result.culprits
    assert (told(first), told(second)) == (("python.time", module(4), 1), ("layout.lost", module(5), 1))
