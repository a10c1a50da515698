from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.profile.trace.op_spans import NO_OP, TOLERANCE_NS, Nest, OpSpans
from perfguard.records.steps.ops import OpKey, StepPhase

KEY = OpKey(phase=StepPhase.FORWARD, module="", op="aten::mm", shapes="", dtypes="", layouts="")
US = 1_000


def spans_of(*spans: tuple[int, int, int], base_ns: int = 0) -> OpSpans:
    """Ops from (start, end, thread), microseconds."""
    start, end, thread = np.array(spans or np.empty((0, 3)), dtype=np.int64).T
    return OpSpans(
        start_ns=start * US,
        end_ns=end * US,
        thread=thread,
        key=np.zeros(len(spans), dtype=np.intp),
        keys=(KEY,),
        base_ns=base_ns,
    )


def nest_of(*spans: tuple[int, int, int]) -> Nest:
    return Nest(spans_of(*spans), np.arange(len(spans)))


NESTED = ((0, 100, 0), (10, 60, 0), (20, 30, 0), (60, 90, 0), (200, 300, 0))


@pytest.mark.parametrize(
    ("start", "end", "row"),
    [(22, 28, 2), (12, 18, 1), (22, 50, 1), (70, 80, 3), (92, 98, 0), (40, 80, 0), (210, 290, 4)],
)
def test_the_innermost_op_around_a_call(start, end, row):
    assert nest_of(*NESTED).innermost(start * US, end * US) == row


@pytest.mark.parametrize(("start", "end"), [(120, 150), (90, 210), (-50, -20), (310, 320)])
def test_no_op_is_around_what_lies_in_none(start, end):
    assert nest_of(*NESTED).innermost(start * US, end * US) == NO_OP


def test_rounded_clocks_may_stick_out_a_little():
    nest = nest_of((10, 20, 0))
    assert nest.innermost(10 * US - TOLERANCE_NS, 20 * US + TOLERANCE_NS) == 0
    assert nest.innermost(10 * US - TOLERANCE_NS - 1, 20 * US) == NO_OP
    assert nest.innermost(10 * US, 20 * US + TOLERANCE_NS + 1) == NO_OP


def test_of_several_threads_the_shorter_op_is_meant():
    assert nest_of((0, 100, 0), (40, 60, 1)).innermost(45 * US, 50 * US) == 1
    assert nest_of((40, 60, 0), (0, 100, 1)).innermost(45 * US, 50 * US) == 0


def test_leaves_contain_nothing():
    assert sorted(nest_of(*NESTED).leaves().tolist()) == [2, 3, 4]


def test_only_the_rows_asked_for_are_nested():
    spans = spans_of(*NESTED)
    assert Nest(spans, np.array([0, 1])).innermost(22 * US, 28 * US) == 1
    assert Nest(spans, np.array([], dtype=np.intp)).innermost(22 * US, 28 * US) == NO_OP
    assert Nest(spans, np.array([], dtype=np.intp)).leaves().size == 0


def test_a_time_of_day_on_the_clock_of_the_trace():
    spans = spans_of((0, 1, 0), base_ns=1_790_857_026_000_000_000)
    assert spans.time_ns(1_790_857_026.0 + 4_427.5) == pytest.approx(4_427_500_000_000, abs=500)


intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 2)), max_size=12)


@given(intervals, st.integers(0, 60), st.integers(0, 10))
def test_an_op_that_is_found_contains_the_call_even_if_ops_overlap(drawn, start, length):
    spans = [(min(a, b), max(a, b), thread) for a, b, thread in drawn]
    row = nest_of(*spans).innermost(start * US, (start + length) * US)
    if row != NO_OP:
        assert spans[row][0] * US <= start * US + TOLERANCE_NS
        assert spans[row][1] * US >= (start + length) * US - TOLERANCE_NS
