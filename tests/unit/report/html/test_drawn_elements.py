from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.report.escaping import MOST_CHARACTERS, island, shown
from perfguard.report.html.svg import element, number, percent
from perfguard.units import cut_middle


def test_an_element_writes_its_attributes_and_children():
    drawn = element("rect", element("title", "a case"), x=percent(0.125), stroke_width=1.5, class_="bar", y=None)
    assert drawn.__html__() == '<rect x="12.5%" stroke-width="1.5" class="bar"><title>a case</title></rect>'


@given(st.text())
def test_no_text_leaves_its_place(text):
    markup = element("text", text, aria_label=text).__html__()
    inside = markup.removeprefix('<text aria-label="').removesuffix("</text>")
    assert "<" not in inside
    assert inside.count('"') == 1
    assert inside.count(">") == 1


@pytest.mark.parametrize("name", ["onclick", "onload", "style", "href", "src"])
def test_an_attribute_that_could_do_more_than_draw_is_refused(name):
    with pytest.raises(ValueError, match="no attribute"):
        element("rect", **{name: "x"})


@pytest.mark.parametrize("tag", ["script", "a", "foreignObject", "image", "use", "animate"])
def test_an_element_that_could_do_more_than_draw_is_refused(tag):
    with pytest.raises(ValueError, match="no element"):
        element(tag)


def test_numbers_are_as_short_as_can_be_seen():
    assert [number(value) for value in (1.0, 0.0, -0.0, 1.23456, -0.0001, 100.0)] == ["1", "0", "0", "1.23", "0", "100"]


@given(st.text())
def test_what_is_shown_has_no_control_characters_and_an_end(text):
    assert shown(text + "\x00\ud800").isprintable()
    assert len(shown(text * 50)) <= MOST_CHARACTERS


@given(st.text(min_size=1), st.integers(min_value=5, max_value=40))
def test_a_name_that_is_cut_keeps_its_ends(name, most):
    cut = cut_middle(name, most)
    assert len(cut) <= most
    assert cut[0] == name[0]
    assert cut[-1] == name[-1]


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_data_in_a_script_element_is_the_same_data_and_ends_nothing(value):
    text = island(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value
