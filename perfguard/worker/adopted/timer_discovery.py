"""The cases of a file with Timer statements."""

from __future__ import annotations

from perfguard.records.facts import fact
from perfguard.worker.adopted.found import Found
from perfguard.worker.adopted.targets import TIMER, AdoptedTarget
from perfguard.worker.adopted.timer_recording import NamedStatement, statements_of


def find_timers(path: str, found: Found) -> None:
    """Add the statements of a file.

    Raises:
        RuntimeError: torch is not installed beside the suite.
        Exception: Whatever the file raises.
    """
    try:
        import torch.utils.benchmark  # noqa: F401
    except ImportError as error:
        raise RuntimeError(f"torch cannot be imported in the environment under test: {error}") from error
    named = statements_of(path)
    timed = [each for each in named if each.statement.is_python]
    for each in timed:
        _add(path, each, found)
    if not named:
        found.notes.append(fact("adopted.no_timer", place=path, tool=TIMER))
    found.count(fact("adopted.cpp_statements", tool=TIMER, number=len(named) - len(timed)))
    for threads in sorted({each.statement.num_threads for each in timed}):
        number = sum(each.statement.num_threads == threads for each in timed)
        found.count(fact("adopted.own_threads", tool=TIMER, threads=threads, number=number))


def _add(path: str, named: NamedStatement, found: Found) -> None:
    target = AdoptedTarget(tool=TIMER, place=path, name=named.name)
    names = [name for name, _ in named.parameters]
    values = tuple(value for _, value in named.parameters)
    doc = " ".join(named.statement.stmt.split())[:80]
    found.add(target, named.name, names, [values], doc=doc)
