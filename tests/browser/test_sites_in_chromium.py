"""A published site as files: the first page leads to every run and back."""

from __future__ import annotations

import pytest

from perfguard.config import load_config
from perfguard.report.pages.site import publish
from tests.html_reports import a_project


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    project = a_project(tmp_path_factory.mktemp("project"))
    publish(load_config(project, {}, {}), project / "site")
    return project / "site"


def test_the_first_page_leads_to_each_run_and_back(open_page, site):
    opened = open_page(site / "index.html")
    links = opened.page.locator("table a")
    assert links.count() == 2
    opened.page.locator("table a", has_text="paired").click()
    assert "regressed" in opened.texts("h1")[0]
    opened.page.locator("header a", has_text="all runs").click()
    assert opened.page.url.endswith("/index.html")
    assert opened.complaints == []


def test_the_first_page_has_a_series_for_each_case(open_page, site):
    opened = open_page(site / "index.html")
    assert opened.page.locator("details.case").count() == 5
    assert opened.page.locator("figure.history svg.plot").count() == 5


def test_the_first_page_filters_runs_by_verdict(open_page, site):
    opened = open_page(site / "index.html")
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("regressed")
    assert opened.page.locator("table[data-sortable] tr[data-filter]:visible").count() == 1
