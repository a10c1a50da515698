"""Reading files that somebody else may have put there: plain ones alone, which end."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_plain(path: Path, most_bytes: int) -> bytes | None:
    """What a file holds; None where it is missing, larger, or no plain file: a link, a pipe, or a device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
                return None
            content = file.read(most_bytes + 1)
    except (OSError, ValueError):  # a name with a null byte is a ValueError
        return None
    return content if len(content) <= most_bytes else None
