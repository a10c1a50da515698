"""Pages on disk: one, or a site with a page for each recorded run and one that lists them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from perfguard.codec import from_builtins, to_builtins
from perfguard.config import LoadedConfig
from perfguard.errors import StoreError, UsageError
from perfguard.history.queries import MAX_RUNS
from perfguard.history.reading import read_changes, read_history
from perfguard.report.case_history import unread_runs
from perfguard.report.escaping import island
from perfguard.report.html.page import MARKER, look, render_report
from perfguard.report.html.site import PAGES, SiteRow, page_name, render_index, site_row
from perfguard.report.pages.build import read_run, source_of
from perfguard.store.files import write_text
from perfguard.watch.sources.event_sources import EVENTS_FILE

INDEX = "index.html"
NO_JEKYLL = ".nojekyll"  # Tells GitHub Pages to serve the files as they are
_ROW = " row="
_HEAD_BYTES = 8192


class Published(Struct, frozen=True, kw_only=True):
    """What became of a site."""

    written: tuple[str, ...]  # Files that were written, relative to the site
    unchanged: int  # Pages of runs that were up to date
    runs: int
    """Runs that the first page lists, among them such as are no longer recorded but still have their page."""
    failures: tuple[str, ...] = ()
    """Runs whose page could not be made, one sentence each; all others have theirs."""
    problems: tuple[str, ...] = ()
    """Runs that could not be read whole, one sentence each; the first page names them, too."""


def publish(loaded: LoadedConfig, site: Path, *, force: bool = False) -> Published:
    """Write what is missing or has changed; pages of runs that are no longer recorded stay.

    The folder need not exist. With `force`, files that perfguard did not write may be overwritten.

    Raises:
        UsageError: A file stands in the way that perfguard did not write; nothing was written then.
        StoreError: Nothing is recorded, or the place cannot be written.
    """
    folders = [path.parent for path in sorted((loaded.project / ".perfguard" / "runs").glob(f"*/{EVENTS_FILE}"))]
    if not folders:
        raise StoreError(f"no run is recorded in {loaded.project / '.perfguard' / 'runs'}; `perfguard gate` makes one")
    pages = {folder: site / PAGES / page_name(folder.name) for folder in folders[-MAX_RUNS:]}
    if not force:
        _refuse(site, [site / INDEX, *pages.values()])
    failures: list[str] = []
    written = list(_write_runs(loaded, site, pages, failures, force=force))
    unchanged = len(pages) - len(written) - len(failures)
    rows, history = list(_rows(site)), read_history(loaded)
    changes = read_changes(loaded, history.points)
    if _write_index(render_index(rows, history, changes, source=look()), site, force=force):
        written.append(INDEX)
    if not (site / NO_JEKYLL).exists():
        write_text(site / NO_JEKYLL, "")
        written.append(NO_JEKYLL)
    return Published(
        written=tuple(written),
        unchanged=unchanged,
        runs=len(rows),
        failures=tuple(failures),
        problems=unread_runs(history.problems),
    )


def _refuse(site: Path, paths: list[Path]) -> None:
    if (site / PAGES).is_symlink():
        raise UsageError(
            f"{site / PAGES} is a link, and what it leads to is not the site's; publish to another folder, or write "
            "there with --force"
        )
    for path in paths:
        if not _may_overwrite(path):
            raise UsageError(
                f"{path} was not written by perfguard; publish to another folder, or overwrite it with --force"
            )


def _write_runs(
    loaded: LoadedConfig, site: Path, pages: Mapping[Path, Path], failures: list[str], *, force: bool
) -> Iterator[str]:
    """Pages whose run, or whose look, is another one than they were made of; `failures` takes those that have none."""
    for folder, page in pages.items():
        try:
            source = source_of(folder)
            if f" source={source} " in _head(page) and _row_of(page) is not None:
                continue
            content = read_run(loaded, folder, with_history=False)
            row = island(to_builtins(site_row(content)))
            text = render_report([content], source=f"{source}{_ROW}{row}", index=f"../{INDEX}")
            write_page(page, text, force=force)
        except Exception as error:  # noqa: BLE001 - a run can hold anything, and must not keep the others from the site
            failures.append(f"run {folder.name} has no page: {type(error).__name__}: {error}")
        else:
            yield str(page.relative_to(site))


def _rows(site: Path) -> Iterator[SiteRow]:
    yield from filter(None, map(_row_of, sorted((site / PAGES).glob("*.html"))))


def _row_of(page: Path) -> SiteRow | None:
    """A run's row, as its page keeps it; None where it is not perfguard's or was damaged."""
    _, begins, rest = _head(page).partition(MARKER)
    _, _, row = rest.partition(" -->")[0].partition(_ROW)
    try:
        return from_builtins(json.loads(row), SiteRow, source=str(page)) if begins else None
    except (ValueError, StoreError):
        return None


def _write_index(text: str, site: Path, *, force: bool) -> bool:
    """Whether it had to be written."""
    index = site / INDEX
    if index.is_file() and index.read_text(encoding="utf-8", errors="replace") == text:
        return False
    write_page(index, text, force=force)
    return True


def write_page(path: Path, text: str, *, force: bool) -> None:
    """Write a page in one step; over a file that perfguard did not write only with `force`.

    Raises:
        UsageError: There is a file that perfguard did not write.
        StoreError: The place cannot be written.
    """
    if not force and not _may_overwrite(path):
        raise UsageError(f"{path} was not written by perfguard; name another file, or overwrite it with --force")
    write_text(path, text)


def _may_overwrite(path: Path) -> bool:
    """Whether there is nothing at a path, or a page that perfguard wrote."""
    return not path.exists() or MARKER in _head(path)


def _head(path: Path) -> str:
    """The beginning of a file, where a page says who made it of what; empty where it cannot be read."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""  # a pipe may never have anything to say
            return file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
