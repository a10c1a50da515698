"""Files that are written whole or not at all, and small JSON files that say which schema they have."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, TypeVar

from perfguard.codec import from_builtins
from perfguard.errors import StoreError

T = TypeVar("T")


def parse_json(path: Path, *, if_corrupt: str) -> Any:
    """Plain data in a JSON file.

    Raises:
        FileNotFoundError: There is none.
        StoreError: It is no JSON; `if_corrupt` ends the message.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} is corrupt ({error}); {if_corrupt}") from error


def load_json(path: Path, kind: type[T], *, schema: int, if_corrupt: str, if_foreign: str) -> T | None:
    """The value in a file of this schema or an older one; None where there is no file.

    Raises:
        StoreError: It is corrupt or of another schema; `if_corrupt` or `if_foreign` ends the message.
    """
    from perfguard.recordings import upgraded  # knows all that is recorded, which takes long to import

    try:
        data = parse_json(path, if_corrupt=if_corrupt)
    except FileNotFoundError:
        return None
    found = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= schema:
        raise StoreError(f"{path} has schema {found!r}, this perfguard reads {schema}; {if_foreign}")
    return from_builtins(upgraded(data, kind), kind, source=str(path))


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; what cannot be removed stays.

    By `rm`: `shutil.rmtree` ends in folders that a stranger nested deeper than Python recurses.
    """
    subprocess.run(["rm", "-rf", "--", str(path)], capture_output=True, check=False)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole, or leave what is there. Raises StoreError: it cannot be written."""
    try:
        if path.exists() and not path.is_file():  # a device or a pipe is written to, never replaced
            path.write_bytes(content)
            return
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
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
