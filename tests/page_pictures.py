"""Pictures of pages for the documents: `python -m tests.page_pictures`, or `make pictures`. Needs Chromium.

Reports are committed ones, so their pictures show what was measured on the machine that the report names. The pages of
`perfguard serve` show an imagined history.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from playwright.sync_api import Page, sync_playwright

from perfguard.history.database import opened
from tests.served_histories import CASE, MACHINES, PROJECT, filled, served
from tests.tui_pictures import PICTURES, REPOSITORY

MEASURED = REPOSITORY / "docs" / "measurements"
SHOTS = {
    "hogbatch-loss": ("hogbatch-*/report.html", "#covtype .study-loss"),
    "hogbatch-batches": ("hogbatch-*/report.html", "#covtype .study-batches"),
    "hogbatch-use": ("hogbatch-*/report.html", "#covtype .study-use"),
}
"""A report, and what of it is drawn: the first of its elements that match."""
VIEWS = {"pages-series": f"/case?case={CASE}&machine={MACHINES[0]}"}


def main() -> None:
    """Write all pictures."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        sys.exit("error: there is no chromium on this machine")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 900}, device_scale_factor=2)
        for name, (report, selector) in SHOTS.items():
            page.goto(max(MEASURED.glob(report)).as_uri())
            page.locator(selector).first.screenshot(path=PICTURES / f"{name}.png")
        with tempfile.TemporaryDirectory() as folder:
            _take_views(page, Path(folder))
        browser.close()


def _take_views(page: Page, folder: Path) -> None:
    place = str(folder / "history.sqlite")
    with opened(place, folder) as database:
        filled(database)
    variables = {"PERFGUARD_DATABASE": place, "PERFGUARD_PROJECT": PROJECT, "PYTHONPATH": str(REPOSITORY)}
    page.set_viewport_size({"width": 1000, "height": 640})
    with served(SimpleNamespace(path=folder, environment={**os.environ, **variables})) as url:
        for name, path in VIEWS.items():
            page.goto(url + path)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()
