from __future__ import annotations

import pytest

from perfguard.host.parsers.parsing import parse_choice, parse_count, parse_int, parse_size_bytes, parse_words
from perfguard.records.machine.cpuset import format_cpu_list, parse_cpu_list, parse_cpu_mask


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("0-3,8", {0, 1, 2, 3, 8}),
        ("0", {0}),
        ("\n", set()),
        ("(null)", set()),
        ("0-6:2/4", {0, 1, 4, 5}),
        (" 1, 2 \n", {1, 2}),
    ],
)
def test_cpu_lists_are_understood(text: str, ids: set[int]) -> None:
    assert parse_cpu_list(text) == ids


@pytest.mark.parametrize(
    "text", ["0-99999999999", "3-1", "-1", "1,,2", "a", "0x3", "1-2-3", "٣", "0-6:0/4", "0-6:5/4", "8192", "1,\0"]
)
def test_malformed_and_enormous_cpu_lists_are_unknown(text: str) -> None:
    assert parse_cpu_list(text) is None


def test_cpu_masks_are_understood_and_bounded() -> None:
    assert parse_cpu_mask("00000000,0000000f") == {0, 1, 2, 3}
    assert parse_cpu_mask("1,00000000") == {32}
    assert parse_cpu_mask("") is None
    assert parse_cpu_mask("-1") is None
    assert parse_cpu_mask("f" * 20_000) is None


def test_cpu_lists_are_written_as_the_shortest_ranges() -> None:
    assert format_cpu_list([8, 0, 1, 2, 2, 5]) == "0-2,5,8"
    assert format_cpu_list([]) == ""


@pytest.mark.parametrize(("text", "size"), [("48K", 49152), ("2 MB", 2 << 20), ("1024", 1024), ("5118K", 5240832)])
def test_sizes_are_understood(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize("text", [None, "", "K", "-1K", "1e3", "999999999999999T", "48Q", "4٨K"])
def test_nonsense_sizes_are_unknown(text: str | None) -> None:
    assert parse_size_bytes(text) is None


def test_integers_are_bounded() -> None:
    assert parse_int("-1") == -1
    assert parse_count("-1") is None
    assert parse_int("9" * 19) is None
    assert parse_int("²") is None


def test_words_are_one_short_printable_line() -> None:
    assert parse_words("Intel(R)  Xeon(R)\n") == "Intel(R) Xeon(R)"
    assert parse_words("\x1b[31mred") is None
    assert parse_words("bad \ufffd bytes") is None
    assert parse_words("x" * 300) is None
    assert parse_words("  ") is None


def test_the_bracketed_word_is_the_choice() -> None:
    assert parse_choice("always [madvise] never") == "madvise"
    assert parse_choice("performance\n") == "performance"
    assert parse_choice("two words") is None
    assert parse_choice("") is None
