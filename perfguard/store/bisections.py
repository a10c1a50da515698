"""What bisections keep: `.perfguard/bisect/<key>.json`, one file for each pair of trees, machine and settings."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from perfguard.codec import to_json
from perfguard.records.bisection import BISECTION_SCHEMA, BisectionLog, MeasuredTree
from perfguard.store.json_files import load_json
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
    remedy = "begin anew with --fresh"
    log = load_json(path, BisectionLog, schema=BISECTION_SCHEMA, if_corrupt=remedy, if_foreign=remedy)
    return log.trees if log is not None else {}


def save_log(path: Path, log: BisectionLog) -> None:
    """Replace the file in one step.

    Raises:
        StoreError: It cannot be written.
    """
    write_text(path, to_json(log, indent=1) + "\n")
