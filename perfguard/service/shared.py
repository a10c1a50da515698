"""What all handlers of a server share."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

from litestar import Request, Response
from msgspec import Struct
from msgspec.structs import replace

from perfguard.errors import NothingSelectedError
from perfguard.history.database import Database
from perfguard.history.queries import KnownRuns, RecordedSeries, read_known_runs, read_series
from perfguard.service.answers import (
    ChangeDetails,
    ListedChange,
    Series,
    SeriesName,
    change_details,
    changes_in,
    series_answer,
    series_names,
)
from perfguard.service.decimation import MOST_POINTS
from perfguard.service.remembered import Answers, ChangesOfProjects, KnownChanges, Newest

SEES_ALL: ContextVar[bool] = ContextVar("sees_all", default=True)
"""Whether the request may know the names of other projects: not with a token for one of them."""
_MOST_COMPRESSED = 4_096  # Answers of 10 to 50 kB
_MOST_SERIES = 16  # Of a megabyte each
_MOST_PROJECTS = 4  # Whose runs, some megabytes each, and names are kept
_LEVEL = 3


class Settings(Struct, frozen=True, kw_only=True):
    """How a server answers."""

    project: str  # Shown where none is asked for
    needs_token: bool = False  # Whether reading needs a token, too
    host_names: tuple[str, ...] = ()  # Names in the `Host` header that are answered; empty for all
    per_minute: int = 1_200  # Requests of one address that are answered
    has_benchmark: Callable[[str], bool] = lambda _: True
    """Whether the project still has the benchmark of a case; changes of others are of no interest any more."""


class Service:
    """A server's database and what it remembers."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database, self.settings = database, settings
        self.newest = Newest(database)
        self._compressed: Answers[bytes] = Answers(_MOST_COMPRESSED)
        self._series: Answers[Series] = Answers(_MOST_SERIES)
        self._runs: Answers[KnownRuns] = Answers(_MOST_PROJECTS)
        self._names: Answers[tuple[SeriesName, ...]] = Answers(_MOST_PROJECTS)
        self.changes = ChangesOfProjects(database, self.newest, lambda: self._compressed.is_making)

    def project(self, given: str | None) -> str:
        """The project that is asked for."""
        return given or self.settings.project

    def changes_of(self, project: str) -> KnownChanges:
        """Changes of a project's cases, but of those that it no longer has."""
        found = self.changes.of(project)
        if project != self.settings.project:
            return found
        kept = tuple(change for change in found.changes if self.settings.has_benchmark(change.case_id))
        return replace(found, changes=kept)

    def compressed(self, key: tuple[Any, ...], project: str, make: Callable[[], bytes]) -> bytes:
        """What was made for a key since something was last recorded, by gzip."""
        known = (*key, project, self.newest.of(project))
        return self._compressed.get(known, lambda: gzip.compress(make(), _LEVEL))

    def series(self, project: str, case: str, machine: str, most: int = MOST_POINTS) -> Series:
        """A series; its page and its points are asked for one after the other, and computed once.

        Raises:
            NothingSelectedError: There is no such series.
        """

        def make() -> Series:
            name, recorded, changes = self._recorded(project, case, machine)
            return series_answer(self.database, project, name, recorded, changes, most=most)

        return self._series.get((project, case, machine, most, self.newest.of(project)), make)

    def names(self, project: str) -> tuple[SeriesName, ...]:
        """All series of a project, by case and machine."""
        key = project, self.newest.of(project)
        return self._names.get(key, lambda: series_names(self.database, project))

    def details(self, project: str, case: str, machine: str, run: str) -> ChangeDetails:
        """A change with what belongs to it.

        Raises:
            NothingSelectedError: There is no such change.
        """
        _, recorded, changes = self._recorded(project, case, machine)
        change = next((change for change in changes if change.run_id == run), None)
        if change is None:
            raise NothingSelectedError(f"{case} on {machine or 'an unknown machine'} has no change at run {run!r}")
        return change_details(self.database, project, recorded, change, self.changes_of(project).changes)

    def _recorded(
        self, project: str, case: str, machine: str
    ) -> tuple[SeriesName, RecordedSeries, tuple[ListedChange, ...]]:
        """A series with its changes. Raises NothingSelectedError: there is none."""
        key = project, self.newest.of(project)
        known = self._runs.get(key, lambda: read_known_runs(self.database, project))
        recorded = read_series(self.database, project, case, machine, known)
        name = next((name for name in self.names(project) if (name.case_id, name.machine_id) == (case, machine)), None)
        if name is None or not recorded:
            where = f" on machine {machine!r}" if machine else ""
            raise NothingSelectedError(f"project {project!r} has no case {case!r}{where}")
        found = partial(changes_in, self.database, project, name, recorded)
        return name, recorded, self.changes.of_series(project, name, recorded.newest_row, found)


def compressed_response(request: Request[Any, Any, Any], content: bytes, media_type: str) -> Response[bytes]:
    """What was compressed by gzip, for whoever takes it so."""
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(gzip.decompress(content), media_type=media_type)
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(content, media_type=media_type, headers=headers)
