from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfguard.errors import MeasurementError
from perfguard.profile.op_times.op_profile import merge, profile_of, totals
from perfguard.profile.trace.context import context_of
from perfguard.profile.trace.op_spans import keyed
from perfguard.profile.trace.trace import read_trace
from perfguard.records.steps.ops import PYTHON_OP, OpKey, StepPhase
from tests.profile_traces import TraceBuilder, training_step

PYTHON_PLACES = {
    (StepPhase.LOAD, ""): 1,
    (StepPhase.FORWARD, "Net"): 2,
    (StepPhase.FORWARD, "Net.conv"): 4,
    (StepPhase.LOSS, ""): 5,
    (StepPhase.LOSS, "MSELoss"): 0,
    (StepPhase.BACKWARD, ""): 6,
    (StepPhase.BACKWARD, "MSELoss"): 0,
    (StepPhase.BACKWARD, "Net.conv"): 0,
    (StepPhase.OPTIMIZER, ""): 5,
    (StepPhase.OPTIMIZER, "Adam"): 11,
}
"""Microseconds of `training_step` that lie in no op."""


def profiled(tmp_path, builder, process=0):
    return profile_of(read_trace(builder.write(tmp_path / "trace.json")), process)


def steps(count):
    builder = TraceBuilder()
    for number in range(count):
        training_step(builder, first_sequence=2 * number)
    return builder


def by_op(profile, values):
    return {key.op: value for key, value in zip(profile.keys, values, strict=True) if key.op != PYTHON_OP}


def microseconds(profile):
    return np.rint(profile.self_s * 1e6).astype(int)


def test_own_times_stay_with_their_op(tmp_path):
    profile = profiled(tmp_path, steps(1))
    assert by_op(profile, microseconds(profile)[0].tolist()) == {
        "aten::randn": 9,
        "aten::conv2d": 4,
        "aten::convolution": 30,
        "aten::mse_loss": 10,
        "aten::ones_like": 5,
        "MseLossBackward0": 1,
        "aten::mse_loss_backward": 14,
        "ConvolutionBackward0": 2,
        "aten::convolution_backward": 60,
        "torch::autograd::AccumulateGrad": 1,
        "aten::detach": 2,
        "aten::linalg_vector_norm": 8,
        "aten::_fused_adam_": 20,
    }


def test_time_in_no_op_belongs_to_its_place(tmp_path):
    profile = profiled(tmp_path, steps(1))
    found = {
        (key.phase, key.module): value
        for key, value in zip(profile.keys, microseconds(profile)[0].tolist(), strict=True)
        if key.op == PYTHON_OP
    }
    assert found == PYTHON_PLACES


def test_steps_are_counted_apart(tmp_path):
    profile = profiled(tmp_path, steps(3), process=5)
    assert profile.process.tolist() == [5, 5, 5]
    assert (profile.calls == profile.calls[0]).all()
    assert set(by_op(profile, profile.calls[0].tolist()).values()) == {1}
    assert profile.wall_s == pytest.approx([200e-6] * 3)
    assert profile.events.tolist() == [21] * 3


def test_keys_hold_what_an_op_was_called_with(tmp_path):
    (key,) = [key for key in profiled(tmp_path, steps(1)).keys if key.op == "aten::convolution_backward"]
    assert key == OpKey(
        phase=StepPhase.BACKWARD,
        module="Net.conv",
        op="aten::convolution_backward",
        shapes="[2,4,6,6] [2,3,8,8] [4,3,3,3]",
        dtypes="f32 f32 f32",
        layouts="contiguous contiguous contiguous",
    )


def test_annotations_count_once_at_every_place_they_have_time_in(tmp_path):
    profile = profiled(tmp_path, steps(1))
    counts = {
        (key.phase, key.module): calls
        for key, calls in zip(profile.keys, profile.calls[0].tolist(), strict=True)
        if key.op == PYTHON_OP
    }
    assert counts[StepPhase.LOSS, ""] == 1
    assert counts[StepPhase.OPTIMIZER, "Adam"] == 2
    assert counts[StepPhase.BACKWARD, "Net.conv"] == 2


def test_a_step_ends_in_the_phase_that_it_was_in(tmp_path):
    builder = TraceBuilder()
    with builder.step(), builder.span("mine"):
        with builder.module("Net"):
            builder.leaf("aten::tanh", 1, sequence=1)
        with builder.gradient("TanhBackward0", 1):
            builder.leaf("aten::tanh_backward", 1)
        builder.wait(7)
    profile = profiled(tmp_path, builder)
    phases = {key.phase for key in profile.keys}
    assert phases == {StepPhase.LOAD, StepPhase.FORWARD, StepPhase.LOSS, StepPhase.BACKWARD}
    places = [(key.op, key.phase, key.module) for key in profile.keys]
    assert microseconds(profile)[0, places.index((PYTHON_OP, StepPhase.BACKWARD, ""))] == 7


def test_allocations_are_no_events(tmp_path):
    builder = TraceBuilder()
    with builder.step(), builder.op("aten::empty", us=2):
        builder.allocation(64)
        builder.wait(1)
    profile = profiled(tmp_path, builder)
    assert profile.events.tolist() == [1]
    assert {key.op for key in profile.keys} == {PYTHON_OP, "aten::empty"}


def test_python_frames_change_nothing_but_sources(tmp_path):
    builder = TraceBuilder()
    with builder.step():
        builder.wait(3)
        with builder.frame("train.py(3): step"):
            builder.wait(4)
            builder.leaf("aten::add", 2)
    profile = profiled(tmp_path, builder)
    assert profile.events.tolist() == [1]
    assert {key.op: us for key, us in zip(profile.keys, microseconds(profile)[0].tolist(), strict=True)} == {
        PYTHON_OP: 7,
        "aten::add": 2,
    }


def test_the_most_frequent_source_of_an_op_is_named(tmp_path):
    builder = TraceBuilder()
    with builder.step():
        for line in (1, 2, 2):
            with builder.frame(f"train.py({line}): f"):
                builder.leaf("aten::add", 1)
        builder.leaf("aten::mul", 1)
    assert list(profiled(tmp_path, builder).sources.values()) == ["train.py:2"]


NAMES = ("module:Net", "module:Net.a", "module:MSELoss", "mine", "aten::add", "aten::mse_loss")
NODES = ("Optimizer.step#SGD.step", "autograd::engine::evaluate_function: AddBackward0", "aten::mul", "x.py(1): f")
TREES = st.recursive(
    st.tuples(st.sampled_from(NAMES + NODES), st.integers(0, 50), st.just([])),
    lambda below: st.tuples(st.sampled_from(NAMES + NODES), st.integers(0, 50), st.lists(below, max_size=4)),
    max_leaves=20,
)


def play(builder, tree):
    name, wait, below = tree
    category = "cpu_op" if "::" in name else "python_function" if "(" in name else "user_annotation"
    with builder.span(name, category, **({"Sequence number": wait % 3} if "::" in name else {})):
        builder.wait(wait / 8)
        for child in below:
            play(builder, child)
            builder.wait(wait / 4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(st.lists(st.lists(TREES, max_size=4), min_size=1, max_size=3))
def test_keys_make_up_the_step_exactly(tmp_path, contents):
    builder = TraceBuilder()
    builder.leaf("aten::outside", 1)
    for trees in contents:
        with builder.step():
            builder.wait(1)
            for tree in trees:
                builder.wait(0.5)
                play(builder, tree)
    profile = profiled(tmp_path, builder)
    assert profile.wall_s.size == len(contents)
    whole_ns = np.rint(profile.self_s * 1e9).astype(np.int64)
    assert whole_ns.sum(axis=1).tolist() == np.rint(profile.wall_s * 1e9).astype(np.int64).tolist()
    assert (whole_ns >= 0).all()
    assert (profile.child_events >= 0).all()
    assert len(set(profile.keys)) == len(profile.keys)


EVENTS = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.sampled_from(["cpu_op", "user_annotation", "python_function", "kernel"]),
        "name": st.sampled_from((*NAMES, *NODES, "perfguard::step", "ProfilerStep#1", "nn.Module: Net_0")),
        "tid": st.integers(1, 2),
        "ts": st.integers(0, 400).map(lambda eighths: eighths / 8),
        "dur": st.integers(0, 200).map(lambda eighths: eighths / 8),
        "args": st.fixed_dictionaries({"Sequence number": st.integers(-1, 3)}),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(EVENTS, max_size=25))
def test_whatever_a_trace_holds_its_keys_make_up_the_steps(tmp_path, events):
    builder = TraceBuilder()
    builder.leaf("aten::add", 3)
    builder.events += events
    profile = profiled(tmp_path, builder)
    whole_ns = np.rint(profile.self_s * 1e9).astype(np.int64)
    assert whole_ns.sum(axis=1).tolist() == np.rint(profile.wall_s * 1e9).astype(np.int64).tolist()
    assert (whole_ns >= 0).all()
    assert (profile.calls >= 0).all()
    assert (profile.child_events >= 0).all()


def test_profiles_of_processes_are_merged_by_key(tmp_path):
    first = profiled(tmp_path, steps(2), process=0)
    builder = TraceBuilder()
    with builder.step():
        builder.leaf("aten::new", 7)
        builder.leaf("aten::randn", 9)
    second = profiled(tmp_path, builder, process=1)
    both = merge([first, second])
    assert both.process.tolist() == [0, 0, 1]
    assert both.self_s.sum(axis=1) == pytest.approx(both.wall_s)
    assert both.events.tolist() == [*first.events, *second.events]
    columns = {key: column for column, key in enumerate(both.keys)}
    for key in first.keys:
        assert both.calls[:2, columns[key]].tolist() == first.calls[:, first.keys.index(key)].tolist()
    assert by_op(both, both.calls[2].tolist())["aten::new"] == 1


def test_merging_nothing_is_refused():
    with pytest.raises(MeasurementError, match="no step was profiled"):
        merge([])


def test_totals_are_means_over_the_steps_the_largest_first(tmp_path):
    builder = TraceBuilder()
    for wait in (2, 4):
        with builder.step():
            builder.leaf("aten::slow", 10)
            builder.leaf("aten::varying", wait)
    found = totals(profiled(tmp_path, builder))
    assert [total.key.op for total in found] == ["aten::slow", "aten::varying", PYTHON_OP]
    assert found[1].self_s == pytest.approx(3e-6)
    assert found[1].calls == 1.0


def test_totals_are_of_the_steps_in_the_middle_and_add_up_to_them(tmp_path):
    """One step of six is held up, and another one has work that the others have not."""
    builder = TraceBuilder()
    for slow, fast in ((10, 5), (11, 5), (12, 5), (13, 5), (500, 5), (9, 5)):
        with builder.step():
            builder.leaf("aten::slow", slow)
            builder.leaf("aten::fast", fast)
            if slow == 500:
                builder.leaf("aten::rare", 1)
    found = {total.key.op: total.self_s for total in totals(profiled(tmp_path, builder))}
    assert found["aten::slow"] == pytest.approx(11.5e-6)
    assert found["aten::fast"] == pytest.approx(5e-6)
    assert "aten::rare" not in found


def test_ops_of_a_step_have_keys_of_their_own(tmp_path):
    trace = read_trace(steps(2).write(tmp_path / "trace.json"))
    context = context_of(trace)
    events = np.flatnonzero(context.is_op & (context.step == 1))
    found = keyed(trace, context, events)
    assert [found.keys[key].op for key in found.key] == [trace.names[name] for name in trace.name[events]]
    assert (context.step[events] == 1).all()
    assert events.size == 13
