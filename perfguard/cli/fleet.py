"""What all commands of the fleet begin with: its database, and looking after its engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfguard.cli.options import load
from perfguard.config import LoadedConfig
from perfguard.errors import UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from perfguard.history.database import Database


def opened_fleet(*, upgrades: bool | None = None) -> tuple[LoadedConfig, AbstractContextManager[Database]]:
    """The configuration, and the database of the history, to be entered. Raises UsageError: there is none."""
    from perfguard.history.database import is_off, opened

    loaded = load({}, keys=())
    if is_off(loaded.config.database):
        raise UsageError("a fleet needs a database, which is off; set `database` to a PostgreSQL URL")
    return loaded, opened(loaded.config.database, loaded.project, upgrades=upgrades)


def tend_engines(database: Database, engine: str | None = None) -> None:
    """Look after the engines that are used; or after one."""
    from perfguard.fleet import queue, slurm
    from perfguard.fleet.queue import has_queue

    if engine == "queue" or (engine is None and has_queue(database)):
        queue.tend(database)
    if engine in (None, "slurm"):
        slurm.tend(database)
