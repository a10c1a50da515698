from __future__ import annotations

import math
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.units import (
    as_text,
    format_bytes,
    format_calls,
    format_change,
    format_count,
    format_day,
    format_duration,
    format_effect,
    format_number,
    format_ratio,
    format_seconds,
    format_share,
    printable,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (0.0, "0 s"),
        (1.0, "1.000 s"),
        (1234.5, "1234 s"),
        (0.0012341, "1.234 ms"),
        (0.25, "250.0 ms"),
        (42.4e-6, "42.40 µs"),
        (3.2e-9, "3.200 ns"),
        (1e-12, "1e-12 s"),
        (-0.002, "-2.000 ms"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
    ],
)
def test_seconds(value, text):
    assert format_seconds(value) == text


@given(st.floats(1e-9, 1e6))
def test_seconds_read_back_to_four_digits(value):
    number, unit = format_seconds(value).split()
    assert float(number) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit] == pytest.approx(value, rel=6e-4)


@pytest.mark.parametrize(
    ("log_ratio", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (0.0, "+0.00 %"),
        (math.log(1.0241), "+2.41 %"),
        (math.log(1.12345), "+12.3 %"),
        (math.log(0.5), "-50.0 %"),
        (math.inf, "+∞"),
        (-math.inf, "-∞"),
    ],
)
def test_effects_are_signed_percentages(log_ratio, text):
    assert format_effect(log_ratio) == text


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_no_number_is_too_odd_to_show(value):
    for text in (format_effect(value), format_ratio(value)):
        assert re.fullmatch(r"-|[+-]?∞|[+-]?[\d.]+ %|[+-]?inf %", text)


@pytest.mark.parametrize(
    ("ratio", "text"), [(None, "-"), (math.nan, "-"), (math.inf, "∞"), (0.0084, "0.84 %"), (0.1, "10.0 %")]
)
def test_ratios(ratio, text):
    assert format_ratio(ratio) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 1024**3, "3.0 GiB"), (5 * 1024**4, "5.0 TiB")],
)
def test_bytes(size, text):
    assert format_bytes(size) == text


@given(st.text())
def test_printable_text_is_one_line_of_the_same_length_without_control_characters(text):
    shown = printable(text)
    assert len(shown) == len(text)
    assert shown.isprintable()
    assert printable(shown) == shown


def test_line_breaks_stay_where_they_are_wanted():
    assert printable("a\n\x1b[31mb", keep="\n") == "a\n [31mb"


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0 s"), (45.4, "45 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s"), (3780, "1 h 03 min")]
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_duration_that_is_no_number_is_a_dash(value):
    assert format_duration(value) == "-"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ((0.062, 0.051, 0.074), "+6.20 % [5.10, 7.40]"),
        ((-0.004, -0.0151, 0.0071), "-0.40 % [-1.51, 0.71]"),
        ((0.062,), "+6.20 %"),
        ((0.123, 0.098, 0.14), "+12.3 % [9.8, 14.0]"),
        ((0.0, -math.inf, math.inf), "+0.00 %"),
        ((math.nan, 0.0, 0.1), "-"),
        ((math.inf,), "+∞"),
    ],
)
def test_changes_carry_their_interval_where_it_is_known(change, text):
    assert format_change(*change) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "-"), (math.nan, "-"), (0.94, "94 %"), (0.0, "0 %"), (0.001, "<1 %"), (-0.2, "-20 %"), (math.inf, "∞")],
)
def test_shares_are_in_full_percent(share, text):
    assert format_share(share) == text


@pytest.mark.parametrize(
    ("number", "text"), [(1240, "1,240"), (1240.0, "1,240"), (0.5, "0.5"), (2.96, "3"), (math.nan, "-"), (-2, "-2")]
)
def test_numbers_of_things(number, text):
    assert format_number(number) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.99999e-6, "1.000 µs"), (-0.99996e-3, "-1.000 ms"), (0.9998, "999.8 ms"), (0.99999, "1.000 s")],
)
def test_what_rounds_up_to_the_next_unit_is_told_in_it(value, text):
    assert format_seconds(value) == text


@pytest.mark.parametrize(("value_s", "text"), [(5e-20, "0 s"), (-6.8e-21, "0 s"), (3e-12, "3e-12 s")])
def test_what_a_sum_leaves_of_nothing_is_nothing(value_s, text):
    assert format_seconds(value_s) == text


def test_arguments_that_are_no_text_are_escaped():
    assert as_text("größe") == "größe"
    assert as_text(os.fsdecode(b"a\xff\xfe")) == "a\\xff\\xfe"


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1 call"), (2.0, "2 calls"), (0.5, "0.5 calls"), (1240, "1,240 calls")]
)
def test_calls_are_counted_in_words(number, text):
    assert format_calls(number) == text


@pytest.mark.parametrize(
    ("noun", "two"), [("case", "cases"), ("switch", "switches"), ("entry", "entries"), ("epoch", "epochs")]
)
def test_counted_nouns_have_their_plural(noun, two):
    assert (format_count(1, noun), format_count(2, noun)) == (f"1 {noun}", f"2 {two}")


@pytest.mark.parametrize(
    ("moment_s", "expected"),
    [(0.0, "1970-01-01"), (1_790_000_800.0, "2026-09-21"), (1e300, "-"), (math.nan, "-"), (math.inf, "-")],
)
def test_a_day_that_no_calendar_has_is_a_dash(moment_s, expected):
    assert format_day(moment_s) == expected
