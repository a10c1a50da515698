"""The pages of `perfguard serve` in Chromium."""

from __future__ import annotations

import time
import urllib.request

import pytest

from perfguard.history.database import opened
from tests.conftest import project_in
from tests.served_histories import CASE, MACHINES, PROJECT, RUNS, STEP_AT, filled, served

pytest.importorskip("litestar")

VIEWS = ("/", "/cases", "/compare", "/fleet")
SERIES = f"/case?case={CASE}&machine={MACHINES[0]}"
CHANGE = f"/change?case={CASE}&machine={MACHINES[0]}&run=run-{MACHINES[0]}-{STEP_AT:03d}"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    project, place = project_in(folder), folder / "history.sqlite"
    project.path.mkdir()
    project.environment.update(PERFGUARD_DATABASE=str(place), PERFGUARD_PROJECT=PROJECT)
    with opened(str(place), folder) as database:
        filled(database)
    with served(project) as url:
        yield url


@pytest.fixture
def visit(chromium, address):
    """Opens a view; at the end nothing was complained of, and nothing was asked of another server."""
    contexts, complaints, requests = [], [], []

    def visits(path, **options):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address + path)
        return page

    yield visits
    for context in contexts:
        context.close()
    assert complaints == []
    assert all(url.startswith((address, "data:")) for url in requests)


def test_a_series_is_drawn_with_its_software_and_its_change(visit):
    page = visit(SERIES)
    page.wait_for_selector(".chart canvas")
    label = page.get_attribute(".chart", "aria-label")
    assert label.startswith(f"step.resnet50: {RUNS} runs, medians from ")
    assert label.endswith(", 1 changes")


def test_the_keyboard_reaches_every_view_and_every_run(visit, address):
    page = visit("/")
    for key, path in zip("2341", ("/cases", "/compare", "/fleet", "/"), strict=True):
        page.keyboard.press(key)
        page.wait_for_url(f"{address}{path}*")
    page = visit(SERIES)
    page.wait_for_selector(".chart canvas")
    page.focus(".chart")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#said").endswith(" ms")
    page.keyboard.press("?")
    assert page.is_visible("dialog")


def test_a_row_is_found_and_opened_by_keys(visit, address):
    page = visit("/cases")
    page.keyboard.press("/")
    page.keyboard.type(f"resnet {MACHINES[0]}")
    assert page.inner_text("#said") == "1 rows"
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{address}/case?*")
    assert page.inner_text("h1") == "step.resnet50"


def test_the_theme_is_switched_and_remembered(visit):
    page = visit("/", color_scheme="light")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_change_is_in_the_inbox_and_leads_to_its_page(visit, address):
    page = visit("/")
    deadline = time.monotonic() + 30
    while not page.locator("tbody tr").count() and time.monotonic() < deadline:
        page.reload()
    page.click("tbody a")
    page.wait_for_url(f"{address}/change?*")
    assert page.inner_text("h1").startswith("step.resnet50: +")
    assert "perfguard bisect --good" in page.inner_text("main")


def test_all_that_pages_load_is_small(address):
    import gzip

    names = ("page.css", "serve.css", "uPlot.min.css", "uPlot.iife.min.js", "theme.js", "serve.js")
    contents = [urllib.request.urlopen(f"{address}/assets/{name}").read() for name in names]
    assert sum(len(gzip.compress(content)) for content in contents) < 100_000
