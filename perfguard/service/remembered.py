"""What a server computed and may give again: answers until something new is recorded, and the changes of all series."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from perfguard.errors import PerfguardError
from perfguard.history.database import Database
from perfguard.history.queries import read_known_runs
from perfguard.service.answers import ListedChange, SeriesName, changes_of_series, newest_row, series_names

T = TypeVar("T")
_FRESH_S = 1.0  # How long nothing new is looked for
_FIRST_WAIT_S = 1.0


class Answers(Generic[T]):
    """The latest answers, each as long as its key stays the same."""

    def __init__(self, most: int) -> None:
        self._found: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()
        self._most = most

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The answer of a key, made where it is not known."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        made = make()
        with self._lock:
            self._found[key] = made
            while len(self._found) > self._most:
                self._found.popitem(last=False)
        return made


class Newest:
    """What was recorded last of each project, asked once a second at most."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._found: dict[str, tuple[float, tuple[int, int]]] = {}

    def of(self, project: str) -> tuple[int, int]:
        """Numbers that change when something new is recorded."""
        asked, found = self._found.get(project, (-_FRESH_S, (0, 0)))
        if time.monotonic() - asked >= _FRESH_S:
            found = newest_row(self._database, project)
            self._found[project] = time.monotonic(), found
        return found


@dataclass
class _Project:
    version: tuple[int, int] = (-1, -1)
    changes: dict[SeriesName, tuple[ListedChange, ...]] = field(default_factory=dict)
    versions: dict[SeriesName, tuple[int, int]] = field(default_factory=dict)
    total: int = 0
    is_busy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownChanges:
    """Changes of all series of a project."""

    changes: tuple[ListedChange, ...]  # The newest first
    computed: int  # Series that were looked at
    series: int  # All of them; more than `computed` while a thread goes on


class ChangesOfProjects:
    """Changes of all series, kept up to date by a thread: looking at a thousand series takes seconds."""

    def __init__(self, database: Database, newest: Newest) -> None:
        self._database, self._newest = database, newest
        self._projects: dict[str, _Project] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._is_closed = threading.Event()

    def close(self) -> None:
        """End what is being computed."""
        self._is_closed.set()
        for thread in self._threads:
            thread.join()

    def of(self, project: str) -> KnownChanges:
        """What is known now; after a second at most where nothing is."""
        version = self._newest.of(project)
        with self._lock:
            known = self._projects.setdefault(project, _Project())
            if known.version != version and not known.is_busy and not self._is_closed.is_set():
                known.is_busy = True
                thread = threading.Thread(target=self._compute, args=(project, known, version), daemon=True)
                self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
                thread.start()
        deadline = time.monotonic() + _FIRST_WAIT_S
        while known.is_busy and not known.changes and time.monotonic() < deadline:
            time.sleep(0.02)
        with self._lock:
            changes = [change for found in known.changes.values() for change in found]
            computed, total = len(known.changes), max(known.total, len(known.changes))
        changes.sort(key=lambda change: -change.at)
        return KnownChanges(changes=tuple(changes), computed=computed, series=total)

    def _compute(self, project: str, known: _Project, version: tuple[int, int]) -> None:
        try:
            names = series_names(self._database, project)
            rows, known_runs = _newest_of_series(self._database, project), read_known_runs(self._database, project)
            there = set(names)
            with self._lock:
                known.total = len(names)
                known.changes = {name: found for name, found in known.changes.items() if name in there}
            for name in names:
                if self._is_closed.is_set():
                    return
                of_series = rows.get((name.case_id, name.machine_id), 0), version[1]
                if known.versions.get(name) != of_series:
                    found = changes_of_series(self._database, project, name, known_runs)
                    with self._lock:
                        known.changes[name], known.versions[name] = found, of_series
            known.version = version
        except PerfguardError:  # the next request tries again, and says what fails
            pass
        finally:
            known.is_busy = False


def _newest_of_series(database: Database, project: str) -> dict[tuple[str, str], int]:
    """Newest run's row of each series: one look into an index each."""
    from sqlalchemy import func, select

    from perfguard.history.tables import series, values

    newest = select(func.max(values.c.run_row)).where(values.c.series_id == series.c.id).scalar_subquery()
    question = select(series.c.case_id, series.c.machine_id, newest).where(series.c.project == project)
    with database.reading() as connection:
        return {(case_id, machine_id): row or 0 for case_id, machine_id, row in connection.execute(question)}
