"""Messages between coordinator and workers keep their content as bytes, and nothing else is taken for one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from perfguard.hetero.messages import (
    Evaluate,
    ExecuteWork,
    Range,
    Report,
    ScheduleWork,
    Stop,
    Task,
    WorkerLost,
    decode,
    encode,
)

_NAMES = st.text(max_size=20)
_COUNTS = st.integers(0, 2**40)
_SECONDS = st.floats(0, 1e6)
_RANGES = st.builds(Range, ticket=_COUNTS, task=st.sampled_from(Task), start=_COUNTS, stop=_COUNTS)
_MESSAGES = st.one_of(
    st.builds(ScheduleWork, worker=_NAMES),
    st.builds(
        Report,
        worker=_NAMES,
        ticket=_COUNTS,
        loss=st.floats(allow_nan=False),
        updates=_COUNTS,
        busy_s=_SECONDS,
        waiting_s=_SECONDS,
        transfer_s=_SECONDS,
    ),
    st.builds(WorkerLost, worker=_NAMES, reason=st.text(max_size=500)),
    st.builds(ExecuteWork, range=_RANGES, updates=_COUNTS, learning_rate=st.floats(0, 1e3)),
    st.builds(Evaluate, range=_RANGES),
    st.just(Stop()),
)


@given(_MESSAGES)
def test_a_message_survives_the_way(message):
    assert decode(encode(message)) == message


def test_a_loss_that_is_not_a_number_stays_one():
    report = Report(worker="w", ticket=1, loss=math.nan)
    assert math.isnan(decode(encode(report)).loss)


@pytest.mark.parametrize("character", ["ü", "😀", "\0"])
def test_a_report_fits_into_a_pipe_as_a_whole(character):
    report = Report(worker="w" * 60, ticket=2**60, loss=1e300, updates=2**60, busy_s=1.1, waiting_s=1.1, transfer_s=1.1)
    lost = WorkerLost(worker="w" * 60, reason=character * 500)
    assert max(len(encode(report)), len(encode(lost))) <= 4096
    assert decode(encode(lost)) == lost


def test_an_error_is_told_in_one_line_that_any_encoding_takes():
    lost = WorkerLost.by("w", ValueError("\udc80" * 600 + "\nmore"))
    assert lost.reason == "ValueError: " + "?" * 488
    assert decode(encode(lost)) == lost


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1",
        b"\xa1\xff",
        *(
            msgpack.encode(fields)
            for fields in (
                [],
                [99],
                [0],
                [0, "a", "b"],
                [0, 1],
                [1, "w", "1", 1.0, 1, 0.0, 0.0, 0.0],
                [1, "w", 1, "x", 1, 0.0, 0.0, 0.0],
                [1, "w", 1, 1.0, None, 0.0, 0.0, 0.0],
                [3, [1, "sleep", 0, 1], 1, 0.1],
                {"a": 1},
            )
        ),
    ],
)
def test_other_bytes_are_refused(content):
    with pytest.raises(ValueError, match="not a message"):
        decode(content)
