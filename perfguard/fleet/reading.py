"""The fleet, as the TUI shows it."""

from __future__ import annotations

from perfguard.config import LoadedConfig
from perfguard.fleet.hosts import read_hosts
from perfguard.fleet.overview import read_status
from perfguard.history.database import is_missing, opened
from perfguard.records.fleet import FleetNow


def read_fleet(loaded: LoadedConfig) -> FleetNow:
    """Hosts and submissions in a project's database; nothing where there is none.

    Raises:
        ConfigError: The setting names no database.
        DatabaseError: It cannot be reached.
    """
    if is_missing(loaded.config.database, loaded.project):
        return FleetNow()
    with opened(loaded.config.database, loaded.project) as database:
        return FleetNow(hosts=read_hosts(database), status=read_status(database))
