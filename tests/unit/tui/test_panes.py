"""What stands beside the tables: head, status, a case, an op, the host."""

from __future__ import annotations

import pytest

from perfguard.records.facts import recorded_text
from perfguard.report.culprits import change_text
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.op_tree import flat_nodes, op_count_nodes
from perfguard.tui.drawing.head import FrameFacts, head_lines, progress_share, screen_at, status_line
from perfguard.tui.drawing.host import host_lines
from perfguard.tui.drawing.spans import (
    ASCII,
    UNICODE,
    as_ascii,
    fitted,
    line,
    plain,
    shortened,
    tail,
    width_of,
    wrapped,
)
from perfguard.tui.drawing.verdicts import tally
from perfguard.tui.tables.cases import case_lines
from perfguard.tui.tables.ops import OpsView, op_lines, rows_of
from perfguard.watch.view.run_view import RunState, RunView
from tests.changed_values import replace
from tests.tui_runs import OP_COUNTS, RED, a_case, a_run, a_series, an_attribution, some_deltas

FACTS = FrameFacts(active="Live", glyphs=UNICODE, host="load 0.4  3.10 GHz")


def text(lines) -> str:
    return "\n".join(plain(content) for content in lines)


def head(view: RunView | None = None, width: int = 120, height: int = 4, facts: FrameFacts = FACTS) -> str:
    return text(head_lines(view or a_run(), facts, width, height))


def test_the_head_says_suite_arms_progress_verdict_and_host() -> None:
    drawn = head()
    for expected in ("[1 Live]", "example", "git:HEAD → dir:.", "block 9 of 12", "at most 39 s left", "▲ 1 regressed",
                     "steal 0.04 %", "control +0.30 %", "3.10 GHz", "● measuring"):  # fmt: skip
        assert expected in drawn


@pytest.mark.parametrize("width", range(1, 200, 9))
@pytest.mark.parametrize("height", [1, 2, 3, 4])
def test_the_head_fits_its_place(width: int, height: int) -> None:
    lines = head_lines(a_run(), FACTS, width, height)
    assert len(lines) <= height
    assert all(width_of(content) <= max(width, 30) for content in lines)


def test_a_narrow_head_still_names_the_active_screen() -> None:
    assert "[1 Live]" in head(width=40)
    assert "Compare" not in head(width=40)


def test_a_finished_run_says_what_it_concluded() -> None:
    view = a_run(
        state=RunState.FINISHED, outcome="regressed", exit_code=1, reasons=(recorded_text("1 of 7 cases regressed"),)
    )
    assert "▲ 1 of 7 cases regressed" in head(view)
    assert "✓ finished" in head(view)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (RunState.SILENT, "it probably died"),
        (RunState.GONE, "its folder vanished"),
        (RunState.WAITING, "waiting for the first event"),
    ],
)
def test_a_run_that_does_not_go_on_says_so(state: RunState, words: str) -> None:
    assert words in plain(status_line(a_run(state=state), FrameFacts(), 100))
    assert state.value in head(a_run(state=state))


def test_a_run_without_events_has_a_head() -> None:
    assert "no event of a run yet" in head(RunView(run_id=None, state=RunState.WAITING))


def test_progress_goes_by_blocks_else_by_the_budget() -> None:
    progress = a_run().progress
    assert progress is not None
    assert progress_share(progress) == pytest.approx(81 / 120)
    assert progress_share(replace(progress, elapsed_s=40.0)) == pytest.approx(8 / 12)
    assert progress_share(replace(progress, blocks_planned=None)) == pytest.approx(81 / 120)
    assert progress_share(replace(progress, blocks_planned=None, budget_s=0.0)) is None


def test_screens_can_be_found_by_column() -> None:
    first = head(height=1)
    assert screen_at(first.index("Compare"), FACTS, 120) == "Compare"
    assert screen_at(0, FACTS, 120) is None
    assert screen_at(119, FACTS, 120) is None


def test_the_tally_counts_open_cases_together_and_advisory_ones_apart() -> None:
    cases = a_run().cases
    assert plain(tally(cases)) == "▲ 1 regressed  ! 1 different  ▼ 1 faster  ○ 2 open  = 1 unchanged  (advisory: ○ 1)"
    assert plain(tally([case for case in cases if not case.is_gating])) == "(advisory: ○ 1)"


def test_a_case_in_full_says_everything_that_the_table_leaves_out() -> None:
    case = a_case(RED, op_counts=OP_COUNTS, attribution=an_attribution(RED, some_deltas()))
    drawn = text(case_lines(case, a_series(RED), 100, UNICODE))
    for expected in (
        RED,
        "▲ regressed",
        "12.40 ms → candidate 13.10 ms",
        "8 blocks, 96 samples",
        "noise 1.20 %",
        "102 %",
        "train.py:88",
        change_text(OP_COUNTS[1]),
        "5.7 % slower in 8 paired blocks",
    ):
        assert expected in drawn


@pytest.mark.parametrize("width", [12, 30, 78, 200])
def test_a_case_in_full_fits_every_width(width: int) -> None:
    case = a_case(RED, op_counts=OP_COUNTS, attribution=an_attribution(RED, some_deltas()))
    assert max(width_of(content) for content in wrapped(describe_all(case.reasons), width)) <= width
    assert case_lines(case, a_series(RED), width, ASCII)


def test_an_op_in_full_names_source_and_implementation() -> None:
    deltas = some_deltas()
    detail = deltas[0].detail
    rows, _ = rows_of(flat_nodes(deltas), OpsView(), 8e-4)
    drawn = text(op_lines(rows[0], an_attribution(RED, deltas), 100))
    for expected in (
        "train.py:88",
        detail,
        "[8,64,56,56]",
        "88 %",
        describe(an_attribution(RED, deltas).culprits[0].fact),
    ):
        assert expected in drawn


def test_a_row_of_the_op_counts_in_full_says_that_it_was_counted() -> None:
    rows, _ = rows_of(op_count_nodes(OP_COUNTS), OpsView(), 1.0)
    drawn = text(op_lines(rows[1], None, 100))
    assert "reorders in backward of ResNet.layer1.*.conv1: 0 → 2 in a step" in drawn
    assert "not timed" in drawn


def test_a_host_that_is_not_known_yet_is_said_in_words() -> None:
    assert "written down" in text(host_lines(None, None, 60, UNICODE))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (FrameFacts(), "imported files that differ"),
        (FrameFacts(said="row copied"), "row copied"),
        (FrameFacts(filter_text="conv"), "/conv  esc shows all"),
        (FrameFacts(is_paused=True), "paused"),
        (FrameFacts(own_ratio=0.004), "reader 0.40 % of a CPU, every 1 s"),
        (FrameFacts(own_ratio=0.2), "more than it should"),
    ],
)
def test_the_status_line_says_the_most_urgent_thing(facts: FrameFacts, expected: str) -> None:
    assert expected in plain(status_line(a_run(), facts, 100))


def test_what_is_wrong_with_the_recording_is_said() -> None:
    view = a_run(problems=(recorded_text("line 7 is corrupt"), recorded_text("line 9 is corrupt")))
    drawn = plain(status_line(view, FrameFacts(), 100))
    assert "! line 9 is corrupt (and 1 more: see the log)" in drawn


@pytest.mark.parametrize("width", range(1, 120, 7))
def test_the_status_line_fits_its_place(width: int) -> None:
    drawn = status_line(a_run(problems=(recorded_text("x" * 300),)), FrameFacts(own_ratio=0.1), width)
    assert width_of(drawn) <= max(width, 14)


def test_texts_are_cut_to_columns_not_to_characters() -> None:
    assert plain(fitted(line("日本語テスト"), 7)) == "日本語…"
    assert tail("ResNet.layer3.conv1", 8) == "…3.conv1"
    assert shortened("kernel.linear[m=512,dtype=bf16]", 15) == "kernel.…2,bf16]"


def test_parameters_lose_their_names_before_values_are_lost() -> None:
    assert shortened("step[hidden=128,dtype=fp32]", 27) == "step[hidden=128,dtype=fp32]"
    assert shortened("step[hidden=128,dtype=fp32]", 26) == "step[128,fp32]"
    assert shortened("git:HEAD+env:A=1,B=2", 12) == "git:H…=1,B=2"


def test_sentences_break_between_words_and_long_words_anywhere() -> None:
    assert [plain(content) for content in wrapped("aa bb ccccccc d", 5)] == ["aa bb", "ccccc", "cc d"]


def test_ascii_texts_are_as_wide_as_before() -> None:
    assert as_ascii("▲ +3 % 日本 µs → é…") == "^ +3 % ???? us > e~"
