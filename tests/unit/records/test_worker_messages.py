"""Messages of a worker: one line of JSON, with numbers that exist."""

from __future__ import annotations

import json

import pytest

from perfguard.records.protocol import decode, encode


def test_a_message_comes_back_as_it_was_sent():
    message = {
        "reply": "sample",
        "value_s": 0.25,
        "affinity": [0, 1],
        "own": {"loss": -1.5},
        "detail": "é\n",
        "none": None,
    }
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"nothing",
        b'{"value_s": NaN}',
        b'{"checks": {"loss": Infinity}}',
        b'{"value_s": 1e999}',
        b'{"faults": 1' + b"0" * 400 + b"}",
        b'{"faults": -9223372036854775809}',
        b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"a": ' + b"[" * 60_000 + b"]" * 60_000 + b"}",
        b'{"a": 1',
    ],
)
def test_what_is_no_message_is_an_error(line):
    with pytest.raises(ValueError, match="not a message"):
        decode(line)


def test_half_surrogates_become_something_that_can_be_written():
    found = decode(json.dumps({"reason": "\ud800 broken"}).encode())
    assert found == {"reason": "? broken"}
    found["reason"].encode("utf-8")
