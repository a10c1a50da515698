"""What a server computed and may give again: answers until something new is recorded, and the changes of all series."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct, field

from perfguard.errors import PerfguardError
from perfguard.history.database import Database
from perfguard.history.queries import KnownRuns, read_known_runs, read_series
from perfguard.service.answers import ListedChange, SeriesName, changes_in, newest_row, series_names

T = TypeVar("T")
_FRESH_S = 1.0  # How long nothing new is looked for
_FIRST_WAIT_S = 1.0
_YIELDS_S = 0.05  # How long at most an answer that is being made goes before the changes of a series


class Answers(Generic[T]):
    """The latest answers, each as long as its key stays the same."""

    def __init__(self, most: int) -> None:
        self._found: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()
        self._most = most
        self._making = 0

    @property
    def is_making(self) -> bool:
        """Whether one is being made."""
        return self._making > 0

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The answer of a key, made where it is not known."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
            self._making += 1
        try:
            made = make()
        finally:
            with self._lock:
                self._making -= 1
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


class _Project(Struct):
    version: tuple[int, int] = (-1, -1)
    found: dict[SeriesName, tuple[tuple[int, int], tuple[ListedChange, ...]]] = field(default_factory=dict)
    """The changes of each series, with the newest run and the newest word on a change that they were found for."""
    total: int = 0
    is_busy: bool = False


class KnownChanges(Struct, frozen=True, kw_only=True):
    """Changes of all series of a project."""

    changes: tuple[ListedChange, ...]  # The newest first
    computed: int  # Series that were looked at
    series: int  # All of them; more than `computed` while a thread goes on


class ChangesOfProjects:
    """Changes of all series, kept up to date by a thread: looking at a thousand series takes seconds."""

    def __init__(self, database: Database, newest: Newest, is_answering: Callable[[], bool] = lambda: False) -> None:
        self._database, self._newest = database, newest
        self._is_answering = is_answering
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
        while known.is_busy and not known.found and time.monotonic() < deadline:
            time.sleep(0.02)
        with self._lock:
            changes = [change for _, found in known.found.values() for change in found]
            computed, total = len(known.found), max(known.total, len(known.found))
        changes.sort(key=lambda change: -change.at)
        return KnownChanges(changes=tuple(changes), computed=computed, series=total)

    def of_series(
        self, project: str, name: SeriesName, row: int, find: Callable[[], tuple[ListedChange, ...]]
    ) -> tuple[ListedChange, ...]:
        """Changes of one series whose newest run has this row: found now unless they are known."""
        version = row, self._newest.of(project)[1]
        with self._lock:
            known = self._projects.setdefault(project, _Project())
            if name in known.found and known.found[name][0] == version:
                return known.found[name][1]
        changes = find()
        with self._lock:
            known.found[name] = version, changes
        return changes

    def _compute(self, project: str, known: _Project, version: tuple[int, int]) -> None:
        try:
            names = series_names(self._database, project)
            rows, known_runs = _newest_of_series(self._database, project), read_known_runs(self._database, project)
            there = set(names)
            with self._lock:
                known.total = len(names)
                known.found = {name: found for name, found in known.found.items() if name in there}
            for name in names:
                if self._is_closed.is_set():
                    return
                row = rows.get((name.case_id, name.machine_id), 0)
                self.of_series(project, name, row, partial(self._find, project, name, known_runs))
            known.version = version
        except PerfguardError:  # the next request tries again, and says what fails
            pass
        finally:
            known.is_busy = False

    def _find(self, project: str, name: SeriesName, runs: KnownRuns) -> tuple[ListedChange, ...]:
        self._yield()
        recorded = read_series(self._database, project, name.case_id, name.machine_id, runs)
        return changes_in(self._database, project, name, recorded) if recorded else ()

    def _yield(self) -> None:
        """Let an answer be made first: Python computes on one core at a time."""
        deadline = time.monotonic() + _YIELDS_S
        while self._is_answering() and time.monotonic() < deadline:
            time.sleep(_YIELDS_S / 10)


def _newest_of_series(database: Database, project: str) -> dict[tuple[str, str], int]:
    """Newest run's row of each series: one look into an index each."""
    from sqlalchemy import func, select

    from perfguard.history.tables import series, values

    newest = select(func.max(values.c.run_row)).where(values.c.series_id == series.c.id).scalar_subquery()
    question = select(series.c.case_id, series.c.machine_id, newest).where(series.c.project == project)
    with database.reading() as connection:
        return {(case_id, machine_id): row or 0 for case_id, machine_id, row in connection.execute(question)}
