"""Columns and their room, filters, histories, the log."""

from __future__ import annotations

import pytest

from perfguard.records.facts import recorded_text
from perfguard.report.case_history import changes_text, histories_of
from perfguard.tui.drawing.head import elapsed_text
from perfguard.tui.drawing.spans import UNICODE, plain
from perfguard.tui.screens.history import history_table
from perfguard.tui.session import swapped_case, swapped_series
from perfguard.tui.tables.cases import axis_for, forest_table, live_table, text_of_case
from perfguard.tui.tables.columns import parse_filter, place_columns
from tests.tui_runs import RED, a_case, a_history, a_run, a_series

RUN = a_run()
LIVE = live_table(axis_for(RUN.cases), UNICODE)


def ids(spec, width: int) -> list[str]:
    return [place.column.id for place in place_columns(spec.columns, width)]


def test_a_wide_table_has_all_columns() -> None:
    assert ids(LIVE, 118) == ["case", "n", "baseline", "candidate", "effect", "interval", "noise", "verdict"]


def test_eighty_columns_keep_name_effect_bar_and_verdict() -> None:
    assert {"case", "effect", "interval", "verdict"} <= set(ids(LIVE, 77))


def test_the_narrowest_table_keeps_name_and_verdict() -> None:
    assert ids(LIVE, 28) == ["case", "verdict"]


@pytest.mark.parametrize("spec", [LIVE, forest_table(axis_for(RUN.cases), UNICODE), history_table(UNICODE)])
@pytest.mark.parametrize("width", range(1, 220, 7))
def test_columns_never_overlap_nor_leave_the_table(spec, width: int) -> None:
    end = 0
    for place in place_columns(spec.columns, width):
        assert place.x >= end
        assert place.width > 0
        end = place.x + place.width
    assert end <= width


def test_advisory_cases_have_their_verdict_in_brackets() -> None:
    verdict = next(column for column in LIVE.columns if column.id == "verdict")
    assert plain(verdict.draw(a_case(is_gating=False), 16)) == "(▲ regressed)"
    assert plain(verdict.draw(a_case(), 16)) == "▲ regressed"


def test_a_case_without_an_effect_says_why_once_it_is_answered() -> None:
    bar = next(column for column in LIVE.columns if column.id == "interval")
    without = {"log_ratio": None, "lower": None, "upper": None, "reasons": (recorded_text("out of memory in block 3"),)}
    assert plain(bar.draw(a_case(outcome="failed", **without), 20)) == "out of memory in bl…"
    assert "memory" not in plain(bar.draw(a_case(outcome=None, **without), 20))
    assert "memory" not in plain(bar.draw(a_case(outcome="failed", reasons=without["reasons"]), 20))


def test_what_is_red_is_sorted_first() -> None:
    key = next(column.sort for column in LIVE.columns if column.id == "verdict")
    assert min(RUN.cases, key=key).case_id == RED


def test_every_sortable_column_bears_unknown_values() -> None:
    for column in LIVE.columns:
        if column.sort is not None:
            assert len(sorted(RUN.cases, key=column.sort)) == len(RUN.cases)


@pytest.mark.parametrize(
    ("text", "accepted"),
    [("resnet", True), ("RESNET", True), ("regressed", True), ("!resnet", False), ("lstm", False), ("!lstm", True),
     ("res.*bf16", True), ("", True), ("!", True)],
)  # fmt: skip
def test_filters_look_at_name_and_verdict(text: str, accepted: bool) -> None:
    assert parse_filter(text).accepts(text_of_case(a_case())) is accepted


def test_what_is_no_regular_expression_is_looked_for_as_it_is() -> None:
    wanted = parse_filter("resnet[")
    assert "no regular expression" in wanted.problem
    assert wanted.accepts(text_of_case(a_case()))
    assert not wanted.accepts("resnet(")


def test_histories_compare_with_the_baseline_or_with_the_run_before() -> None:
    with_baseline, without = histories_of(a_history())
    assert with_baseline.baseline_s == 16e-3
    assert without.baseline_s is None
    assert without.log_ratio is not None
    assert histories_of(a_history(1))[1].log_ratio is None


def test_changes_of_host_and_software_are_counted() -> None:
    assert changes_text(histories_of(a_history())[0].points) == "host changed once, software changed once"
    assert changes_text(histories_of(a_history(3))[0].points) == ""


def test_elapsed_time_reads_like_a_clock() -> None:
    assert [elapsed_text(seconds) for seconds in (0, 75.9, 3723, -1)] == ["0:00:00", "0:01:15", "1:02:03", "0:00:00"]


def test_swapping_twice_changes_nothing() -> None:
    case, series = a_case(), a_series("c")
    assert swapped_case(swapped_case(case)) == case
    assert swapped_series(swapped_series(series)) == series
    assert swapped_case(case).upper == -0.041
