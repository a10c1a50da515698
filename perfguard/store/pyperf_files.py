"""pyperf's own JSON files: read, join, clean and write. `python -m pyperf stats FILE` works on all of them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from perfguard.errors import StoreError
from perfguard.store.files import write_text

PRIVATE_METADATA = (
    *("boot_time", "command", "cpu_freq", "hostname", "load_avg_1min", "perf_version", "platform", "python_cflags"),
    *("python_config_args", "python_executable", "runnable_threads", "uptime"),
)
"""Left out of what is committed: names of hosts and places, and what changes with every run and means nothing."""

REMEDY = "restore it from git, or run `perfguard baseline update`"
_BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError)
"""What pyperf raises on a file that it did not write, or not to its end."""


def join_suites(paths: Iterable[Path], *, skipped: Callable[[str], None]) -> Any | None:
    """One pyperf suite with the runs of all files; None where no file holds any.

    A file that a killed worker left half written is skipped, and said so; files that do not fit together all are.
    """
    import pyperf

    runs: dict[str, list[Any]] = {}
    for path in sorted(paths):
        try:
            suite = pyperf.BenchmarkSuite.load(str(path))
        except _BROKEN as error:
            skipped(f"{path.name} is not a complete pyperf file and was left out ({error})")
            continue
        for benchmark in suite.get_benchmarks():
            runs.setdefault(benchmark.get_name(), []).extend(benchmark.get_runs())
    try:
        return suite_from_runs(runs) if runs else None
    except _BROKEN as error:
        skipped(f"the pyperf files do not fit together and were left out ({error})")
        return None


def suite_from_runs(runs: dict[str, list[Any]]) -> Any:
    """A pyperf suite from runs by benchmark name."""
    import pyperf

    return pyperf.BenchmarkSuite([pyperf.Benchmark(found) for _, found in sorted(runs.items())])


def write_suite(suite: Any, path: Path, *, public: bool = False) -> None:
    """Write a pyperf suite as sorted, indented JSON, one value a line, so that a diff of it can be read.

    A public one, which is committed, lacks private metadata.

    Raises:
        StoreError: The file cannot be written.
    """
    with tempfile.TemporaryDirectory() as place:
        raw = Path(place) / "suite.json"
        suite.dump(str(raw))
        document = json.loads(raw.read_text(encoding="utf-8"))
    if public:
        _drop_private(document)
    write_text(path, json.dumps(document, indent=1, sort_keys=True) + "\n")


def read_suite(path: Path) -> Any:
    """A pyperf suite. Raises StoreError: the file is missing or not pyperf's."""
    import pyperf

    try:
        return pyperf.BenchmarkSuite.load(str(path))
    except FileNotFoundError:
        raise StoreError(f"{path} is missing; {REMEDY}") from None
    except _BROKEN as error:
        raise StoreError(f"{path} is not a pyperf file ({error}); {REMEDY}") from error


def _drop_private(document: dict[str, Any]) -> None:
    places = [document.get("metadata", {})]
    for benchmark in document.get("benchmarks", ()):
        places.append(benchmark.get("metadata", {}))
        places.extend(run.get("metadata", {}) for run in benchmark.get("runs", ()))
    for metadata in places:
        for key in PRIVATE_METADATA:
            metadata.pop(key, None)
