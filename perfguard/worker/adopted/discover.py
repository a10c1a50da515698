"""Find the cases of other tools' suites: `python -m perfguard.worker.adopted.discover JSON` prints their specs.

The argument says what to look through: `{"asv": [DIRECTORY…], "pytest": [FILE…], "timer": [FILE…]}`.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import traceback

from perfguard.worker.adopted.found import ASV, PYTEST, TIMER, FoundBenchmarks


def main(wanted: dict[str, list[str]]) -> None:
    """Look through the places of each tool and print what is there as one JSON object."""
    out = os.dup(1)
    os.dup2(2, 1)  # what the suites print must not mix with the answer
    found = FoundBenchmarks()
    for tool, places in wanted.items():
        module, name = _FINDERS[tool]
        find = getattr(importlib.import_module(f"perfguard.worker.adopted.{module}"), name)
        for place in places:
            try:
                find(place, found)
            except (Exception, SystemExit):  # noqa: BLE001 - a suite may fail in any way; the parent reports it
                found.errors.append({"path": place, "detail": traceback.format_exc(limit=-3)})
    if "torch" not in sys.modules:
        found.benchmarks = [dataclasses.replace(b, tags=(*b.tags, "no-torch")) for b in found.benchmarks]
    with os.fdopen(out, "w") as answer:
        specs = [dataclasses.asdict(spec) for spec in found.benchmarks]
        notes = [dataclasses.asdict(note) for note in (*found.notes, *found.counted)]
        json.dump({"benchmarks": specs, "notes": notes, "errors": found.errors}, answer)


_FINDERS = {ASV: ("asv", "find_asv"), PYTEST: ("pytest_cases", "find_tests"), TIMER: ("timer", "find_timers")}
"""Module and function that look through a tool's places; imported only when they are needed."""


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
