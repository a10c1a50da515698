"""From bytes to a document: what is too large, packed, cut off, nested, repeated or no JSON gives one sentence."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.errors import StoreError
from perfguard.integrations.formats import reading
from perfguard.integrations.formats.reading import parse


def refused(content: bytes) -> str:
    with pytest.raises(StoreError) as caught:
        parse(content, source="x.json")
    sentence = str(caught.value)
    assert sentence.startswith("x.json")
    assert "\n" not in sentence
    return sentence


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_a_document_is_read_as_it_is_also_packed_and_with_a_byte_order_mark(document):
    content = json.dumps([document]).encode()
    for variant in (content, gzip.compress(content), b"\xef\xbb\xbf" + content):
        assert parse(variant, source="x.json") == [document]


def test_records_may_come_one_a_line_or_as_lists():
    assert parse(b'{"a": 1}\n\n{"a": 2}\n[{"a": 3}, {"a": 4}]\n', source="x.json") == [{"a": n} for n in (1, 2, 3, 4)]


def test_a_line_that_is_no_json_is_named():
    assert "line 2" in refused(b'{"a": 1}\n{"a": \n')


def test_the_literals_that_python_tools_write_are_read():
    found = parse(b"[NaN, Infinity, -Infinity, 1e999]", source="x.json")
    assert [repr(value) for value in found] == ["nan", "inf", "-inf", "inf"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"nothing", b"\0\0\0", b"{'a': 1}", b'{"a": 1,}', b"<xml/>"],
    ids=["empty", "cut off", "a word", "zeros", "python", "a comma too many", "xml"],
)
def test_what_is_no_json_is_refused(content):
    assert "not JSON" in refused(content)


def test_text_in_another_encoding_is_refused():
    assert "not UTF-8" in refused('["ä"]'.encode("latin-1"))


def test_a_key_that_stands_twice_is_refused_since_one_value_would_be_lost():
    assert "'sort' twice" in refused(b'{"sort": {"latency": 1}, "sort": {"latency": 2}}')


def test_a_repeated_key_cannot_move_the_terminal():
    assert "\x1b" not in refused(b'{"\\u001b[31m": 1, "\\u001b[31m": 2}')


@pytest.mark.parametrize("depth", [2_000, 200_000])
def test_a_document_nested_too_deeply_is_no_traceback(depth):
    content = b"[" * depth + b"]" * depth
    try:
        parse(content, source="x.json")
    except StoreError as error:
        assert "nested too deeply" in str(error)


def test_a_number_of_very_many_digits_is_no_traceback():
    try:
        parse(b"[" + b"9" * 5_000 + b"]", source="x.json")
    except StoreError as error:
        assert "x.json" in str(error)


def test_a_file_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(reading, "MAX_FILE_BYTES", 100)
    assert parse(b" " * 98 + b"[]", source="x.json") == []
    assert "larger than" in refused(b" " * 99 + b"[]")


def test_a_packed_file_that_grows_too_large_is_refused_before_it_is_unpacked_whole(monkeypatch):
    monkeypatch.setattr(reading, "MAX_FILE_BYTES", 10_000)
    assert "unpacked" in refused(gzip.compress(b" " * 5_000_000 + b"[]"))


@pytest.mark.parametrize("cut", [3, 12, 25])
def test_a_packed_file_that_was_cut_off_is_refused(cut):
    content = gzip.compress(json.dumps(list(range(100))).encode())
    assert "gzip" in refused(content[:cut] if cut < 25 else content[:-4])


def test_a_packed_file_with_wrong_bytes_is_refused():
    content = bytearray(gzip.compress(json.dumps(list(range(100))).encode()))
    content[20] ^= 0xFF
    assert "gzip" in refused(bytes(content))
