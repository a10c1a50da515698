"""Reports on runs whose every text was written by an attacker: in a real browser nothing of it runs."""

from __future__ import annotations

import pytest

from perfguard.codec import to_builtins
from perfguard.report.escaping import island
from perfguard.report.html.page import render_report
from perfguard.report.html.site import render_index, site_row
from tests.changed_values import replace
from tests.html_reports import a_finding, a_profile, poisoned, recorded
from tests.recorded_runs import SLOWER


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    compared = recorded(tmp_path_factory.mktemp("project"))
    result = compared.result
    assert result is not None
    with_advice = replace(compared, result=replace(result, findings={SLOWER: (a_finding(),)}), problems=("broken",))
    return render_report([poisoned(with_advice), poisoned(a_profile())], source="test")


def test_nothing_of_an_attackers_text_runs(open_page, hostile):
    opened = open_page(hostile)
    assert opened.evaluate("window.broken") is None
    assert len(opened.requests) == 1


def test_nothing_of_it_becomes_an_element_or_an_attribute(open_page, hostile):
    opened = open_page(hostile)
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator("script").count() == 2
    found = opened.evaluate(
        """Array.from(document.querySelectorAll('*')).flatMap((part) => Array.from(part.attributes)
        .filter((each) => each.name.startsWith('on') || ['style', 'src'].includes(each.name)
            || (['href', 'xlink:href'].includes(each.name) && !each.value.startsWith('#')))
        .map((each) => each.name))"""
    )
    assert found == []


def test_it_is_shown_as_the_text_that_it_is(open_page, hostile):
    opened = open_page(hostile)
    assert "<script>window.broken = 1</script>" in opened.texts("table.cases td.name")[0]
    assert "{{ 7 * 7 }}" in opened.texts(".sentence")[0]


def test_tables_filters_and_downloads_still_work(open_page, hostile):
    opened = open_page(hostile)
    opened.page.locator("table.cases th button").first.click()
    opened.page.keyboard.press("/")
    opened.page.keyboard.type('<script> "onload=')
    with opened.page.expect_download() as waiting:
        opened.page.locator("button[data-file='0']").click()
    assert "/" not in waiting.value.suggested_filename
    assert opened.evaluate("window.broken") is None


def test_very_long_texts_neither_widen_the_page_nor_fill_it(open_page, hostile):
    opened = open_page(hostile, viewport={"width": 1000, "height": 800})
    assert opened.evaluate("document.documentElement.scrollWidth") <= 1000
    assert len(hostile) < 6_000_000


def test_a_sites_first_page_takes_nothing_of_it_either(open_page, tmp_path):
    evil = poisoned(recorded(tmp_path / "project"))
    row = site_row(evil)
    opened = open_page(render_index([row], evil.history, source=f"x row={island(to_builtins(row))}"))
    assert opened.evaluate("window.broken") is None
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator("script").count() == 2
    assert opened.evaluate("document.compatMode") == "CSS1Compat"
    (link,) = opened.evaluate("Array.from(document.querySelectorAll('table a')).map((a) => a.getAttribute('href'))")
    assert link.startswith("runs/paired%22")
    assert link.endswith(".html")
