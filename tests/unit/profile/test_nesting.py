from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.profile.trace import nesting
from perfguard.profile.trace.nesting import Spans, nest
from tests.changed_values import replace


def spans_of(*events):
    """Events as `(start, end)` or `(start, end, thread)`."""
    rows = sorted(((*event, 0)[:3] for event in events), key=lambda row: (row[2], row[0], row[0] - row[1]))
    start, end, thread = np.array(rows, dtype=np.int64).T
    return Spans(thread=thread.astype(np.int32), start_ns=start, duration_ns=end - start)


def test_parents_and_own_times():
    tree = nest(spans_of((0, 100), (10, 40), (15, 20), (50, 90), (200, 210)))
    assert tree.parent.tolist() == [-1, 0, 1, 0, -1]
    assert tree.self_ns.tolist() == [30, 25, 5, 40, 10]
    assert tree.stop.tolist() == [4, 3, 3, 4, 5]
    assert [level.tolist() for level in tree.levels] == [[0, 4], [1, 3], [2]]


def test_threads_are_apart():
    tree = nest(spans_of((0, 100, 0), (10, 20, 0), (10, 30, 1), (12, 14, 1)))
    assert tree.parent.tolist() == [-1, 0, -1, 2]
    assert tree.stop.tolist() == [2, 2, 4, 4]


def test_events_with_the_same_times_lie_in_each_other_in_their_order():
    tree = nest(spans_of((0, 10), (0, 10), (10, 20)))
    assert tree.parent.tolist() == [-1, 0, -1]
    assert tree.self_ns.tolist() == [0, 10, 10]


def test_an_event_may_begin_one_nanosecond_before_the_one_before_it_ends():
    tree = nest(spans_of((0, 100), (10, 50), (12, 50), (49, 90)))
    assert tree.parent.tolist() == [-1, 0, 1, 0]
    assert tree.self_ns.tolist() == [20, 2, 37, 41]


def test_an_event_may_end_one_nanosecond_after_the_one_around_it():
    tree = nest(spans_of((0, 100), (10, 51), (12, 52), (60, 101)))
    assert tree.parent.tolist() == [-1, 0, 1, 0]
    assert tree.end_ns.tolist() == [100, 51, 51, 100]
    assert tree.self_ns.sum() == 100


def test_an_event_without_duration_lies_where_it_is():
    tree = nest(spans_of((0, 100), (10, 10), (10, 30), (20, 20), (30, 30), (40, 50)))
    assert tree.parent.tolist() == [-1, 0, 1, 1, 0, 0]
    assert tree.self_ns.sum() == 100


def test_an_event_that_outlives_the_one_around_it_is_cut():
    tree = nest(spans_of((0, 100), (50, 150), (120, 130), (160, 170)))
    assert tree.parent.tolist() == [-1, 0, -1, -1]
    assert tree.end_ns.tolist() == [100, 100, 130, 170]


def test_children_are_counted():
    tree = nest(spans_of((0, 100), (10, 40), (15, 20), (50, 90)))
    assert tree.children(np.array([True] * 4)).tolist() == [2, 1, 0, 0]
    assert tree.children(np.array([True, True, False, True])).tolist() == [2, 0, 0, 0]


SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 1)).map(
        lambda span: (span[0], span[0] + span[1], span[2])
    ),
    min_size=1,
    max_size=25,
)


@given(SPANS)
def test_whatever_overlaps_the_result_is_nested_and_adds_up(events):
    spans = spans_of(*events)
    tree = nest(spans)
    inside = tree.parent >= 0
    parent = tree.parent[inside]
    assert (parent < np.flatnonzero(inside)).all()
    assert (spans.thread[parent] == spans.thread[inside]).all()
    assert (spans.start_ns[parent] <= spans.start_ns[inside]).all()
    assert (tree.end_ns[inside] <= tree.end_ns[parent]).all()
    assert (tree.end_ns >= spans.start_ns).all()
    assert (tree.self_ns >= 0).all()
    for event in range(spans.start_ns.size):
        subtree = tree.self_ns[event : tree.stop[event]]
        assert subtree.sum() == tree.end_ns[event] - spans.start_ns[event]


@given(SPANS)
def test_counting_and_stack_agree_where_nothing_overlaps(events):
    spans = spans_of(*events)
    fitted = replace(spans, duration_ns=nest(spans).end_ns - spans.start_ns)
    order = np.lexsort((-fitted.duration_ns, fitted.start_ns, fitted.thread))
    opens, closes = nesting._bounds(replace(fitted, duration_ns=fitted.duration_ns[order]))
    for thread in (0, 1):
        own = fitted.thread == thread
        counted = nesting._depth_by_counting(opens[own], closes[own]).tolist()
        assert counted == nesting._depth_by_stack(opens[own], closes[own])


@settings(max_examples=20)
@given(st.integers(1, 400))
def test_deep_stacks_are_no_problem(depth):
    tree = nest(spans_of(*((level, 1000 - level) for level in range(depth))))
    assert tree.parent.tolist() == list(range(-1, depth - 1))


def test_no_event_is_lost_in_a_large_random_trace():
    rng = np.random.default_rng(1)
    starts = rng.integers(0, 10_000, 5_000)
    spans = spans_of(*zip(starts, starts + rng.integers(0, 300, 5_000), strict=True))
    tree = nest(spans)
    assert sorted(np.concatenate(tree.levels).tolist()) == list(range(5_000))
    roots = tree.parent < 0
    assert tree.self_ns.sum() == (tree.end_ns - spans.start_ns)[roots].sum()


def test_one_event_is_enough():
    tree = nest(spans_of((5, 5)))
    assert (tree.parent.tolist(), tree.self_ns.tolist(), tree.stop.tolist()) == ([-1], [0], [1])


@pytest.mark.parametrize("threads", [1, 3])
def test_stops_end_at_the_next_event_that_is_no_descendant(threads):
    spans = spans_of(*((start, start + 10, thread) for start in (0, 20) for thread in range(threads)))
    assert nest(spans).stop.tolist() == list(range(1, 2 * threads + 1))
