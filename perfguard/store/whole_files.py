"""Files that are written whole or not at all: a crash or a full disk leaves the old one."""

from __future__ import annotations

import os
from pathlib import Path

from perfguard.errors import StoreError


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole, or leave what is there.

    Raises:
        StoreError: It cannot be written.
    """
    if path.exists() and not path.is_file():  # a device or a pipe is written to, never replaced
        try:
            path.write_bytes(content)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error
