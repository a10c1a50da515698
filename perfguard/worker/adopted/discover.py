"""Find the cases of other tools' suites: `python -m perfguard.worker.adopted.discover JSON` prints their specs.

The argument says what to look through: `{"asv": [DIRECTORY…], "pytest": [FILE…], "timer": [FILE…]}`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import traceback
from collections.abc import Callable

from perfguard.worker.adopted.found import ASV, PYTEST, TIMER, Found

_WITHOUT_TORCH = "no-torch"


def main(wanted: dict[str, list[str]]) -> None:
    """Look through the places of each tool and print what is there as one JSON object."""
    out = os.dup(1)
    os.dup2(2, 1)  # what the suites print must not mix with the answer
    found = Found()
    for tool, places in wanted.items():
        find = _finder(tool)
        for place in places:
            try:
                find(place, found)
            except (Exception, SystemExit):  # noqa: BLE001 - a suite may fail in any way; the parent reports it
                found.errors.append({"path": place, "detail": traceback.format_exc(limit=-3)})
    if "torch" not in sys.modules:
        found.benchmarks = [dataclasses.replace(b, tags=(*b.tags, _WITHOUT_TORCH)) for b in found.benchmarks]
    with os.fdopen(out, "w") as answer:
        specs = [dataclasses.asdict(spec) for spec in found.benchmarks]
        notes = [dataclasses.asdict(note) for note in found.all_notes()]
        json.dump({"benchmarks": specs, "notes": notes, "errors": found.errors}, answer)


def _finder(tool: str) -> Callable[[str, Found], None]:
    if tool == ASV:
        from perfguard.worker.adopted.asv import find_asv

        return find_asv
    if tool == PYTEST:
        from perfguard.worker.adopted.pytest_cases import find_tests

        return find_tests
    if tool == TIMER:
        from perfguard.worker.adopted.timer import find_timers

        return find_timers
    raise ValueError(f"no tool is called {tool!r}")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
