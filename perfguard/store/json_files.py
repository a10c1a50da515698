"""Small JSON files that say which schema they have."""

from __future__ import annotations

import json
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
