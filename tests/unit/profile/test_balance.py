from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.profile.changes.diff import balance_of, diff_ops
from perfguard.profile.op_times.overhead import NO_OVERHEAD, charged_events, profiler_cost_s
from tests.changed_values import replace
from tests.simulated_profiles import SILENCE, Arm, Noise, Op, children_of, op_key, profiled, python_key

CONV, RELU = op_key("aten::convolution"), op_key("aten::relu", "Net.relu")
PLAIN = Arm({CONV: Op(1, 5e-3), RELU: Op(1, 2e-3), python_key(): Op(1, 1e-3), python_key("Net"): Op(1, 2e-3)})


def balanced(baseline, candidate):
    return balance_of(baseline, candidate, diff_ops(baseline, candidate))


def without_bare_steps(arm):
    none = np.empty(0)
    return replace(arm, bare_s=none, bare_thread_s=none, bare_process=none.astype(np.int64))


times = st.floats(1e-5, 1e-2)


@settings(max_examples=50, deadline=None)
@given(st.lists(times, min_size=4, max_size=4), st.integers(0, 99), st.floats(0, 0.5))
def test_the_parts_always_add_up_to_the_difference(after, seed, idle_ratio):
    candidate = Arm({key: Op(1, self_s) for key, self_s in zip(PLAIN.ops, after, strict=True)})
    arms = profiled(PLAIN, candidate, replace(Noise(), idle_ratio=idle_ratio), np.random.default_rng(seed))
    balance = balanced(*arms)
    parts = balance.ops_s + balance.python_s + balance.idle_s + balance.unexplained_s
    assert parts == pytest.approx(balance.delta_s, abs=1e-15)
    assert balance.candidate_s - balance.baseline_s == pytest.approx(balance.delta_s, abs=1e-12)
    assert balance.lower_s <= balance.delta_s <= balance.upper_s
    assert balance.unexplained_lower_s <= balance.unexplained_s <= balance.unexplained_upper_s


def test_time_in_ops_and_time_in_none_are_told_apart_and_nothing_is_left():
    candidate = PLAIN.with_ops({CONV: Op(1, 7e-3), python_key(): Op(1, 1.5e-3)})
    balance = balanced(*profiled(PLAIN, candidate, replace(SILENCE, idle_ratio=0)))
    assert balance.ops_s == pytest.approx(2e-3)
    assert balance.python_s == pytest.approx(0.5e-3)
    assert balance.idle_s == pytest.approx(0, abs=1e-12)
    assert balance.unexplained_s == pytest.approx(0, abs=1e-9)
    assert balance.delta_s == pytest.approx(2.5e-3)


def test_without_noise_nothing_is_unexplained_for_certain():
    balance = balanced(*profiled(PLAIN, PLAIN.with_ops({CONV: Op(1, 7e-3)}), SILENCE))
    assert balance.unexplained_lower_s == pytest.approx(0, abs=1e-9)
    assert balance.unexplained_upper_s == pytest.approx(0, abs=1e-9)


def test_steps_of_an_arm_without_bare_ones_are_compared_with_windows():
    baseline, candidate = profiled(PLAIN, PLAIN.with_ops({CONV: Op(1, 7e-3)}), replace(SILENCE, idle_ratio=0.5))
    balance = balanced(baseline, without_bare_steps(candidate))
    assert (balance.idle_s, balance.delta_s) == (0, pytest.approx(2e-3, rel=1e-3))


@pytest.mark.parametrize(
    ("slept_before_s", "slept_s", "in_python_s", "idle_s"),
    [
        (0.0, 1e-3, 3e-3, 1e-3),
        (0.0, 3e-3, 3e-3, 3e-3),
        (0.0, 3e-3, 1e-3, 1e-3),
        (0.0, 3e-3, 0.0, 0.0),
        (1e-3, 3e-3, 5e-3, 2e-3),
        (3e-3, 1e-3, -0.5e-3, -0.5e-3),
        (1e-3, 3e-3, -0.5e-3, 0.0),
    ],
    ids=[
        *("partly asleep", "asleep", "asleep inside ops too", "asleep inside ops"),
        *("more asleep than before", "less asleep inside ops too", "more asleep inside ops"),
    ],
)
def test_idle_time_is_taken_from_the_time_in_no_op_as_far_as_that_goes(slept_before_s, slept_s, in_python_s, idle_s):
    quiet = replace(SILENCE, idle_ratio=0)
    candidate = PLAIN.with_ops({python_key(): Op(1, 1e-3 + in_python_s), CONV: Op(1, 8e-3)})
    baseline, measured = profiled(PLAIN, candidate, quiet)
    before = replace(baseline, bare_thread_s=baseline.bare_s - slept_before_s)
    balance = balanced(before, replace(measured, bare_thread_s=measured.bare_s - slept_s))
    assert balance.idle_s == pytest.approx(idle_s, abs=1e-9)
    assert balance.python_s == pytest.approx(in_python_s - idle_s, abs=1e-9)
    assert balance.ops_s == pytest.approx(3e-3)


def test_traces_taken_elsewhere_are_balanced_by_their_windows():
    arms = profiled(PLAIN, PLAIN.with_ops({CONV: Op(1, 7e-3)}), replace(SILENCE, processes=1))
    balance = balanced(*map(without_bare_steps, arms))
    assert balance.delta_s == pytest.approx(2e-3)
    assert balance.unexplained_s == pytest.approx(0, abs=1e-12)
    assert (balance.lower_s, balance.upper_s) == (-math.inf, math.inf)
    assert (balance.unexplained_lower_s, balance.unexplained_upper_s) == (-math.inf, math.inf)
    assert balance.idle_s == 0
    assert math.isnan(balance.overhead_ratio)


@pytest.mark.parametrize("steps", [(1, 20), (5, 5), (20, 7)])
def test_steps_of_traces_taken_elsewhere_add_up_however_noisy_and_many_they_are(steps):
    noisy = Noise(processes=1, step_sd=0.3, burst=0.9)
    arms = [
        profiled(PLAIN, PLAIN.with_ops({CONV: Op(1, 7e-3)}), replace(noisy, steps=count), np.random.default_rng(count))
        for count in steps
    ]
    balance = balanced(without_bare_steps(arms[0][0]), without_bare_steps(arms[1][1]))
    assert balance.delta_s == pytest.approx(balance.ops_s + balance.python_s)
    assert balance.unexplained_s == pytest.approx(0, abs=1e-12)


def test_what_profiled_steps_do_not_show_is_unexplained():
    baseline, candidate = profiled(PLAIN, PLAIN)
    slower = replace(candidate, bare_s=candidate.bare_s + 1e-3, bare_thread_s=candidate.bare_thread_s + 1e-3)
    balance = balanced(baseline, slower)
    # A longer bare step also lowers what the profiler seems to cost, which both arms share.
    assert balance.unexplained_s == pytest.approx(1e-3)
    assert balance.unexplained_lower_s > 0


@pytest.mark.parametrize("event_s", [0.0, 2e-6, 50e-6])
def test_the_cost_of_an_event_is_the_measured_one(event_s):
    noise = replace(SILENCE, event_s=event_s)
    arms = profiled(PLAIN, PLAIN.with_ops({op_key("aten::mul_"): Op(300, 1e-3)}), noise)
    overhead = diff_ops(*arms).overhead
    assert overhead.event_s == pytest.approx(event_s, abs=1e-12)
    assert overhead.cold_ratio == pytest.approx(0, abs=1e-12)
    assert overhead.own_share == SILENCE.own_share
    assert overhead.step_ratio == pytest.approx(event_s * 4 / PLAIN.step_s, abs=1e-9)


def test_events_never_cost_more_than_profiled_steps_are_longer_by():
    """Measured on empty events: 4 us; in the step 2 us."""
    arms = profiled(PLAIN, PLAIN, replace(SILENCE, event_s=2e-6, warm_ratio=2))
    overhead = diff_ops(*arms).overhead
    assert (overhead.event_s, overhead.module_s) == (pytest.approx(2e-6), pytest.approx(2e-6))
    assert overhead.cold_ratio == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "changed",
    [
        {CONV: Op(1, 7e-3)},  # a slower kernel leaves no colder caches
        {CONV: Op(2, 10e-3)},
        {op_key("aten::mul_"): Op(300, 1e-3)},
        {op_key("aten::mul_"): Op(300, 30e-3)},
    ],
    ids=["slower", "twice", "many small", "many"],
)
def test_what_cold_caches_cost_the_profiler_is_taken_from_what_makes_them_cold(changed):
    arms = profiled(PLAIN, PLAIN.with_ops(changed), replace(SILENCE, event_s=0.3e-6, cold_ratio=0.1))
    diff = diff_ops(*arms)
    assert diff.overhead.cold_ratio == pytest.approx(0.1)
    for key, op in changed.items():
        before_s = PLAIN.ops[key].self_s if key in PLAIN.ops else 0.0
        assert diff.differences.mean[diff.ops.keys.index(key)] == pytest.approx(op.self_s - before_s)
    assert balance_of(*arms, diff).unexplained_s == pytest.approx(0, abs=1e-9)


def test_an_op_that_does_next_to_nothing_bounds_what_lies_inside_an_event():
    arm = PLAIN.with_ops({op_key("aten::detach"): Op(1, 0.05e-6)})
    arms = profiled(arm, arm, replace(SILENCE, event_s=2e-6, own_share=0.1))
    mistaken = (replace(arm, event_cost=replace(arm.event_cost, own_share=0.9)) for arm in arms)
    diff = diff_ops(*mistaken)
    assert diff.overhead.event_s == pytest.approx(2e-6)
    assert diff.overhead.own_share == pytest.approx(0.25e-6 / 2e-6)
    assert (diff.ops.baseline_s >= -1e-12).all()


@pytest.mark.parametrize("more_ops", [0, 300])
def test_hooks_around_modules_cost_as_much_more_as_was_measured(more_ops):
    candidate = PLAIN.with_ops({op_key("aten::mul_"): Op(more_ops, 1e-3)}) if more_ops else PLAIN
    arms = [_with_slow_modules(arm) for arm in profiled(PLAIN, candidate, replace(SILENCE, event_s=2e-6))]
    diff = diff_ops(*arms)
    assert diff.overhead.event_s == pytest.approx(2e-6)
    assert diff.overhead.module_s == pytest.approx(202e-6)
    assert balance_of(*arms, diff).unexplained_s == pytest.approx(0, abs=1e-9)


def _with_slow_modules(arm):
    """The annotations of both places are modules' events, whose hooks take 200 us longer than an op's event."""
    profile = arm.profile
    places = [profile.keys.index(place) for place in (python_key(), python_key("Net"))]
    self_s, modules = profile.self_s.copy(), np.zeros_like(profile.calls)
    self_s[:, places] += 200e-6
    modules[:, places] = 1
    slower = replace(profile, self_s=self_s, wall_s=self_s.sum(axis=1), module_calls=modules)
    return replace(arm, profile=slower, event_cost=replace(arm.event_cost, module_s=202e-6))


def test_a_profiler_that_seems_to_save_time_costs_nothing():
    arms = (replace(arm, bare_s=arm.bare_s * 2) for arm in profiled(PLAIN, PLAIN))
    overhead = diff_ops(*arms).overhead
    assert (overhead.event_s, overhead.module_s, overhead.cold_ratio) == (0, 0, 0)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=4, max_size=4),
    st.floats(0, 1),
    st.integers(0, 50),
    st.sets(st.integers(0, 3), max_size=3),
)
def test_every_event_of_a_step_is_charged_to_some_key(calls, own_share, annotations, dropped):
    kept = [key for column, key in enumerate(PLAIN.ops) if column not in dropped]
    arm = Arm({key: Op(calls[column], 1e-3) for column, key in enumerate(kept)})
    profile = profiled(arm, arm)[0].profile
    ops = sum(op.calls for key, op in arm.ops.items() if key in {CONV, RELU})
    annotations *= any(key not in {CONV, RELU} for key in arm.ops)
    children = children_of(profile.keys, profile.calls[0], annotations)
    charged = charged_events(replace(profile, child_events=np.tile(children, (profile.process.size, 1))), own_share)
    np.testing.assert_allclose(charged.plain.sum(axis=1), ops + annotations)
    assert (charged.plain >= 0).all()
    assert not charged.modules.any()


def test_each_is_charged_for_its_children():
    arm = Arm({RELU: Op(4, 1e-3), CONV: Op(2, 1e-3), python_key(): Op(1, 1e-3)})
    profile = profiled(arm, arm)[0].profile
    children = np.tile([1, 0, 6], (profile.events.size, 1))
    charged = charged_events(replace(profile, child_events=children), 0.75)
    np.testing.assert_allclose(charged.plain[0], [3.25, 1.5, 1.25 + 1])


def test_what_a_wrapper_cannot_hold_is_taken_from_its_place():
    arm = Arm({RELU: Op(4, 1e-6), python_key("Net.relu"): Op(1, 1e-3), CONV: Op(1, 5e-3)})
    profile = profiled(arm, arm)[0].profile
    overhead = replace(NO_OVERHEAD, event_s=10e-6, module_s=10e-6, own_share=0.5)
    cost_s = profiler_cost_s(profile, overhead)[0]
    held_s = profile.self_s[0, 0]
    assert held_s < 20e-6  # half of what four events cost; the other half and an annotation are in the place around it
    np.testing.assert_allclose(cost_s, [held_s, 30e-6 + (20e-6 - held_s), 10e-6])


def test_events_of_modules_are_charged_where_the_modules_are():
    arm = Arm({RELU: Op(4, 1e-3), python_key(): Op(1, 1e-3), python_key("Net"): Op(1, 1e-3)})
    profile = profiled(arm, arm)[0].profile
    modules = np.tile([0, 0, 1], (profile.events.size, 1))
    charged = charged_events(replace(profile, module_calls=modules), 0.75)
    np.testing.assert_allclose(charged.modules[0], [0, 0, 1])
    np.testing.assert_allclose(charged.plain[0], [3.0, 1.0, 1.0])
