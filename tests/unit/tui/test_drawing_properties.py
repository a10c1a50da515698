"""Whatever the data: pictures fit their place, and ASCII is ASCII."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from rich.cells import cell_len

from perfguard.report.op_tree import Frame
from perfguard.report.scales import limit_for
from perfguard.tui.drawing.grid import position, sparkline, thinned
from perfguard.tui.drawing.plots import EffectAxis, axis_line, interval_bar, plot_ecdf, plot_pairs
from perfguard.tui.drawing.spans import (
    ASCII,
    UNICODE,
    as_ascii,
    cut,
    fitted,
    line,
    plain,
    shortened,
    tail,
    width_of,
    wrapped,
)
from perfguard.tui.drawing.steps import plot_flame, plot_waterfall
from perfguard.tui.tables.columns import parse_filter
from perfguard.watch.view.run_view import CaseSeries
from tests.tui_runs import a_case, a_delta, an_attribution

ANY = some.floats(allow_nan=True, allow_infinity=True)
FINITE = some.floats(min_value=-1e6, max_value=1e6)
SECONDS = some.floats(min_value=0, max_value=1e6)
WIDTH = some.integers(min_value=0, max_value=150)
HEIGHT = some.integers(min_value=0, max_value=50)
GLYPHS = some.sampled_from([ASCII, UNICODE])
TEXT = some.text(max_size=80)


def fits(lines, width: int, height: int, *, least: int = 60) -> bool:
    """Sentences that say why there is no picture are cut by the pane; pictures fit by themselves."""
    return len(lines) <= max(height, 1) and all(width_of(content) <= max(width, least) for content in lines)


def is_drawn_with(lines, glyphs) -> bool:
    return not glyphs.is_ascii or all(as_ascii(plain(content)) == plain(content) for content in lines)


@given(log_ratio=ANY, lower=ANY, upper=ANY, limit=some.floats(0.01, 10), width=WIDTH, glyphs=GLYPHS)
def test_a_bar_fits_whatever_the_effect(*, log_ratio, lower, upper, limit, width, glyphs) -> None:
    case = a_case(log_ratio=log_ratio, lower=lower, upper=upper)
    axis = EffectAxis(limit_ratio=limit, margin_ratio=0.02)
    drawn = interval_bar(case, width, axis, glyphs)
    assert width_of(drawn) == (width if width >= 3 else 0)
    assert is_drawn_with([drawn], glyphs)
    assert width_of(axis_line(width, axis)) <= width


@given(values=some.lists(some.none() | ANY))
def test_an_axis_has_an_end_whatever_the_values(values) -> None:
    assert 0.01 <= limit_for(values) <= 10.0 + 1e-9


@given(value=ANY, cells=some.integers(-3, 300))
def test_a_position_is_a_cell(value, cells) -> None:
    assert 0 <= position(value, -1.0, 1.0, cells) <= max(0, cells - 1)


@settings(deadline=None)
@given(
    baseline=some.lists(ANY, max_size=60),
    candidate=some.lists(ANY, max_size=60),
    width=WIDTH,
    height=HEIGHT,
    glyphs=GLYPHS,
)
def test_distributions_fit_whatever_the_samples(baseline, candidate, width, height, glyphs) -> None:
    series = CaseSeries(case_id="c", baseline_s=tuple(baseline), candidate_s=tuple(candidate))
    lines = plot_ecdf(series, width, height, glyphs)
    assert fits(lines, width, height)
    assert is_drawn_with(lines[1:-2], glyphs)


@settings(deadline=None)
@given(ratios=some.lists(ANY, max_size=200), effect=some.none() | ANY, width=WIDTH, height=HEIGHT, glyphs=GLYPHS)
def test_paired_differences_fit_whatever_the_blocks(ratios, effect, width, height, glyphs) -> None:
    series = CaseSeries(
        case_id="c", baseline_s=(1.0,), block_log_ratios=tuple(ratios), blocks=tuple(range(len(ratios)))
    )
    lines = plot_pairs(series, effect, width, height, glyphs)
    assert fits(lines, width, height)
    assert is_drawn_with(lines[1:], glyphs)


@given(
    deltas=some.lists(some.integers(-(10**9), 10**9).map(lambda ns: ns * 1e-9), min_size=1, max_size=12),
    width=WIDTH,
    height=HEIGHT,
    glyphs=GLYPHS,
)
def test_a_waterfall_fits_whatever_the_ops(deltas, width, height, glyphs) -> None:
    ops = [a_delta(f"op{index}", delta_s=delta) for index, delta in enumerate(deltas)]
    lines = plot_waterfall(an_attribution("c", ops), width, height, glyphs)
    assert len(lines) <= max(1, height, 2)
    assert all(width_of(content) <= max(width, 8 + 11 + 2) for content in lines)


FRAMES = some.recursive(
    some.builds(Frame, name=TEXT, value_s=SECONDS, delta_s=FINITE),
    lambda below: some.builds(
        Frame, name=TEXT, value_s=SECONDS, delta_s=FINITE, below=some.lists(below, max_size=4).map(tuple)
    ),
    max_leaves=12,
)


@given(root=FRAMES, width=WIDTH, height=HEIGHT)
def test_a_flame_graph_fits_whatever_the_frames(root, width, height) -> None:
    lines = plot_flame(root, width, height)
    assert fits(lines[1:], width, height)


@given(values=some.lists(ANY), width=some.integers(-2, 80), glyphs=GLYPHS)
def test_a_sparkline_has_one_cell_a_value(values, width, glyphs) -> None:
    assert len(sparkline(values, width, glyphs, low=0.0, high=1.0)) == max(0, width)


@given(values=some.lists(FINITE, min_size=1), most=some.integers(1, 50))
def test_thinned_values_lie_between_the_ends(values, most) -> None:
    shown = thinned(values, most)
    assert len(shown) == min(len(values), most)
    assert all(min(values) - 1e-6 <= value <= max(values) + 1e-6 for value in shown)


@given(text=TEXT, width=some.integers(0, 60), align_right=some.booleans())
def test_a_fitted_line_is_as_wide_as_asked_for(text, width, align_right) -> None:
    drawn = fitted(line(text), width, align_right=align_right)
    assert width_of(drawn) == width


@pytest.mark.parametrize("shorten", [cut, tail, shortened])
@given(
    text=some.text(alphabet=some.characters(categories=["L", "N", "P", "Zs"]), max_size=60), most=some.integers(0, 40)
)
def test_a_shortened_text_is_no_wider_than_asked_for(shorten, text, most) -> None:
    assert cell_len(shorten(text, most)) <= most


@given(text=some.text(max_size=120), width=some.integers(2, 60), indent=some.integers(0, 4))
def test_a_wrapped_sentence_keeps_its_words(text, width, indent) -> None:
    lines = wrapped(text, width, indent=min(indent, width - 2))
    assert all(width_of(content) <= width for content in lines)
    assert "".join("".join(plain(content).split()) for content in lines).isprintable()


@given(text=some.text(max_size=60))
def test_ascii_is_ascii_and_as_wide(text) -> None:
    found = as_ascii(plain(line(text)))
    assert found.isascii()
    assert len(found) == cell_len(plain(line(text)))


@given(text=some.text(max_size=40), row=some.text(max_size=40))
def test_any_filter_can_be_asked(text, row) -> None:
    assert parse_filter(text).accepts(row) in (True, False)


def test_infinite_effects_are_drawn_at_the_end() -> None:
    drawn = plain(
        interval_bar(a_case(log_ratio=math.inf, lower=0.0, upper=math.inf), 21, EffectAxis(limit_ratio=0.1), ASCII)
    )
    assert drawn.endswith(">")
