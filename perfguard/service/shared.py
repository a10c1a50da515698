"""What all handlers of a server share."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from litestar import Request, Response

from perfguard.history.database import Database
from perfguard.history.queries import KnownRuns, read_known_runs
from perfguard.service.answers import ChangeDetails, Series, change_details, series_answer
from perfguard.service.decimation import MOST_POINTS
from perfguard.service.remembered import Answers, ChangesOfProjects, KnownChanges, Newest

SEES_ALL: ContextVar[bool] = ContextVar("sees_all", default=True)
"""Whether the request may know the names of other projects: not with a token for one of them."""
_MOST_COMPRESSED = 4_096  # Answers of 10 to 50 kB
_MOST_SERIES = 16  # Of a megabyte each
_MOST_RUNS = 4  # Projects, of some megabytes each
_LEVEL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
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
        self.changes = ChangesOfProjects(database, self.newest)
        self._compressed: Answers[bytes] = Answers(_MOST_COMPRESSED)
        self._series: Answers[Series] = Answers(_MOST_SERIES)
        self._runs: Answers[KnownRuns] = Answers(_MOST_RUNS)

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
        version = self.newest.of(project)

        def make() -> Series:
            known = self._runs.get((project, version), lambda: read_known_runs(self.database, project))
            return series_answer(self.database, project, case, machine, most=most, known=known)

        return self._series.get((project, case, machine, most, version), make)

    def details(self, project: str, case: str, machine: str, run: str) -> ChangeDetails:
        """A change with what belongs to it."""
        every = self.changes_of(project).changes
        return change_details(self.database, project, (case, machine, run), every)


def compressed_response(request: Request[Any, Any, Any], content: bytes, media_type: str) -> Response[bytes]:
    """What was compressed by gzip, for whoever takes it so."""
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(gzip.decompress(content), media_type=media_type)
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(content, media_type=media_type, headers=headers)
