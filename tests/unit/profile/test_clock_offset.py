from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.profile.libraries.join import MAX_OFFSET_NS, clock_offset_ns
from perfguard.profile.libraries.verbose import PrimitiveCall
from perfguard.profile.trace.op_spans import OpSpans
from perfguard.records.steps.ops import OpKey, StepPhase
from tests.library_calls import BASE_NS, US, onednn_call

OPS = ("aten::mkldnn_convolution", "aten::mm", "aten::relu")


def step_of(lengths_us: list[int], *, gap_us: int = 3) -> tuple[OpSpans, list[PrimitiveCall]]:
    """Ops in turn: a convolution, a product, an activation. Each makes one call, with 5 us before and after it."""
    names = ("convolution", "matmul", "eltwise")
    starts, ends, calls, now_us = [], [], [], 1_000
    for index, length_us in enumerate(lengths_us):
        starts.append(now_us * US)
        ends.append((now_us + length_us + 10) * US)
        calls.append(onednn_call(names[index % 3], now_us + 5, length_us))
        now_us += length_us + 10 + gap_us
    keys = tuple(OpKey(phase=StepPhase.FORWARD, module="", op=op, shapes="", dtypes="", layouts="") for op in OPS)
    spans = OpSpans(
        start_ns=np.array(starts, dtype=np.int64),
        end_ns=np.array(ends, dtype=np.int64),
        thread=np.zeros(len(starts), dtype=np.int64),
        key=np.arange(len(starts)) % 3,
        keys=keys,
        base_ns=BASE_NS,
    )
    return spans, calls


def leaves_of(spans: OpSpans) -> np.ndarray:
    return np.flatnonzero(spans.key < 2)


def shifted(spans: OpSpans, shift_ns: int) -> OpSpans:
    return OpSpans(
        start_ns=spans.start_ns + shift_ns,
        end_ns=spans.end_ns + shift_ns,
        thread=spans.thread,
        key=spans.key,
        keys=spans.keys,
        base_ns=BASE_NS,
    )


LENGTHS_US = [40, 200, 35, 70, 15, 90, 150, 60, 20]


def test_clocks_that_agree_are_left_alone():
    spans, calls = step_of(LENGTHS_US)
    assert clock_offset_ns(spans, leaves_of(spans), calls) == 0


@pytest.mark.parametrize("shift_us", [-700_000, -350, -40, 40, 90, 1_300, 900_000])
def test_a_constant_offset_is_found_to_within_the_slack_of_the_ops(shift_us):
    spans, calls = step_of(LENGTHS_US)
    found = clock_offset_ns(shifted(spans, shift_us * US), leaves_of(spans), calls)
    assert abs(found - shift_us * US) <= 6 * US


def test_an_offset_that_puts_every_call_into_some_op_but_of_another_kind_is_not_taken_for_none():
    # Shifted by one op and a gap: nearly all calls lie in ops, but convolutions lie in products.
    spans, calls = step_of([40] * 30, gap_us=1)
    found = clock_offset_ns(shifted(spans, 51 * US), leaves_of(spans), calls)
    assert abs(found - 51 * US) <= 6 * US


def test_clocks_farther_apart_than_can_be_are_left_alone():
    spans, calls = step_of(LENGTHS_US)
    assert clock_offset_ns(shifted(spans, 2 * MAX_OFFSET_NS), leaves_of(spans), calls) == 0


def test_a_call_of_an_unusual_op_does_not_move_the_rest():
    spans, calls = step_of(LENGTHS_US * 4)
    stray = onednn_call("matmul", int(spans.end_ns[-1]) // US + 20, 30)
    assert clock_offset_ns(spans, leaves_of(spans), [*calls, stray]) == 0


def test_without_telling_calls_or_ops_nothing_is_shifted():
    spans, calls = step_of(LENGTHS_US)
    moved = shifted(spans, 50 * US)
    assert clock_offset_ns(moved, leaves_of(moved), [call for call in calls if call.primitive == "eltwise"]) == 0
    assert clock_offset_ns(moved, np.array([], dtype=np.intp), calls) == 0
    assert clock_offset_ns(moved, leaves_of(moved), []) == 0


@settings(deadline=None)
@given(st.lists(st.integers(1, 300), min_size=12, max_size=30), st.integers(-900_000, 900_000))
def test_the_offset_found_puts_at_least_as_many_calls_into_ops_of_their_kind(lengths_us, shift_us):
    spans, calls = step_of(lengths_us)
    moved = shifted(spans, shift_us * US)
    found = clock_offset_ns(moved, leaves_of(moved), calls)

    def matching(offset_ns: int) -> int:
        count = 0
        for index, call in enumerate(calls):
            if index % 3 == 2:
                continue
            start = moved.time_ns(call.timestamp_s) + offset_ns
            inside = (moved.start_ns - 1_000 <= start) & (moved.end_ns + 1_000 >= start + round(call.time_s * 1e9))
            count += bool((inside & (moved.key == index % 3)).any())
        return count

    assert matching(found) >= matching(0)
    assert matching(found) >= 0.9 * sum(index % 3 < 2 for index in range(len(calls)))
