from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.profile.projection.projection import project, projected_op
from perfguard.records.facts import fact
from perfguard.records.steps.ops import StepPhase
from perfguard.records.steps.projection import Projected
from tests.recorded_ops import problem, tensor

SECONDS = st.just(0.0) | st.floats(1e-9, 10.0)


def row(name, observed_s, projected_s, **fields):
    known = {"detail": "", "phases": (), "modules": (), "calls": 1.0, **fields}
    return Projected(name=name, observed_s=observed_s, projected_s=projected_s, **known)


ROWS = (
    row("slow", 6.0, 2.0),
    row("good", 3.0, 2.9),
    row("unknown", 1.0, None, reason=fact("replay.refused", error="it is new")),
)


def test_a_step_is_its_problems_alone_and_three_kinds_of_loss():
    found = project(ROWS, step_s=16.0)
    assert (found.projected_s, found.lost_s) == (pytest.approx(4.9), pytest.approx(4.1))
    assert (found.unreplayed_s, found.outside_s) == (pytest.approx(1.0), pytest.approx(6.0))


def test_kernel_efficiency_is_of_what_was_replayed_and_framework_efficiency_of_the_step():
    found = project(ROWS, step_s=16.0)
    assert found.kernel_ratio == pytest.approx(4.9 / 9)
    assert found.framework_ratio == pytest.approx(5.9 / 16)
    assert found.coverage_ratio == pytest.approx(0.9)
    assert found.step_coverage_ratio == pytest.approx(9 / 16)


def test_what_loses_most_comes_first_and_what_was_not_replayed_last():
    rows = (*ROWS, row("longer unknown", 2.0, None), row("faster here", 1.0, 1.5))
    names = [problem.name for problem in project(rows, step_s=20.0).problems]
    assert names == ["slow", "good", "faster here", "longer unknown", "unknown"]


def test_nothing_replayed_has_no_kernel_efficiency():
    found = project([row("unknown", 1.0, None)], step_s=2.0)
    assert (found.kernel_ratio, found.framework_ratio, found.coverage_ratio) == (None, 0.5, 0.0)


def test_no_ops_at_all_have_no_coverage():
    found = project([], step_s=2.0)
    assert (found.kernel_ratio, found.coverage_ratio, found.framework_ratio) == (None, None, 0.0)


@given(st.lists(st.tuples(SECONDS, st.none() | SECONDS), max_size=8), st.floats(0.1, 100.0))
def test_the_parts_of_a_step_add_up_to_it(times, step_s):
    found = project([row(str(index), *each) for index, each in enumerate(times)], step_s=step_s)
    parts = found.projected_s + found.lost_s + found.unreplayed_s + found.outside_s
    assert parts == pytest.approx(step_s)
    assert found.framework_ratio * step_s == pytest.approx(found.projected_s + found.unreplayed_s)
    if found.kernel_ratio is not None:
        assert found.kernel_ratio * found.coverage_ratio * found.ops_s == pytest.approx(found.projected_s)


def test_an_ops_calls_are_each_as_fast_as_alone():
    op = problem(
        "aten::mm", tensor(2, 2), calls=4.0, observed_s=10e-3, phases=(StepPhase.BACKWARD,), assumed=("its lists",)
    )
    found = projected_op(op, call_s=2e-3, reason=None, overload="default", assumed=("x=1",))
    assert (found.projected_s, found.gap_s, found.efficiency_ratio) == (
        pytest.approx(8e-3),
        pytest.approx(2e-3),
        pytest.approx(0.8),
    )
    assert (found.implementation, found.assumed) == ("default", ("its lists", "x=1"))


def test_an_op_that_was_not_replayed_has_a_reason_instead():
    found = projected_op(problem("aten::mm", tensor(2, 2)), call_s=None, reason=fact("replay.no_time"))
    assert (found.projected_s, found.gap_s, found.efficiency_ratio) == (None, None, None)
    assert found.reason == fact("replay.no_time")
