"""Pictures of reports for the documents: `python -m tests.page_pictures`, or `make pictures`. Needs Chromium.

From committed reports, so the pictures show what was measured on the machine that the report names.
"""

from __future__ import annotations

import shutil
import sys

from playwright.sync_api import sync_playwright

from tests.tui_pictures import PICTURES, REPOSITORY

MEASURED = REPOSITORY / "docs" / "measurements"
SHOTS = {
    "hogbatch-loss": ("hogbatch-*/report.html", "#covtype .study-loss"),
    "hogbatch-batches": ("hogbatch-*/report.html", "#covtype .study-batches"),
    "hogbatch-use": ("hogbatch-*/report.html", "#covtype .study-use"),
}
"""A report, and what of it is drawn: the first of its elements that match."""


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
        browser.close()


if __name__ == "__main__":
    main()
