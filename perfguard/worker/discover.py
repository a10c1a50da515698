"""Find the benchmarks that a user's files declare: `python -m perfguard.worker.discover FILE…` prints their specs."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import traceback
from typing import Any

from perfguard.benchmarks.api import declared
from perfguard.worker.cases import load_module


def main(paths: list[str]) -> None:
    """Import each file (relative to the working directory) and print what it declares as one JSON object."""
    out = os.dup(1)
    os.dup2(2, 1)  # what the files print must not mix with the answer
    found: dict[str, Any] = {"benchmarks": [], "errors": []}
    for path in paths:
        before = set(declared)
        try:
            load_module(path)
        except Exception:  # noqa: BLE001 - a user's file may fail in any way; the parent reports it
            found["errors"].append({"path": path, "detail": traceback.format_exc(limit=-3)})
            continue
        for name in sorted(set(declared) - before):
            spec = declared[name].spec
            qualname = spec.target.rpartition(":")[2]
            found["benchmarks"].append(dataclasses.asdict(dataclasses.replace(spec, target=f"{path}:{qualname}")))
    with os.fdopen(out, "w") as answer:
        json.dump(found, answer)


if __name__ == "__main__":
    main(sys.argv[1:])
