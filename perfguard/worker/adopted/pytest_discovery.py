"""The tests of a file that use the `benchmark` fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfguard.records.facts import fact
from perfguard.worker.adopted.found import Found, first_line
from perfguard.worker.adopted.labels import benchmark_name, dotted, labels_of
from perfguard.worker.adopted.pytest_cases import ID_PARAMETER, pytest_id
from perfguard.worker.adopted.targets import PYTEST, AdoptedTarget

if TYPE_CHECKING:
    import pytest

_FIXTURE = "benchmark"
_WEAVING = "benchmark_weave"


def find_tests(path: str, found: Found) -> None:
    """Add the tests of a file.

    Raises:
        RuntimeError: pytest is not installed beside the suite, or cannot collect the file.
    """
    try:
        from perfguard.worker.adopted.pytest_plugin import BenchmarkPlugin, run_pytest
    except ImportError as error:
        raise RuntimeError(f"pytest cannot be imported in the environment under test: {error}") from error
    collected: list[pytest.Item] = []

    def keep(items: list[pytest.Item]) -> list[pytest.Item]:
        collected.extend(items)
        return []

    plugin = BenchmarkPlugin(lambda _: None, choose=keep)
    run_pytest(path, plugin, "--collect-only")
    if plugin.problems:
        raise RuntimeError(f"pytest cannot collect the file: {plugin.problems[0]}")
    by_function: dict[str, list[pytest.Item]] = {}
    for item in collected:
        if _FIXTURE in getattr(item, "fixturenames", ()):
            by_function.setdefault(_name(item), []).append(item)
    skipped = sum(_add(path, name, items, found) for name, items in by_function.items())
    if not by_function:
        found.notes.append(fact("adopted.no_test", place=path, tool=PYTEST, fixture=_FIXTURE))
    found.count(fact("adopted.skipped_by_marks", tool=PYTEST, number=skipped))
    woven = sum(_WEAVING in getattr(item, "fixturenames", ()) for item in collected)
    found.count(fact("adopted.weaving_unsupported", tool=PYTEST, number=woven))


def _add(path: str, name: str, items: list[pytest.Item], found: Found) -> int:
    """Add one function; gives how many of its tests are skipped."""
    labels = labels_of(pytest_id(item) or "" for item in items)
    is_parametrized = pytest_id(items[0]) is not None
    kept = [label for item, label in zip(items, labels, strict=True) if not _is_skipped(item)]
    if kept:
        found.add(
            AdoptedTarget(tool=PYTEST, place=path, name=name),
            benchmark_name((PYTEST, *dotted(path).split("."), *name.split("."))),
            (ID_PARAMETER,) if is_parametrized else (),
            [(label,) if is_parametrized else () for label in kept],
            doc=first_line(getattr(getattr(items[0], "function", None), "__doc__", None)),
        )
    return len(items) - len(kept)


def _name(item: pytest.Item) -> str:
    """Class and function, with dots between."""
    parts = item.nodeid.partition("[")[0].split("::")[1:]
    return ".".join(parts)


def _is_skipped(item: pytest.Item) -> bool:
    """Whether marks skip a test; where this pytest does not tell, the test says so itself when it is measured."""
    try:
        from _pytest.skipping import evaluate_skip_marks
    except ImportError:
        return False
    return evaluate_skip_marks(item) is not None
