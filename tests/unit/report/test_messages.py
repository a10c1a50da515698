from __future__ import annotations

import math

import pytest

from perfguard.records.facts import Fact, fact, recorded_text
from perfguard.report.messages.catalog import describe
from perfguard.report.messages.template import fill, outline, placeholders


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("{a_ratio} of {b_s}", {"a_ratio": 0.0495, "b_s": 0.001234}, "4.95 % of 1.234 ms"),
        ("{waited_share}", {"waited_share": 0.204}, "20 %"),
        ("{blocks:block}, {cases:case}", {"blocks": 1, "cases": 7}, "1 block, 7 cases"),
        ("{log_ratio:slowdown}", {"log_ratio": math.log(1.123)}, "12.3 % slower"),
        ("{log_ratio:slowdown}", {"log_ratio": math.log(8.673)}, "8.7× slower"),
        ("{log_ratio:slowdown}", {"log_ratio": -math.log(1.25)}, "20.0 % faster"),
        ("{x}[[ ({y:duration} more)]].", {"x": 3, "y": 141.0}, "3 (2 min 21 s more)."),
        ("{x}[[ ({y:duration} more)]].", {"x": 3, "y": None}, "3."),
        ("a[[ {b}[[ {c}]]]]", {"b": 1, "c": None}, "a 1"),
        ("a[[ {b}[[ {c}]]]]", {"b": None, "c": 2}, "a"),
        ("{is_slower?slower|faster}", {"is_slower": False}, "faster"),
        ("{names:names}", {"names": ("a", "b", "c", "d", "e")}, "a, b, c and 2 more"),
        ("{x}", {"x": "[[{y}]]"}, "[[{y}]]"),
        ("[[{x}]]", {"x": "[[{y}]]"}, "[[{y}]]"),
        (
            "{e_log_ratio} {e_log_ratio:interval}",
            {"e_log_ratio": 0.02, "e_log_ratio_lower": 0.01, "e_log_ratio_upper": 0.03},
            "+2.02 % [+1.01 %, +3.05 %]",
        ),
    ],
)  # fmt: skip
def test_a_template_formats_values_by_their_units(template, values, text):
    assert fill(template, Fact(code="x", values=values)) == text


def test_a_value_that_is_missing_outside_optional_parts_is_an_error():
    with pytest.raises(KeyError):
        fill("{x}", fact("x"))


def test_an_outline_shows_all_parts_and_names_of_values_in_capitals():
    assert outline("{op} is {is_slower?slower|faster}[[ by {factor:factor}[[ at {place}]]]]") == (
        "OP is slower / faster by FACTOR at PLACE"
    )


def test_placeholders_tell_what_a_template_needs():
    assert placeholders("{a}[[ {b}[[ {c:block}]]]] {d?x|y}") == {"a": True, "b": False, "c": False, "d": True}


def test_a_sentence_of_an_older_recording_reads_as_it_was():
    assert describe(recorded_text("only 3 {blocks} [[x]]")) == "only 3 {blocks} [[x]]"


def test_a_code_of_a_newer_version_is_shown_with_its_values():
    assert describe(fact("future.code", blocks=3)) == "future.code (blocks=3)"
