"""What all handlers of a server share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from perfguard.history.database import Database
from perfguard.service.answers import ChangeDetails, change_details
from perfguard.service.remembered import Answers, ChangesOfProjects, Newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a server answers."""

    project: str  # Shown where none is asked for
    needs_token: bool = False  # Whether reading needs a token, too
    host_names: tuple[str, ...] = ()  # Names in the `Host` header that are answered; empty for all


class Service:
    """A server's database and what it remembers."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database, self.settings = database, settings
        self.newest = Newest(database)
        self.changes = ChangesOfProjects(database, self.newest)
        self.answers = Answers()

    def project(self, given: str | None) -> str:
        """The project that is asked for."""
        return given or self.settings.project

    def remembered(self, key: tuple[Any, ...], project: str, make: Callable[[], Any]) -> bytes:
        """JSON of an answer, computed anew once something was recorded."""
        return self.answers.get((*key, project, self.newest.of(project)), lambda: msgspec.json.encode(make()))

    def details(self, project: str, case: str, machine: str, run: str) -> ChangeDetails:
        """A change with what belongs to it."""
        every = self.changes.of(project).changes
        return change_details(self.database, project, (case, machine, run), every)
