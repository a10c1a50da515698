"""Artifacts that a stranger made: zips and JSON that would harm who trusts them."""

from __future__ import annotations

import io
import json
import random
import struct
import tracemalloc
import zipfile
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.codec import to_builtins, to_json
from perfguard.config import load_config
from perfguard.errors import StoreError
from perfguard.gate.show import show_run
from perfguard.integrations.github.comments import require_consistent
from perfguard.records.verdict import GateOutcome
from perfguard.store import artifacts
from perfguard.store.artifacts import parse_result, result_in_zip
from tests.changed_values import replace
from tests.commented_results import REGRESSED
from tests.recorded_runs import DATA

GOOD = to_json(REGRESSED).encode()
PLAIN = json.loads(GOOD)


def zip_of(*members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return content.getvalue()


def read(content: bytes):
    return result_in_zip(io.BytesIO(content), source="artifact x")


def refused(content: bytes, match: str) -> None:
    with pytest.raises(StoreError, match=match) as caught:
        read(content)
    assert "\n" not in str(caught.value)


def changed(**fields) -> bytes:
    return json.dumps({**PLAIN, **fields}).encode()


def test_what_a_gate_left_is_read():
    assert to_json(read(zip_of(("result.json", GOOD), ("raw/0000-a.json", b"{}")))) != ""
    assert read(zip_of(("result.json", GOOD), method=zipfile.ZIP_STORED)).verdict == "regressed"


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip", b"PK\x05\x06" + b"\0" * 18, b"\0" * 5000])
def test_what_is_no_zip_is_refused(content):
    refused(content, "not a zip|holds no result.json")


def test_a_truncated_zip_is_refused():
    content = zip_of(("result.json", GOOD))
    for length in range(0, len(content), 97):
        refused(content[:length], "not a zip")


def test_a_zip_without_a_result_is_refused():
    refused(zip_of(("other.json", GOOD), ("folder/result.json", GOOD)), r"holds no result\.json")


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_two_results_are_refused():
    refused(zip_of(("result.json", GOOD), ("result.json", GOOD)), r"holds 2 result\.json")


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/passwd", "C:/x", "C:x", "a\\b", "..\\x", "//host/x", "./../x", "a/.."]
)
def test_a_name_that_leads_outside_is_refused(name):
    member = zipfile.ZipInfo("x")
    member.filename = name  # the constructor would tidy it
    refused(zip_of(("result.json", GOOD), (member, b"x")), "leads out of its folder")


def test_nothing_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    read(zip_of(("result.json", GOOD), ("events.jsonl", b"{}")))
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_refused():
    link = zipfile.ZipInfo("result.json")
    link.external_attr = 0o120777 << 16
    refused(zip_of((link, b"/etc/passwd")), "is a link")


def test_an_encrypted_member_is_refused():
    content = bytearray(zip_of(("result.json", GOOD)))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.find(signature) + offset] |= 1
    refused(bytes(content), "not a zip that can be read: .*encrypted")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_that_chooses_its_own_memory_is_refused(method):
    refused(zip_of(("result.json", GOOD), method=method), "compressed by method")


def test_a_member_that_is_too_large_is_not_unpacked():
    content = zip_of(("result.json", b" " * (artifacts.MOST_RESULT_BYTES + 1)))
    assert len(content) < 100_000
    refused(content, "is larger than")


def bomb(said: int, unpacked: int) -> bytes:
    """A zip whose result unpacks to another size than its headers say."""
    content = bytearray(zip_of(("result.json", b" " * unpacked)))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", content, content.find(signature) + offset, said)
    return bytes(content)


def test_a_member_larger_than_its_header_says_is_refused_without_unpacking_it():
    content = bomb(100, 200 << 20)
    tracemalloc.start()
    refused(content, "not a zip")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20


def test_zips_in_a_zip_stay_closed():
    inner = zip_of(("result.json", GOOD))
    refused(zip_of(("result.zip", inner)), r"holds no result\.json")
    refused(zip_of(("result.json", inner)), "not JSON that perfguard wrote")


def test_a_zip_with_too_many_members_is_refused():
    refused(zip_of(("result.json", GOOD), *((f"{index}", b"") for index in range(20_000))), "20001 files")


def test_a_list_of_members_that_fills_memory_is_not_read():
    """A list of members as long as the file: 40 MiB of headers without content."""
    header = (
        struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 0, 20, 0, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    )
    number = (40 << 20) // len(header)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, number % 65536, number % 65536, number * len(header), 0, 0)
    content = header * number + end
    tracemalloc.start()
    refused(content, "lists more than 20000 files")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80 << 20  # the file itself is counted once, where the test copies it


@given(st.integers(0, 2**31), st.integers(1, 12))
@settings(max_examples=300, deadline=None)
def test_a_damaged_zip_is_read_or_refused_and_nothing_else(seed, number):
    content = bytearray(DAMAGED_FROM)
    source = random.Random(seed)
    for _ in range(number):
        # The headers are where a reader can be led astray; the content is mostly one compressed stream.
        area = source.choice((range(60), range(len(content) - 220, len(content)), range(len(content))))
        content[source.choice(area)] = source.randrange(256)
    try:
        read(bytes(content))
    except StoreError as error:
        assert "artifact x" in str(error)


DAMAGED_FROM = zip_of(("result.json", GOOD), ("raw/0.json", b"{}"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b"\xff\xfe{}",
        b"{}",
        changed(schema=3),
        changed(schema="1"),
        changed(schema=True),
        changed(schema=None),
        changed(schema=1.0e400),
        changed(verdict=None),
        changed(verdict=["pass"]),
        changed(cpus="0-3"),
        changed(exit_code="0"),
        changed(exit_code=1.5),
        changed(gate=[]),
        changed(gate={**PLAIN["gate"], "outcome": "great"}),
        changed(gate={**PLAIN["gate"], "verdicts": {}}),
        changed(gate={**PLAIN["gate"], "verdicts": [None]}),
        changed(arms=[]),
        changed(arms={"baseline": None}),
        changed(notes=7),
        changed(notes=[1]),
        changed(op_count_changes={"x": None}),
        changed(duration_s="1"),
        GOOD.replace(b'"duration_s": 125.0', b'"duration_s": NaN'),
        GOOD.replace(b'"duration_s": 125.0', b'"duration_s": -Infinity'),
        GOOD.replace(b'"duration_s": 125.0', b'"duration_s": 1e999'),
        GOOD.replace(b'"exit_code": 1', b'"exit_code": ' + b"9" * 5000),
        GOOD.replace(b'"verdict": "regressed"', b'"verdict": "\\ud800"'),
        GOOD.replace(b'"version": "1.0"', b'"version": "\\udfff"'),
        changed(op_count_changes={"\ud800": []}),
    ],
)
def test_json_that_is_no_result_is_refused(content):
    with pytest.raises(StoreError) as caught:
        parse_result(content, source="artifact x")
    assert "artifact x" in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("depth", [100, 5_000, 1_000_000])
def test_deep_nesting_is_refused(depth):
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        deep = opening * depth + b"1" + closing * depth
        with pytest.raises(StoreError):
            parse_result(deep, source="artifact x")
        with pytest.raises(StoreError):
            parse_result(GOOD.replace(b'{"arms"', b'{"x": ' + deep + b', "arms"', 1), source="artifact x")


def test_a_million_cases_are_refused():
    verdict = json.dumps(PLAIN["gate"]["verdicts"][1]).encode()
    whole = GOOD.replace(b'"verdicts": [', b'"verdicts": [' + (verdict + b", ") * 5_000)
    with pytest.raises(StoreError, match="no gate has more than 5000"):
        parse_result(whole, source="artifact x")
    measured = changed(gate=None, measured=[{"case_id": "x"}] * 1_000_000)
    assert len(measured) > artifacts.MOST_RESULT_BYTES
    refused(zip_of(("result.json", measured)), "is larger than")


@pytest.mark.parametrize("name", ["paired", "rounds"])
def test_results_of_recorded_runs_are_read(tmp_path, name):
    recorded = show_run(load_config(tmp_path, {}, {}), DATA / name)
    back = read(zip_of(("result.json", to_json(recorded).encode())))
    assert to_builtins(back) == to_builtins(recorded)


def test_fields_of_a_later_version_are_passed_over():
    assert parse_result(changed(something_new={"a": [1]}), source="x").verdict == "regressed"


def test_unknown_numbers_come_back_as_unknown():
    interval = {"lower": None, "upper": None, "level": 0.95}
    estimate = {**PLAIN["gate"]["verdicts"][0]["comparison"]["estimate"], "interval": interval, "block_sd": None}
    verdict = PLAIN["gate"]["verdicts"][0]
    verdict = {**verdict, "comparison": {**verdict["comparison"], "estimate": estimate}}
    result = parse_result(changed(gate={**PLAIN["gate"], "verdicts": [verdict]}), source="x")
    assert json.loads(to_json(result))["gate"]["verdicts"][0]["comparison"]["estimate"] == estimate


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_value_anywhere_is_read_or_refused_and_nothing_else(data):
    """One value of a good result, anywhere in it, is replaced by another kind of thing."""
    tree = json.loads(GOOD)
    place, key = data.draw(st.sampled_from(list(_places(tree))))
    place[key] = data.draw(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(),
                  st.just([]), st.just({}), st.lists(st.integers(), max_size=3))
    )  # fmt: skip
    try:
        parse_result(json.dumps(tree).encode(), source="artifact x")
    except StoreError as error:
        assert "artifact x" in str(error)


def _places(node):
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield node, key
        yield from _places(value)


def test_the_content_is_checked_against_its_checksum():
    content = zip_of(("result.json", GOOD), method=zipfile.ZIP_STORED)
    assert zlib.crc32(GOOD) != 0
    refused(
        content.replace(b'"verdict": "regressed"', b'"verdict": "regressEd"'), "not a zip that can be read: Bad CRC"
    )


@pytest.mark.parametrize(
    "content",
    [
        changed(attributions=[{}] * 590_000),
        changed(notes=["a" * 20] * 550_000),
        changed(schema=1, notes=["a" * 20] * 550_000),
        changed(notes=[["x"]] * 299_000),
        b"[" + b"{}," * 5_000_000 + b"{}]",
    ],
    ids=["objects", "texts", "old texts", "lists", "bytes"],
)
def test_what_holds_too_many_values_is_refused_before_it_takes_memory(content):
    tracemalloc.start()
    try:
        with pytest.raises(StoreError):
            parse_result(content, source="result.json")
        assert tracemalloc.get_traced_memory()[1] < 300e6
    finally:
        tracemalloc.stop()


def test_a_key_that_stands_twice_is_refused():
    content = GOOD.replace(b'"exit_code"', b'"exit_code":0,"exit_code"', 1)
    with pytest.raises(StoreError, match="stands twice"):
        parse_result(content, source="result.json")


def test_a_headline_that_is_better_than_its_cases_is_refused():
    gate = replace(REGRESSED.gate, outcome=GateOutcome.PASS)
    with pytest.raises(StoreError, match="says that the gate passed"):
        require_consistent(replace(REGRESSED, gate=gate, exit_code=0), source="artifact x")
    require_consistent(REGRESSED, source="artifact x")
