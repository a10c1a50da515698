from __future__ import annotations

import numpy as np
import pytest

from perfguard.profile.changes.attribution import attribute
from perfguard.profile.op_times.op_profile import merge, profile_of
from perfguard.profile.trace.context import context_of
from perfguard.profile.trace.op_spans import changed_line, python_lines
from perfguard.profile.trace.trace import read_trace
from perfguard.records.steps.ops import PYTHON_OP
from tests.changed_values import replace
from tests.profile_traces import TraceBuilder
from tests.simulated_profiles import SILENCE, Arm, Op, op_key, profiled, python_key


@pytest.fixture
def read(tmp_path):
    return lambda builder: read_trace(builder.write(tmp_path / "trace.json"))


def microseconds(trace):
    """By phase, module and line."""
    return {
        (key.phase.value, key.module, line): pytest.approx(1e6 * seconds, abs=1e-3)
        for key, lines in python_lines(trace, context_of(trace)).items()
        for line, seconds in lines.items()
    }


def test_time_in_no_op_belongs_to_the_line_that_ran(read):
    builder = TraceBuilder()
    with builder.step():
        builder.line("train.py:10")
        builder.wait(5)
        builder.leaf("aten::randn", 100)
        builder.wait(7)
        builder.line("train.py:11")
        builder.wait(40)
        with builder.module("Net"):
            builder.wait(3)
            builder.line("net.py:4")
            builder.wait(2)
            builder.leaf("aten::relu", 100)
            builder.line("net.py:5")
            builder.wait(30)
    assert microseconds(read(builder)) == {
        ("load", "", "train.py:10"): 12,
        ("load", "", "train.py:11"): 40,
        ("forward", "Net", "train.py:11"): 3,
        ("forward", "Net", "net.py:4"): 2,
        ("forward", "Net", "net.py:5"): 30,
    }


def test_what_no_line_is_known_of_is_left_out(read):
    builder = TraceBuilder()
    with builder.step():
        builder.wait(5)
        builder.line("train.py:10")
        builder.wait(6)
        builder.line("")
        builder.leaf("aten::add", 1)
        builder.wait(7)
    assert microseconds(read(builder)) == {("forward", "", "train.py:10"): 6}
    silent = TraceBuilder()
    with silent.step():
        silent.wait(5)
        silent.leaf("aten::add", 1)
    assert microseconds(read(silent)) == {}


def test_lines_of_several_steps_are_a_mean_and_other_threads_do_not_count(read):
    builder = TraceBuilder()
    for us in (10, 30):
        with builder.step():
            builder.line("train.py:10")
            builder.wait(us)
        builder.wait(500)  # between steps
    assert microseconds(read(builder)) == {("forward", "", "train.py:10"): 20}


def test_lines_of_all_places_add_up_to_the_time_in_no_op_where_every_line_is_known(read):
    rng = np.random.default_rng(6)
    builder = TraceBuilder()
    with builder.step():
        builder.line("a.py:1")
        for number in range(40):
            with builder.module(f"Net.{number % 3}"):
                for _ in range(int(rng.integers(1, 5))):
                    builder.wait(int(rng.integers(0, 9)))
                    builder.line(f"a.py:{rng.integers(1, 9)}")
                    if rng.random() < 0.5:
                        builder.leaf("aten::add", int(rng.integers(1, 9)))
    profile = profile_of(read(builder))
    for column, key in enumerate(profile.keys):
        if key.op == PYTHON_OP:
            told_s = sum(profile.python_lines.get(key, {}).values())
            assert told_s == pytest.approx(float(profile.self_s[0, column]), abs=1e-9), key


def test_a_profile_names_the_line_that_took_most_of_a_place(read):
    builder = TraceBuilder()
    with builder.step():
        builder.line("train.py:10")
        builder.wait(5)
        builder.line("train.py:11")
        builder.wait(9)
        builder.line("train.py:10")
        builder.wait(5)
    profile = merge([profile_of(read(builder))])
    assert [source for key, source in profile.sources.items() if key.op == PYTHON_OP] == ["train.py:10"]


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ({"a.py:1": 5.0}, {"a.py:1": 5.1, "a.py:2": 2.0}, "a.py:2"),
        ({"a.py:1": 5.0, "a.py:2": 2.0}, {"a.py:1": 5.0}, "a.py:2"),
        ({"a.py:1": 5.0, "a.py:2": 1.0}, {"a.py:2": 4.9, "a.py:3": 6.0}, "a.py:3"),
        ({}, {}, None),
    ],
    ids=["slower", "faster", "moved", "unknown"],
)
def test_of_two_arms_it_is_the_line_that_changed(before, after, line):
    assert changed_line(before, after) == line


def test_a_step_that_sleeps_is_blamed_on_the_line_that_sleeps():
    place = python_key("Net")
    arm = Arm({op_key("aten::mm", "Net"): Op(1, 5e-3), place: Op(1, 1e-3)})
    before, after = profiled(arm, arm.with_ops({place: Op(1, 3e-3)}), SILENCE)
    found = attribute(
        "case", located(before, {"net.py:7": 9e-4}), located(after, {"net.py:7": 9e-4, "net.py:8": 2e-3}), ()
    )
    fact = found.culprits[0].fact
    assert (fact.code, fact.subject.op, fact.subject.place) == ("python.time", "Net", "net.py:8")


def located(profile, lines):
    keys = {key: lines for key in profile.profile.keys if key.op == PYTHON_OP}
    return replace(profile, profile=replace(profile.profile, python_lines=keys))
