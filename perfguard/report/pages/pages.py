"""Pages on disk: written in one step, and never over a file that perfguard did not write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from perfguard.errors import UsageError
from perfguard.report.html.page import MARKER
from perfguard.store.files import write_text

_HEAD_BYTES = 8192


def write_page(path: Path, text: str, *, force: bool) -> None:
    """Write a page; never over a file that perfguard did not write.

    Args:
        path: Where to.
        text: The page.
        force: Whether any file may be overwritten.

    Raises:
        UsageError: There is a file that perfguard did not write.
        StoreError: The place cannot be written.
    """
    if not force and not may_overwrite(path):
        raise UsageError(f"{path} was not written by perfguard; name another file, or overwrite it with --force")
    write_text(path, text)


def may_overwrite(path: Path) -> bool:
    """Whether there is nothing at a path, or a page that perfguard wrote."""
    return not path.exists() or MARKER in page_head(path)


def page_head(path: Path) -> str:
    """The beginning of a file, where a page says who made it of what; empty where it cannot be read."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""  # a pipe may never have anything to say
            return file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
