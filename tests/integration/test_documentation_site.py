"""The documentation as a site: every link leads somewhere, and every page is reached."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None or not (REPOSITORY / "mkdocs.yml").is_file(),
    reason="needs zensical, and a clone of perfguard",
)


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(REPOSITORY / "docs", tmp_path / "docs")
    shutil.copy(REPOSITORY / "mkdocs.yml", tmp_path)
    return tmp_path


def built(place):
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"], cwd=place, capture_output=True, text=True, timeout=300
    )


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(copied):
    done = built(copied)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((copied / ".perfguard" / "site").rglob("*.html"))
    assert len(pages) > len(list((copied / "docs").glob("*.md")))
    loaded = re.compile(r"<(?:script|img|link[^>]+stylesheet)[^>]+(?:src|href)=[\"']?https?://")
    assert [page for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("link", ["absent.md", "gating.md#absent", "../absent.md"])
def test_a_broken_link_fails(copied, link):
    with (copied / "docs" / "index.md").open("a", encoding="utf-8") as page:
        page.write(f"[broken]({link})\n")
    assert built(copied).returncode != 0


def test_every_page_of_the_documentation_is_in_its_menu():
    menu = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {path.name for path in (REPOSITORY / "docs").glob("*.md")}
    assert pages == {name for name in pages if f": {name}" in menu}
