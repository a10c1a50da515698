"""Plots of one case: both distributions, paired differences, the series over runs."""

from __future__ import annotations

import math

import pytest

from perfguard.report.case_history import changes_before
from perfguard.tui.drawing.grid import Grid, draw_whisker, sparkline, thinned
from perfguard.tui.drawing.plots import plot_densities, plot_ecdf, plot_pairs, role_of_candidate
from perfguard.tui.drawing.series import plot_series
from perfguard.tui.drawing.spans import ASCII, UNICODE, Role, plain
from perfguard.watch.view.run_view import CaseSeries
from tests.changed_values import replace
from tests.tui_runs import RED, a_case, a_history, a_series


def of_no_effect(series: CaseSeries, width: int, height: int, glyphs):
    return plot_pairs(series, None, width, height, glyphs)


def text(lines) -> str:
    return "\n".join(plain(content) for content in lines)


def rows_of(drawn: str, letter: str) -> list[int]:
    return [row for row, content in enumerate(drawn.splitlines()[1:]) if letter in content]


def test_the_slower_arms_hill_stands_further_to_the_right() -> None:
    series = CaseSeries(case_id="c", baseline_s=(1.0, 1.01, 1.02, 1.03), candidate_s=(2.0, 2.01, 2.02, 2.03))
    drawn = text(plot_densities(series, 60, 12, UNICODE)).splitlines()
    assert len(drawn) == 12
    names = [row for row, content in enumerate(drawn) if content.strip() in ("baseline", "candidate")]
    peaks = [drawn[row + 1].index("█") for row in names]
    assert peaks[1] - peaks[0] > 60 / 2
    assert "baseline" not in text(plot_densities(replace(series, baseline_s=()), 60, 12, UNICODE))


def test_the_axis_has_the_effect_between_the_medians() -> None:
    case = a_case("c", log_ratio=math.log1p(0.0629))
    series = CaseSeries(case_id="c", baseline_s=(41.0, 41.1, 41.2), candidate_s=(43.6, 43.7, 43.8))
    axis = plot_densities(series, 60, 12, UNICODE, case=case)[-2]
    assert "━ +6.29 % ━" in plain(axis)
    assert [span.role for span in axis if span.text == "●"] == [Role.BASELINE]  # the other one is part of the effect
    assert {span.role for span in axis if "━" in span.text} == {Role.SLOWER}
    assert "━" not in plain(plot_densities(series, 60, 12, UNICODE)[-2])  # no effect is given


@pytest.mark.parametrize(
    ("ends", "role"), [((0.01, 0.02), Role.SLOWER), ((-0.02, -0.01), Role.FASTER), ((-0.01, 0.01), Role.CANDIDATE)]
)
def test_samples_of_the_candidate_have_the_colour_of_a_clear_effect(ends, role) -> None:
    case = a_case("c", lower=ends[0], upper=ends[1])
    assert role_of_candidate(case) is role
    for drawn in (
        plot_densities(a_series("c"), 60, 12, UNICODE, case=case),
        plot_ecdf(a_series("c"), 60, 12, UNICODE, candidate=role_of_candidate(case)),
    ):
        assert role in {span.role for content in drawn for span in content}


def test_the_slower_arm_reaches_every_height_further_to_the_right() -> None:
    series = CaseSeries(case_id="c", baseline_s=tuple(i * 1e-3 for i in range(10, 20)),
                        candidate_s=tuple(i * 1e-3 for i in range(20, 30)))  # fmt: skip
    drawn = text(plot_ecdf(series, 60, 12, ASCII)).splitlines()[1:-2]
    middle = drawn[len(drawn) // 2]
    assert 0 < middle.index("b") < middle.index("c")


def test_equal_arms_share_their_cells() -> None:
    values = tuple(i * 1e-3 for i in range(10, 30))
    drawn = text(plot_ecdf(CaseSeries(case_id="c", baseline_s=values, candidate_s=values), 60, 12, ASCII))
    assert "*" in drawn


def test_one_arm_has_one_curve_and_no_legend_for_the_other() -> None:
    drawn = text(plot_ecdf(CaseSeries(case_id="c", candidate_s=(1e-3, 2e-3, 3e-3)), 60, 12, ASCII))
    assert "baseline" not in drawn
    assert "candidate" in drawn


@pytest.mark.parametrize("glyphs", [ASCII, UNICODE], ids=["ascii", "unicode"])
def test_both_curves_can_be_told_apart_without_colour(glyphs) -> None:
    lines = plot_ecdf(a_series("c", 0.2), 80, 16, glyphs)
    drawn = text(lines)
    if glyphs.is_ascii:
        assert "b" in drawn.splitlines()[8] or "c" in drawn.splitlines()[8]
        return
    dots = {
        role: sum(
            (ord(cell) - 0x2800).bit_count()
            for content in lines[1:-2]
            for span in content
            if span.role is role
            for cell in span.text
            if 0x2800 <= ord(cell) <= 0x28FF
        )
        for role in (Role.BASELINE, Role.CANDIDATE)
    }
    assert dots[Role.BASELINE] < 0.6 * dots[Role.CANDIDATE]


def test_samples_of_one_value_are_drawn() -> None:
    assert "█" in text(plot_densities(CaseSeries(case_id="c", candidate_s=(1e-3,) * 5), 60, 12, UNICODE))
    assert "100 %" in text(plot_ecdf(CaseSeries(case_id="c", candidate_s=(1e-3,) * 5), 60, 12, UNICODE))


@pytest.mark.parametrize("plot", [plot_densities, plot_ecdf, of_no_effect])
def test_nothing_measured_is_said_in_words(plot) -> None:
    assert "yet" in text(plot(CaseSeries(case_id="c", baseline_s=()), 60, 12, UNICODE)) or "one arm" in text(
        plot(CaseSeries(case_id="c"), 60, 12, UNICODE)
    )


@pytest.mark.parametrize("plot", [plot_densities, plot_ecdf, of_no_effect])
@pytest.mark.parametrize(("width", "height"), [(10, 3), (4, 20), (60, 2), (1, 1)])
def test_too_little_room_is_said_in_words(plot, width: int, height: int) -> None:
    assert "z makes more" in text(plot(a_series("c"), width, height, UNICODE))


def test_slower_blocks_lie_above_zero_and_faster_ones_below() -> None:
    series = replace(a_series("c"), block_log_ratios=(0.05, -0.05, 0.02), blocks=(0, 1, 2))
    drawn = text(plot_pairs(series, None, 40, 13, ASCII)).splitlines()[1:-2]
    zero = next(row for row, content in enumerate(drawn) if content.lstrip().startswith("0"))
    heights = {content.index("o", 8): row for row, content in enumerate(drawn) if "o" in content[8:]}
    above, below, small = (heights[column] for column in sorted(heights))
    assert above < zero < below
    assert above < small < zero


def test_all_blocks_are_shown_where_there_are_more_than_columns() -> None:
    series = replace(a_series("c"), block_log_ratios=(0.01,) * 500, blocks=tuple(range(500)))
    lines = plot_pairs(series, None, 50, 12, ASCII)
    assert "500 blocks" in plain(lines[0])
    assert text(lines[1:]).count("o") == 42 + 1  # one a column, and the o of `block 0`


def test_runs_on_another_host_or_with_other_software_are_marked() -> None:
    points = [point for point in a_history().points if point.case_id == RED]
    assert [change for change in changes_before(points) if change] == ["H", "S"]
    drawn = text(plot_series(points, 16e-3, 80, 16, UNICODE))
    assert drawn.splitlines()[-2].strip().split() == ["H", "S", "torch-2.8"]
    assert "baseline 16.00 ms" in drawn


def test_a_regressed_run_has_a_sign_of_its_own() -> None:
    points = [point for point in a_history().points if point.case_id == RED]
    assert text(plot_series(points, None, 80, 16, UNICODE)).count("▲") == 1


@pytest.mark.parametrize("runs", [3, 12, 30, 70])
def test_runs_spread_over_the_plot(runs: int) -> None:
    points = [point for point in a_history(runs).points if point.case_id == RED]
    drawn = text(plot_series(points, None, 80, 16, UNICODE))
    columns = sorted(place for row in drawn.splitlines() for place, sign in enumerate(row) if sign in "●▲")
    assert len(columns) == runs
    assert columns[-1] - columns[0] >= min(12, 70 / runs) * (runs - 1) - 1


def test_a_whisker_fills_the_parts_of_cells_between_its_ends() -> None:
    fine, coarse = Grid(1, 3), Grid(1, 3)
    draw_whisker(fine, 0, 3, (0.25, 1.0), glyphs=UNICODE, role=Role.MUTED)
    draw_whisker(coarse, 0, 3, (0.25, 1.0), glyphs=ASCII, role=Role.MUTED)
    assert text(fine.lines()).split("\n") == ["⡇", "⡇", "⠁"]  # 12 points, from the fourth of the lowest cell on
    assert text(coarse.lines()).split("\n") == ["|", "|", " "]


def test_only_the_latest_runs_are_shown_where_there_is_no_room_for_more() -> None:
    points = [point for point in a_history(60).points if point.case_id == RED]
    assert plain(plot_series(points, None, 50, 16, UNICODE)[0]).startswith("the latest 40 of 60 runs")


def test_a_sparkline_shows_the_latest_values() -> None:
    assert sparkline([1, 2, 3, 4], 3, ASCII, low=1, high=4) == "-+#"
    assert sparkline([1.0], 4, UNICODE, low=0, high=1) == "   █"
    assert sparkline([], 4, UNICODE, low=0, high=1) == "    "


def test_thinned_values_follow_the_whole_series() -> None:
    assert thinned([1.0, 1.0, 3.0, 3.0], 2) == (1.0, 3.0)
    assert thinned([1.0, 2.0], 5) == (1.0, 2.0)
    assert thinned([1.0], 0) == ()


def test_the_dotted_line_is_the_effect_and_voided_blocks_are_left_out() -> None:
    series = replace(a_series("c"), block_log_ratios=(0.01, 0.01, 0.5), blocks=(0, 1, 2), voided=frozenset({2}))
    title, *drawn = plot_pairs(series, 0.01, 40, 13, ASCII)
    assert plain(title).startswith("2 blocks, in order, without 1 voided; ")
    assert plain(title).endswith("the effect")
    assert plain(drawn[0]).lstrip().startswith("+2 %")  # the scale is that of the blocks that count
    assert "the effect" not in plain(plot_pairs(series, None, 40, 13, ASCII)[0])
