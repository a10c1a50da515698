"""What LoadGen writes, read back."""

from __future__ import annotations

import pytest

from perfguard.errors import StoreError
from perfguard.tasks.loadgen_logs import LoggedAnswer, duplicates, parse_answers, parse_detail, parse_summary

DETAIL = """\
something else
:::MLLOG {"key": "result_validity", "value": "VALID", "metadata": {"is_error": false, "is_warning": false}}
:::MLLOG {"key": "result_90.00_percentile_latency_ns", "value": 39242, "metadata": {}}
:::MLLOG {"key": "error_runtime", "value": "it broke", "metadata": {"is_error": true}}
:::MLLOG {"key": "warning_generic", "value": "look", "metadata": {"is_warning": true}}
"""
SUMMARY = """\
================================================
MLPerf Results Summary
================================================
Scenario : SingleStream
90.0th percentile latency (ns) : 39242
Result is : VALID
  Min duration satisfied : Yes
 * Would discard 2 highest latency queries.
 * Early stopping 90.0th percentile estimate: 41000
"""


def test_paths_of_windows_which_are_no_json_are_left_out():
    line = r':::MLLOG {"key": "effective_test_mode", "value": "PerformanceOnly", "metadata": {"file": "C:\Users\x.cc"}}'
    assert parse_detail(line, source="detail").values == {"effective_test_mode": "PerformanceOnly"}


def test_values_errors_and_warnings_of_the_detail_log():
    found = parse_detail(DETAIL, source="detail")
    assert found.values["result_validity"] == "VALID"
    assert found.number("result_90.00_percentile_latency_ns") == 39242.0
    assert found.number("result_validity") is None
    assert found.number("absent") is None
    assert (found.errors, found.warnings) == (("error_runtime: it broke",), ("warning_generic: look",))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no log",
        ":::MLLOG {",
        ":::MLLOG []",
        ':::MLLOG {"key": 1}',
        ':::MLLOG {"key": 1, "value": 2, "metadata": 3}',
    ],
)
def test_what_is_no_detail_log_is_an_error_with_its_place(text):
    with pytest.raises(StoreError, match="detail"):
        parse_detail(text, source="detail")


def test_lines_of_the_summary():
    found = parse_summary(SUMMARY)
    assert found["scenario"] == "SingleStream"
    assert found["90.0th percentile latency (ns)"] == "39242"
    assert found["result is"] == "VALID"
    assert found["early stopping 90.0th percentile estimate"] == "41000"


def test_answers_are_bytes_by_example():
    text = '[{"seq_id": 0, "qsl_idx": 7, "data": "0A0B"}, {"seq_id": 1, "qsl_idx": 2, "data": ""}]'
    assert parse_answers(text, source="log") == (
        LoggedAnswer(sample=7, data=b"\n\x0b"),
        LoggedAnswer(sample=2, data=b""),
    )


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"qsl_idx": "a", "data": ""}]', '[{"qsl_idx": 1, "data": "x"}]'])
def test_what_is_no_accuracy_log_is_an_error(text):
    with pytest.raises(StoreError, match="log is not"):
        parse_answers(text, source="log")


def test_examples_that_were_answered_twice_are_named_once():
    assert duplicates([LoggedAnswer(sample=number, data=b"") for number in (3, 1, 3, 2, 1, 3)]) == (1, 3)
