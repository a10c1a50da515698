"""What bisections keep: `.perfguard/bisect/<key>.json`, one file for each pair of trees, machine and settings."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfguard.codec import from_builtins, to_json
from perfguard.errors import StoreError
from perfguard.model.bisection import BISECTION_SCHEMA, BisectionLog, MeasuredTree
from perfguard.store.pyperf_files import write_text


def bisection_file(project: Path, log: BisectionLog) -> Path:
    """Where the answers lie that belong to everything in `log` but its own answers."""
    identity = to_json(replace(log, trees={}))
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return project / ".perfguard" / "bisect" / f"{key}.json"


def load_answers(path: Path) -> dict[str, MeasuredTree]:
    """The answers in a file by tree; none where there is no file.

    Raises:
        StoreError: It is corrupt or of another schema.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} is corrupt ({error}); begin anew with --fresh") from error
    found = data.get("schema") if isinstance(data, dict) else None
    if found != BISECTION_SCHEMA:
        raise StoreError(f"{path} has schema {found}, this perfguard reads {BISECTION_SCHEMA}; begin anew with --fresh")
    return from_builtins(data, BisectionLog, source=str(path)).trees


def save_log(path: Path, log: BisectionLog) -> None:
    """Replace the file in one step.

    Raises:
        StoreError: It cannot be written.
    """
    write_text(path, to_json(log, indent=1) + "\n")
