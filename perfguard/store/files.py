"""Files that are written whole or not at all, and small JSON files that say which schema they have."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeVar

from perfguard.codec import from_builtins, upgraded
from perfguard.errors import StoreError

T = TypeVar("T")


def load_json(path: Path, kind: type[T], *, schema: int, if_corrupt: str, if_foreign: str) -> T | None:
    """The value in a file; None where there is no file.

    Args:
        path: The file.
        kind: What it holds.
        schema: The latest schema that can be read; older ones can be, too.
        if_corrupt: What to do where it is no JSON, as the end of a sentence.
        if_foreign: What to do where it has another schema, likewise.

    Raises:
        StoreError: It is corrupt or of another schema.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} is corrupt ({error}); {if_corrupt}") from error
    found = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= schema:
        raise StoreError(f"{path} has schema {found!r}, this perfguard reads {schema}; {if_foreign}")
    return from_builtins(upgraded(data, kind), kind, source=str(path))


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


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step, so that a crash leaves the old one or the new one.

    Raises:
        StoreError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    write_whole(path, text.encode())
