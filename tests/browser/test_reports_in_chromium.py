"""Reports as a reader meets them: charts with their data, tables, keys, themes, paper, no script, small screens."""

from __future__ import annotations

import pytest

from perfguard.records.case_names import short_names
from perfguard.report.html.page import render_report
from tests.html_reports import a_profile, recorded
from tests.recorded_runs import CASE_IDS, DATA, FASTER, SLOWER

FIRST = "details.case >> nth=0"

NAMES = short_names(CASE_IDS)
"""What the tables show of each case."""


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def report(compared):
    return render_report([compared], source="test")


@pytest.fixture(scope="module")
def profile_report():
    return render_report([a_profile()], source="test")


def test_a_report_asks_for_nothing_but_itself(open_page, report):
    opened = open_page(report)
    assert len(opened.requests) == 1
    assert "regressed" in opened.texts("h1")[0]


def test_every_chart_has_its_data(open_page, report, compared):
    opened = open_page(report)
    case = opened.page.locator(FIRST)
    assert opened.page.locator(".forest svg circle.point").count() == 5
    blocks = compared.evidence[SLOWER].blocks
    marks = case.locator(".pairs circle.point").count() + case.locator(".pairs text.voided").count()
    assert marks + case.locator(".pairs text.confirming").count() == len(blocks)
    assert case.locator(".ecdf path.curve").count() == 2
    assert case.locator(".waterfall rect.bar").count() >= 4
    assert case.locator(".icicle .step-frame").count() >= 6
    assert case.locator(".history circle.this-run").count() == 1


def test_everything_that_is_drawn_lies_inside_its_picture(open_page, report, profile_report):
    outside = """() => Array.from(document.querySelectorAll('details.case[open] svg.plot')).flatMap((svg) => {
        const own = svg.getBoundingClientRect();
        return Array.from(svg.querySelectorAll('circle, rect, path, text')).filter((part) => {
            const box = part.getBoundingClientRect();
            const isWithin = box.left >= own.left - 9 && box.right <= own.right + 9
                && box.top >= own.top - 7 && box.bottom <= own.bottom + 7;
            return box.width && !part.closest('.step-frame') && !isWithin;
        }).map((part) => part.outerHTML.slice(0, 200));
    })"""
    for text in (report, profile_report):
        for width in (1280, 380):
            opened = open_page(text, viewport={"width": width, "height": 900})
            assert opened.evaluate(outside) == []


def test_a_click_on_a_column_sorts_and_another_reverses(open_page, report):
    opened = open_page(report)
    button = opened.page.locator("table.cases th button", has_text="effect")
    button.click()
    assert opened.texts("table.cases td.name")[0] == NAMES[FASTER]
    assert opened.page.locator('table.cases th[aria-sort="ascending"]').count() == 1
    button.click()
    assert opened.texts("table.cases td.name")[0] == NAMES[SLOWER]
    assert opened.texts("table.cases tbody tr td:nth-child(3)")[-1] == "-"


def test_the_filter_finds_cases_by_name_and_verdict_and_is_cleared_by_escape(open_page, report):
    opened = open_page(report)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("softmax improved")
    assert opened.texts("table.cases tr:visible td.name") == [NAMES[FASTER]]
    assert opened.texts("details.case:visible .case-name") == [FASTER]
    opened.page.keyboard.press("Escape")
    assert len(opened.texts("table.cases tr:visible td.name")) == len(CASE_IDS)


def test_the_filter_finds_a_case_by_its_op(open_page, report):
    opened = open_page(report)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("onednn::reorder")
    assert opened.texts("details.case:visible .case-name") == [SLOWER]


def test_arrows_go_through_a_table_and_enter_opens_the_case(open_page, report):
    opened = open_page(report)
    opened.page.locator("table.cases tbody tr").first.focus()
    opened.page.keyboard.press("ArrowDown")
    name = opened.evaluate("document.activeElement.cells[0].innerText")
    assert name == opened.texts("table.cases td.name")[1]
    opened.page.keyboard.press("End")
    opened.page.keyboard.press("Home")
    opened.page.keyboard.press("ArrowDown")
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_function("location.hash === '#run-1-case-2'")
    opened.page.wait_for_selector("#run-1-case-2[open]")


def test_the_tab_key_reaches_the_first_row_of_a_table_only(open_page, report):
    opened = open_page(report)
    assert opened.page.locator("table.cases tbody tr[tabindex='0']").count() == 1


def test_a_question_mark_shows_the_keys_and_escape_hides_them(open_page, report):
    opened = open_page(report)
    opened.page.keyboard.press("?")
    assert opened.page.locator("dialog[open]").count() == 1
    opened.page.keyboard.press("Escape")
    assert opened.page.locator("dialog[open]").count() == 0


def test_an_icicle_zooms_by_keyboard_and_comes_back(open_page, report):
    opened = open_page(report)
    frame = opened.page.locator(f"{FIRST} >> .step-frame >> nth=1")
    before = frame.bounding_box()["width"]
    opened.page.locator(f"{FIRST} >> .step-frame >> nth=0").focus()
    opened.page.keyboard.press("ArrowDown")
    assert opened.evaluate("document.activeElement.getAttribute('data-level')") == "1"
    opened.page.keyboard.press("Enter")
    whole = opened.page.locator(f"{FIRST} >> svg.icicle").bounding_box()["width"]
    assert frame.bounding_box()["width"] == pytest.approx(whole, abs=4)
    opened.page.keyboard.press("Escape")
    assert frame.bounding_box()["width"] == pytest.approx(before, abs=4)


def test_a_frame_that_is_clicked_fills_the_picture(open_page, report):
    opened = open_page(report)
    frame = opened.page.locator(f"{FIRST} >> .step-frame[data-level='2'] >> nth=0")
    frame.click()
    whole = opened.page.locator(f"{FIRST} >> svg.icicle").bounding_box()["width"]
    assert frame.bounding_box()["width"] == pytest.approx(whole, abs=4)


def test_the_theme_follows_the_system_until_it_is_switched(open_page, report):
    colour = "getComputedStyle(document.body).backgroundColor"
    light, dark = (open_page(report, color_scheme=scheme) for scheme in ("light", "dark"))
    of_light, of_dark = light.evaluate(colour), dark.evaluate(colour)
    assert of_light != of_dark
    light.page.keyboard.press("t")
    assert light.evaluate(colour) == of_dark
    light.page.keyboard.press("t")
    assert light.evaluate(colour) == of_light


def test_the_same_report_looks_the_same_and_themes_differ(open_page, report):
    opened = [open_page(report, color_scheme=scheme) for scheme in ("light", "light", "dark")]
    shots = [found.page.locator(".forest svg").first.screenshot() for found in opened]
    assert shots[0] == shots[1]
    assert shots[0] != shots[2]


def test_on_paper_cases_are_open_and_controls_are_gone(open_page, report):
    opened = open_page(report)
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    opened.page.emulate_media(media="print")
    assert opened.page.locator("details.case:not([open])").count() == 0
    assert not opened.page.locator("header.top").is_visible()
    assert not opened.page.locator("input").first.is_visible()


def test_on_paper_cases_are_open_without_a_script_too(open_page, report):
    opened = open_page(report, java_script_enabled=False)
    opened.page.emulate_media(media="print")
    assert opened.page.locator("details.case:not([open]) .said").first.is_visible()


def test_without_a_script_everything_can_be_read(open_page, report):
    opened = open_page(report, java_script_enabled=False)
    page = opened.page
    assert page.locator(f"{FIRST} >> .pairs svg").is_visible()
    assert len(opened.texts("table.cases td.name")) == len(CASE_IDS)
    assert page.locator("button:visible").count() == 0
    assert page.locator("noscript").count() == 1
    page.locator("table.cases a").nth(1).click()
    assert page.url.endswith("#run-1-case-2")


def test_what_is_downloaded_is_what_was_recorded(open_page, report):
    opened = open_page(report)
    with opened.page.expect_download() as waiting:
        opened.page.locator("button[data-file='0']").click()
    assert waiting.value.suggested_filename.endswith("-events.jsonl")
    assert waiting.value.path().read_bytes() == (DATA / "paired" / "events.jsonl").read_bytes()


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_no_page_is_wider_than_its_screen(open_page, report, profile_report, width):
    for text in (report, profile_report):
        opened = open_page(text, viewport={"width": width, "height": 800})
        assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_a_profile_has_rings_and_a_roofline_for_each_dtype(open_page, profile_report):
    opened = open_page(profile_report)
    assert opened.page.locator("svg.donut").count() == 2
    assert opened.page.locator(".donut-work path").count() == 9
    assert opened.page.locator(".roofline svg.plot").count() == 2
    assert opened.page.locator(".roofline circle.problem").count() == 2
    assert opened.page.locator(".finding").count() == 1


def test_several_runs_follow_each_other_behind_an_index(open_page, compared, tmp_path):
    text = render_report([compared, recorded(tmp_path, "rounds"), a_profile()], source="test")
    opened = open_page(text)
    assert opened.page.locator("nav li").count() == 3
    opened.page.locator("nav a").nth(1).click()
    assert opened.page.url.endswith("#run-2")
    ids = opened.evaluate("Array.from(document.querySelectorAll('[id]')).map((part) => part.id)")
    assert len(ids) == len(set(ids))


def test_every_picture_and_control_has_a_name(open_page, report):
    opened = open_page(report)
    unnamed = opened.evaluate(
        """Array.from(document.querySelectorAll('svg[role], button, input, nav, dialog')).filter((part) =>
        !(part.getAttribute('aria-label') || part.getAttribute('aria-labelledby') || part.textContent.trim()
          || part.closest('label'))).length"""
    )
    assert unnamed == 0
