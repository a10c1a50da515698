"""Reading files that somebody else may have put there: plain ones alone, which end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_plain(path: Path) -> BinaryIO | None:
    """A file to read from; None where it is no plain file but a pipe or a device.

    Raises:
        OSError: It is missing, a link, or not to be read.
        ValueError: The path holds a null byte.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    file = os.fdopen(descriptor, "rb")
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return file
    file.close()
    return None


def read_plain(path: Path, most_bytes: int) -> bytes | None:
    """What a file holds; None where it cannot be read, is larger, or no plain file: a link, a pipe, or a device."""
    try:
        file = open_plain(path)
        if file is None:
            return None
        with file:
            if os.fstat(file.fileno()).st_size > most_bytes:
                return None
            content = file.read(most_bytes + 1)
    except (OSError, ValueError):
        return None
    return content if len(content) <= most_bytes else None
