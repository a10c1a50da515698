"""Effects as bars on a common axis."""

from __future__ import annotations

import math

import pytest

from perfguard.report.scales import limit_for, nice_above
from perfguard.tui.drawing.plots import EffectAxis, axis_line, effect_text, interval_bar, role_of_interval
from perfguard.tui.drawing.spans import ASCII, UNICODE, Role, plain, width_of
from tests.tui_runs import a_case

AXIS = EffectAxis(limit_ratio=0.1)


def bar(width: int = 21, axis: EffectAxis = AXIS, glyphs=ASCII, **fields) -> str:
    return plain(interval_bar(a_case(**fields), width, axis, glyphs))


def test_no_effect_is_only_the_axis() -> None:
    assert bar(log_ratio=None, lower=None, upper=None) == " " * 10 + "|" + " " * 10


def test_a_slowdown_lies_to_the_right_of_zero() -> None:
    assert bar(log_ratio=math.log1p(0.05), lower=math.log1p(0.03), upper=math.log1p(0.07)) == "          |  ==o==   "


@pytest.mark.parametrize("width", [24, 25])
@pytest.mark.parametrize("effect", [-0.0012, 0.0012])
def test_an_effect_near_zero_is_drawn_at_zero(width, effect) -> None:
    drawn = bar(width, log_ratio=effect, lower=effect - 0.03, upper=effect + 0.03)
    assert drawn.index("o") == plain(axis_line(width, AXIS)).index(" 0 ") + 1


def test_a_speedup_lies_to_the_left_of_zero() -> None:
    drawn = bar(log_ratio=math.log1p(-0.05), lower=math.log1p(-0.07), upper=math.log1p(-0.03))
    assert drawn.index("o") == 5
    assert drawn[10] == "|"


def test_an_interval_over_zero_crosses_the_axis() -> None:
    drawn = bar(log_ratio=math.log1p(0.03), lower=math.log1p(-0.05), upper=math.log1p(0.09))
    assert drawn[10] == "+"


def test_what_lies_beyond_the_axis_is_an_arrow() -> None:
    drawn = bar(log_ratio=0.5, lower=0.02, upper=0.9)
    assert drawn.endswith(">")
    assert "o" not in drawn
    assert bar(log_ratio=-0.5, lower=-0.9, upper=-0.02).startswith("<")


def test_an_unknown_interval_shows_the_point_alone() -> None:
    drawn = bar(log_ratio=math.log1p(0.05), lower=-math.inf, upper=math.inf)
    assert drawn.count("o") == 1
    assert "=" not in drawn


def test_the_edges_of_unchanged_are_marked() -> None:
    drawn = bar(axis=EffectAxis(limit_ratio=0.1, margin_ratio=0.02), log_ratio=None)
    assert [index for index, cell in enumerate(drawn) if cell == ":"] == [8, 12]


@pytest.mark.parametrize("glyphs", [ASCII, UNICODE], ids=["ascii", "unicode"])
@pytest.mark.parametrize("width", [0, 1, 2, 3, 4, 13, 80])
def test_a_bar_is_as_wide_as_asked_for(width: int, glyphs) -> None:
    drawn = interval_bar(a_case(), width, AXIS, glyphs)
    assert width_of(drawn) == (width if width >= 3 else 0)


def test_ends_are_drawn_by_halves_in_unicode() -> None:
    case = a_case(log_ratio=math.log1p(0.05), lower=math.log1p(0.028), upper=math.log1p(0.07))
    assert set(plain(interval_bar(case, 21, AXIS, UNICODE))) <= set(" │━╸╺●")


def test_the_axis_names_both_ends_and_zero() -> None:
    assert plain(axis_line(21, AXIS)) == "-10 %     0     +10 %"


def test_a_narrow_axis_names_one_end_for_both() -> None:
    assert "±10 %" in plain(axis_line(13, AXIS))


def test_the_effect_in_words_has_its_interval_where_it_is_known() -> None:
    assert effect_text(a_case(log_ratio=math.log(1.062), lower=math.log(1.051), upper=math.log(1.074))) == (
        "+6.20 % [5.10, 7.40]"
    )
    assert effect_text(a_case(log_ratio=math.log(1.062), lower=None)) == "+6.20 %"
    assert effect_text(a_case(log_ratio=None)) == "-"


@pytest.mark.parametrize(
    ("lower", "upper", "role"),
    [(0.01, 0.02, Role.SLOWER), (-0.02, -0.01, Role.FASTER), (-0.01, 0.01, Role.SAME), (None, None, Role.SAME)],
)
def test_only_an_interval_on_one_side_of_zero_is_slower_or_faster(lower, upper, role: Role) -> None:
    assert role_of_interval(a_case(lower=lower, upper=upper)) is role


@pytest.mark.parametrize(("value", "nice"), [(0.011, 0.02), (0.02, 0.02), (0.03, 0.05), (0.051, 0.1), (7.0, 10.0)])
def test_axes_end_at_one_two_or_five(value: float, nice: float) -> None:
    assert nice_above(value) == pytest.approx(nice)


def test_one_outlier_does_not_flatten_all_other_bars() -> None:
    assert limit_for([*[0.01] * 19, 5.0]) == pytest.approx(0.01)


def test_an_axis_without_values_still_has_ends() -> None:
    assert limit_for([None, math.nan, math.inf]) == pytest.approx(0.01)
