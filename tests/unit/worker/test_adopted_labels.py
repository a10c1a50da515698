"""How parameters of other tools stand in case ids."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.benchmarks.selection import names_case, select_from
from perfguard.records.spec import Case, format_parameter
from perfguard.worker.adopted.found import (
    AdoptedTarget,
    adopted_target,
    benchmark_name,
    clean,
    dotted,
    labels_of,
    parameter_name,
    position_of,
)


class Thing:
    pass


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (3, 3),
        (True, True),
        (0.5, 0.5),
        (math.inf, "inf"),
        ("fast", "fast"),
        ("", "empty"),
        ("a,b = [c]*?", "a;b : (c)x_"),
        ("two\nlines\t", "two lines"),
        ((1, 2), "(1; 2)"),
        (None, "None"),
        (math.sqrt, "sqrt"),
        (Thing, "Thing"),
        ("x" * 200, "x" * 60),
    ],
)
def test_values_are_readable(value, label):
    assert labels_of([value]) == (label,)


def test_addresses_of_objects_are_left_out_and_objects_that_read_alike_are_numbered():
    first, second = labels_of([Thing(), Thing()])
    assert second == f"{first}#2"
    assert "0x" not in str(first)


def test_a_number_of_ours_does_not_meet_a_text_that_looks_like_one():
    assert labels_of(["a", "a", "a#2", 1, "1"]) == ("a", "a#2", "a#2#2", 1, "1#2")


def test_numbers_that_are_equal_but_not_the_same_are_told_apart():
    labels = labels_of([1, True, 1.0])
    assert [position_of(label, labels) for label in (1, True, 1.0)] == [0, 1, 2]


@given(st.lists(st.one_of(st.text(), st.integers(), st.booleans(), st.floats(), st.none()), max_size=6))
def test_labels_are_unique_and_ids_of_them_are_found_by_themselves(values):
    labels = labels_of(values)
    assert len({format_parameter(label) for label in labels}) == len(values)
    for label in labels:
        case = Case(benchmark="asv.suite.time_it", target="", parameters=(("p", label),))
        assert select_from([case], [case.id]) == (case,)
        assert names_case("asv.*", case.id)
        assert not set(str(label)) & set(",[]=*?\n")


@given(st.text())
def test_cleaning_twice_changes_nothing(text):
    assert clean(clean(text)) == clean(text)


def test_names_hold_only_what_ids_need():
    assert benchmark_name(("timer", "bench.dots", "a.mul(b).sum(-1)")) == "timer.bench.dots.a.mul_b_.sum_-1"
    assert dotted("tests/perf/test_speed.py") == "tests.perf.test_speed"
    assert [parameter_name(name) for name in ("n", "my param", "phase", "")] == ["n", "my_param", "phase_", "param"]


@pytest.mark.parametrize("text", ["bench.py:name", "perfguard.benchmarks.ops.linear:linear", "asv:name", "other:a:b"])
def test_targets_of_own_benchmarks_name_no_tool(text):
    assert adopted_target(text) is None


def test_targets_read_back():
    target = AdoptedTarget(tool="pytest", place="tests/test_speed.py", name="TestGroup.test_it")
    assert adopted_target(str(target)) == target
