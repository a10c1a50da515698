"""The register of hosts: what they are, which shards they take, whether they are fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfguard import __version__
from perfguard.codec import from_builtins
from perfguard.errors import NothingSelectedError
from perfguard.fleet.canary import drifted
from perfguard.fleet.shards import now_in
from perfguard.history.database import Database
from perfguard.history.run_records import stored_json
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.fleet import Fitness, Host, ShardState
from perfguard.records.machine.fingerprint import Fingerprint

if TYPE_CHECKING:
    from sqlalchemy import Connection

_MOST_CANARIES = 500  # Of a host, the newest ones


def register(database: Database, name: str, fingerprint: Fingerprint, classes: Sequence[str]) -> Host:
    """Add a host, or say anew what it is; its fitness stays."""
    from perfguard.history.tables import fingerprints, fleet_hosts

    now = now_in(database)
    said = {
        "machine_id": fingerprint.machine_id,
        "classes": json.dumps(list(classes)),
        "version": __version__,
        "seen_at": now,
    }
    row = {"project": "", "machine_id": fingerprint.machine_id, "stack_id": "", "content": stored_json(fingerprint)}
    with database.writing() as connection:
        new = database.insertion(fleet_hosts, fleet_hosts.c.name)
        connection.execute(new.values(name=name, fitness=Fitness.FIT.value, reason="", fit_since=now, **said))
        connection.execute(fleet_hosts.update().where(fleet_hosts.c.name == name).values(**said))
        connection.execute(database.insertion(fingerprints, *fingerprints.primary_key), row)
    return next(host for host in read_hosts(database) if host.name == name)


def read_hosts(database: Database) -> tuple[Host, ...]:
    """All hosts by name, each with the shard that it measures."""
    from sqlalchemy import and_, select

    from perfguard.history.tables import fleet_hosts as hosts
    from perfguard.history.tables import fleet_shards as shards

    busy = and_(shards.c.host == hosts.c.name, shards.c.state == ShardState.RUNNING.value)
    question = select(hosts, shards.c.id.label("shard_id")).outerjoin(shards, busy).order_by(hosts.c.name, shards.c.id)
    with database.reading() as connection:
        rows = {row["name"]: row for row in connection.execute(question).mappings()}
    return tuple(
        Host(
            name=row["name"],
            machine_id=row["machine_id"],
            classes=tuple(json.loads(row["classes"])),
            version=row["version"],
            seen_at=row["seen_at"],
            fitness=Fitness(row["fitness"]),
            reason=from_builtins(json.loads(row["reason"]), Fact, source=row["name"]) if row["reason"] else None,
            shard_id=row["shard_id"],
        )
        for row in rows.values()
    )


def fitness_of(database: Database, name: str) -> Fitness:
    """Whether a host gets shards, and that it was seen."""
    from sqlalchemy import select

    from perfguard.history.tables import fleet_hosts as hosts

    with database.writing() as connection:
        connection.execute(hosts.update().where(hosts.c.name == name).values(seen_at=now_in(database)))
        found = connection.execute(select(hosts.c.fitness).where(hosts.c.name == name)).scalar()
    return Fitness(found) if found else Fitness.DRAINED


def note_waiting(database: Database, name: str, why: Fact | None) -> None:
    """Say of a fit host what it waits for before it measures, None once it does; also that it was seen."""
    from perfguard.history.tables import fleet_hosts as hosts

    is_fit = (hosts.c.name == name, hosts.c.fitness == Fitness.FIT.value)
    said = {"seen_at": now_in(database), "reason": stored_json(why) if why else ""}
    with database.writing() as connection:
        connection.execute(hosts.update().where(*is_fit).values(**said))


def state_fitness(database: Database, name: str, fitness: Fitness, *, reason: Fact | None = None) -> None:
    """Say whether a host gets shards; one that is fit again begins a new series of canaries.

    Raises:
        NothingSelectedError: There is no such host.
    """
    from perfguard.history.tables import fleet_hosts as hosts

    change = (
        hosts.update()
        .where(hosts.c.name == name)
        .values(fitness=fitness.value, reason=stored_json(reason) if reason else "")
    )
    if fitness is Fitness.FIT:
        change = change.values(fit_since=now_in(database))
    with database.writing() as connection:
        if not connection.execute(change).rowcount:
            raise NothingSelectedError(f"there is no host {name!r}; `perfguard fleet hosts` lists them")


def remove_host(database: Database, name: str) -> None:
    """Forget a host and its canaries; the runs that it measured stay.

    Raises:
        NothingSelectedError: There is no such host.
    """
    from perfguard.history.tables import fleet_canaries, fleet_hosts

    with database.writing() as connection:
        connection.execute(fleet_canaries.delete().where(fleet_canaries.c.host == name))
        if not connection.execute(fleet_hosts.delete().where(fleet_hosts.c.name == name)).rowcount:
            raise NothingSelectedError(f"there is no host {name!r}; `perfguard fleet hosts` lists them")


def heed_canary(database: Database, name: str, median_s: float) -> Fact | None:
    """Keep a host's canary; where it drifted the host is unfit from now on, for the fact that is returned."""
    drift_log_ratio = _add_canary(database, name, median_s)
    if drift_log_ratio is None:
        return None
    found = fact("fleet.canary_drifted", severity=Severity.NOTABLE, host=name, drift_log_ratio=drift_log_ratio)
    state_fitness(database, name, Fitness.UNFIT, reason=found)
    return found


def _add_canary(database: Database, name: str, median_s: float) -> float | None:
    from perfguard.history.tables import fleet_canaries as canaries

    with database.writing() as connection:
        connection.execute(canaries.insert().values(host=name, measured_at=now_in(database), median_s=median_s))
        return drifted(_canaries_s(connection, name))


def _canaries_s(connection: Connection, name: str) -> tuple[float, ...]:
    """Canaries since the host was last called fit, the oldest first."""
    from sqlalchemy import select

    from perfguard.history.tables import fleet_canaries as canaries
    from perfguard.history.tables import fleet_hosts as hosts

    question = (
        select(canaries.c.median_s)
        .join(hosts, hosts.c.name == canaries.c.host)
        .where(canaries.c.host == name, canaries.c.measured_at >= hosts.c.fit_since)
        .order_by(canaries.c.id.desc())
        .limit(_MOST_CANARIES)
    )
    return tuple(reversed(connection.execute(question).scalars().all()))
