"""Every colour of words can be read on what lies below it, in both themes. Source: WCAG 2.1, 1.4.3 and 1.4.11."""

from __future__ import annotations

import re

import pytest

from perfguard.report.html.page import asset

PAIRS = re.compile(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")
COLOURS = {name: (light, dark) for name, light, dark in PAIRS.findall(asset("page.css"))}
WORDS = ("text", "quiet", "link", "slower", "faster", "same", "open", "broken")
BELOW = ("page", "surface")
FRAMES = tuple(f"{kind}-{strength}" for kind in ("slower", "faster") for strength in (1, 2, 3))
SIGNS = ("baseline", "candidate", *(f"part-{index}" for index in range(9)))


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_measure_knows_black_on_white():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_every_colour_of_the_stylesheet_is_one_of_a_theme():
    rules = asset("page.css").partition("}")[2]
    assert set(re.findall(r"#[0-9a-f]{3,8}\b", rules)) <= {"#0008"}
    assert set(re.findall(r"var\(--([a-z0-9-]+)\)", rules)) == set(COLOURS)


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("name", WORDS)
def test_words_can_be_read(name, theme):
    for below in BELOW:
        assert contrast(COLOURS[name][theme], COLOURS[below][theme]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("below", [*FRAMES, "frame", "band", "margin"])
def test_names_of_frames_and_words_on_bands_can_be_read(below, theme):
    assert contrast(COLOURS["text"][theme], COLOURS[below][theme]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1])
def test_axis_words_on_a_band_can_be_read(theme):
    assert contrast(COLOURS["quiet"][theme], COLOURS["band"][theme]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("name", SIGNS)
def test_curves_and_parts_of_rings_can_be_seen(name, theme):
    assert contrast(COLOURS[name][theme], COLOURS["page"][theme]) >= 3
