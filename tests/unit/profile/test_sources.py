"""Lines by marks; by frames in test_context.py."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfguard.profile.op_counts.steady import counts_of_steps, op_counts_of
from perfguard.profile.op_times.op_profile import profile_of
from perfguard.profile.trace.context import context_of
from perfguard.profile.trace.sources import sources_of
from perfguard.profile.trace.trace import read_trace
from tests.profile_traces import TraceBuilder, training_step


@pytest.fixture
def read(tmp_path):
    return lambda builder: read_trace(builder.write(tmp_path / "trace.json"))


@pytest.fixture
def lines(read):
    """The line of each op of a builder, by name."""

    def of(builder):
        trace = read(builder)
        context = context_of(trace)
        names = [trace.names[name] for name in trace.name]
        found = [context.sources[source] for source in context.source]
        return {name: line for name, line in zip(names, found, strict=True) if name.startswith("aten::")}

    return of


def test_an_op_is_of_the_line_that_was_marked_last(lines):
    builder = TraceBuilder()
    with builder.step():
        builder.leaf("aten::randn", 1)
        builder.line("train.py:12")
        with builder.op("aten::linear"):
            builder.leaf("aten::addmm", 1)
        builder.line("train.py:13")
        builder.line("net.py:4")
        builder.leaf("aten::relu", 1)
    assert lines(builder) == {
        "aten::randn": "",
        "aten::linear": "train.py:12",
        "aten::addmm": "train.py:12",
        "aten::relu": "net.py:4",
    }


def test_where_the_users_code_is_left_there_is_no_line(lines):
    builder = TraceBuilder()
    with builder.step():
        builder.line("train.py:12")
        builder.leaf("aten::linear", 1)
        builder.line("")
        builder.leaf("aten::relu", 1)
    assert lines(builder) == {"aten::linear": "train.py:12", "aten::relu": ""}


def test_a_mark_tells_more_than_the_frame_around_it(lines):
    builder = TraceBuilder()
    with builder.step(), builder.frame("train.py(8): step"):
        builder.line("train.py:12")
        builder.leaf("aten::linear", 1)
        builder.thread = 2
        with builder.frame("loader.py(3): fetch"):
            builder.leaf("aten::stack", 1)
        builder.thread = 1
    assert lines(builder) == {"aten::linear": "train.py:12", "aten::stack": "loader.py:3"}


def test_marks_of_another_thread_lead_to_nothing(lines):
    builder = TraceBuilder()
    with builder.step():
        builder.line("train.py:12")
        builder.thread = 2
        builder.leaf("aten::linear", 1)
        builder.thread = 1
    assert lines(builder) == {"aten::linear": ""}


def test_backward_ops_are_of_the_line_of_their_forward_op(lines):
    builder = TraceBuilder()
    with builder.step():
        builder.line("net.py:4")
        builder.leaf("aten::linear", 1, sequence=1)
        builder.line("train.py:20")
        builder.leaf("aten::mse_loss", 1, sequence=2)
        builder.line("train.py:21")
        builder.leaf("aten::ones_like", 1)
        with builder.gradient("MseLossBackward0", 2):
            builder.leaf("aten::mse_loss_backward", 1)
        with builder.gradient("AddmmBackward0", 1):
            builder.leaf("aten::mm", 1)
        with builder.gradient("torch::autograd::AccumulateGrad", None):
            builder.leaf("aten::detach", 1)
        builder.line("train.py:22")
        with builder.span("Optimizer.step#SGD.step"):
            builder.leaf("aten::add_", 1)
    assert lines(builder) == {
        "aten::linear": "net.py:4",
        "aten::mse_loss": "train.py:20",
        "aten::ones_like": "train.py:21",
        "aten::mse_loss_backward": "train.py:20",
        "aten::mm": "net.py:4",
        "aten::detach": "net.py:4",
        "aten::add_": "train.py:22",
    }


def test_a_backward_that_is_the_users_own_code_has_its_own_lines(lines):
    builder = TraceBuilder()
    with builder.step():
        builder.line("net.py:4")
        builder.leaf("aten::pow", 1, sequence=1)
        builder.line("train.py:21")
        with builder.gradient("CubeBackward", 1):
            builder.leaf("aten::empty", 1)
            builder.line("cube.py:30")
            builder.leaf("aten::mul", 1)
            builder.line("train.py:21")
            builder.leaf("aten::sum", 1)
    assert lines(builder) == {
        "aten::pow": "net.py:4",
        "aten::empty": "net.py:4",
        "aten::mul": "cube.py:30",
        "aten::sum": "net.py:4",
    }


def test_a_backward_whose_forward_is_unknown_is_of_the_line_that_asked_for_it(lines):
    builder = TraceBuilder()
    with builder.step():
        builder.line("train.py:21")
        with builder.gradient("MulBackward0", 77):
            builder.leaf("aten::mul", 1)
    assert lines(builder) == {"aten::mul": "train.py:21"}


def test_a_gradient_of_a_gradient_is_of_the_line_of_the_forward_op(lines):
    builder = TraceBuilder()
    with builder.step():
        builder.line("net.py:4")
        builder.leaf("aten::tanh", 1, sequence=1)
        builder.line("train.py:21")
        with builder.gradient("TanhBackward0", 1):
            builder.leaf("aten::tanh_backward", 1, sequence=2)
        builder.line("train.py:22")
        with builder.gradient("TanhBackwardBackward0", 2):
            builder.leaf("aten::mul", 1)
    assert lines(builder) == {"aten::tanh": "net.py:4", "aten::tanh_backward": "net.py:4", "aten::mul": "net.py:4"}


def test_forward_again_inside_backward_is_of_the_line_that_runs_again(lines):
    builder = TraceBuilder()
    with builder.step():
        builder.line("train.py:19")
        builder.leaf("aten::linear", 1, sequence=1)
        builder.line("train.py:21")
        with builder.gradient("CheckpointFunctionBackward", 1), builder.module("Net.block"):
            builder.line("net.py:4")
            builder.leaf("aten::addmm", 1)
    assert lines(builder)["aten::addmm"] == "net.py:4"


def test_marks_are_no_part_of_what_a_step_executes(read):
    def counts(trace):
        (counts,) = counts_of_steps(trace, context_of(trace))
        return op_counts_of(counts, case_id="case", isa_class="avx2", torch="2.13.0").rows

    plain, marked = TraceBuilder(), TraceBuilder()
    training_step(plain)
    marked.line("train.py:1")
    training_step(marked)
    for event in list(marked.events):
        marked.now_us, marked.thread = event["ts"] + event["dur"] / 2, event["tid"]
        marked.line("train.py:2")
    traces = read(plain), read(marked)
    assert counts(traces[1]) == counts(traces[0])
    assert traces[1].line_marks.name.size == len(marked.events) - len(plain.events)
    profiles = [profile_of(trace) for trace in traces]
    assert profiles[1].keys == profiles[0].keys
    assert (profiles[1].calls == profiles[0].calls).all()
    assert (profiles[1].events == profiles[0].events).all()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.none() | st.sampled_from(["", "a.py:1", "b.py:2"])), min_size=1))
def test_each_op_has_the_latest_mark_of_its_thread(read, happenings):
    builder, latest, expected = TraceBuilder(), {1: "", 2: ""}, []
    with builder.step():
        for thread, mark in happenings:
            builder.thread = thread
            builder.wait(1)
            if mark is None:
                builder.leaf(f"aten::op{len(expected)}", 1)
                expected.append(latest[thread])
            else:
                builder.line(mark)
                latest[thread] = mark
        builder.thread = 1
        builder.leaf("aten::last", 1)
    trace = read(builder)
    sources = sources_of(trace)
    found = {trace.names[name]: sources.lines[line] for name, line in zip(trace.name, sources.at_start, strict=True)}
    assert [found[f"aten::op{number}"] for number in range(len(expected))] == expected
