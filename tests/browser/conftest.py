"""Chromium of the system, without a network of its own; tests that need it are skipped where there is none."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)


@dataclass
class Opened:
    """A page, and everything that it did beside being shown."""

    page: object
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def texts(self, selector: str) -> list[str]:
        return [text.strip() for text in self.page.locator(selector).all_inner_texts()]

    def evaluate(self, script: str):
        return self.page.evaluate(script)


@pytest.fixture(scope="module")
def chromium():
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("there is no chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, tmp_path):
    """Opens a page, given as text or as a file; at the end nothing may have been complained of or asked for."""
    with contextlib.ExitStack() as stack:
        opened = []

        def opens(source: str | Path, **options) -> Opened:
            path = source
            if isinstance(source, str):
                path = tmp_path / f"page-{len(opened)}.html"
                path.write_text(source, encoding="utf-8")
            context = chromium.new_context(
                **{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **options}
            )
            stack.callback(context.close)
            found = Opened(context.new_page())
            found.page.on("console", lambda message: found.complaints.append(message.text))
            found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
            found.page.on("request", lambda request: found.requests.append(request.url))
            found.page.goto(path.as_uri())
            opened.append(found)
            return found

        yield opens
        for found in opened:
            assert found.complaints == []
            assert all(url.startswith(("file:", "blob:")) for url in found.requests)
