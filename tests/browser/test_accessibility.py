"""Every page under axe-core's rules of WCAG 2.2 AA and good practice, bright on a phone, dark on a wide screen."""

from __future__ import annotations

import pytest

from perfguard.report.html.page import render_report
from tests.browser.test_served_pages import CHANGE, SERIES, VIEWS, address, visit  # noqa: F401 - fixtures
from tests.html_reports import a_profile, recorded

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")

NARROW = {"width": 390, "height": 900}
WIDE = {"width": 1280, "height": 900}


def broken_rules(page):
    """What axe objects to: rule, weight, and the first elements that break it."""
    found = axe.Axe().run(page).response["violations"]
    return [(rule["id"], rule["impact"], [node["html"][:120] for node in rule["nodes"]][:3]) for rule in found]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    compared = recorded(tmp_path_factory.mktemp("project"))
    profiled = a_profile()
    return {
        "gate": render_report([compared], source="test"),
        "profile": render_report([profiled], source="test"),
        "several": render_report([compared, profiled], source="test"),
    }


def broken_bright_and_dark(page):
    bright = broken_rules(page)
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(WIDE)
    return bright, broken_rules(page)


@pytest.mark.parametrize("name", ["gate", "profile", "several"])
def test_a_report_breaks_no_rule(open_page, reports, name):
    opened = open_page(reports[name], viewport=NARROW, color_scheme="light")
    for case in opened.page.locator("details:not([open]) > summary").all()[:3]:
        if case.is_visible():
            case.click()
    assert broken_bright_and_dark(opened.page) == ([], [])


@pytest.mark.parametrize("path", [*VIEWS, SERIES, CHANGE])
def test_a_served_page_breaks_no_rule_and_needs_no_scrolling_sideways(visit, path):  # noqa: F811
    page = visit(path, viewport=NARROW, color_scheme="light")
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    assert broken_bright_and_dark(page) == ([], [])
