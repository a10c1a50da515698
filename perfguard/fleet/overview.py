"""What the database says of submissions and their shards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perfguard.codec import from_builtins
from perfguard.errors import NothingSelectedError
from perfguard.history.database import Database
from perfguard.records.facts import Fact
from perfguard.records.fleet import Engine, FleetStatus, GateWork, Shard, ShardState, Submission

if TYPE_CHECKING:
    from sqlalchemy import Connection


def require_submission(database: Database, submission_id: int) -> None:
    """Raises NothingSelectedError: there is no such submission."""
    from sqlalchemy import select

    from perfguard.history.tables import fleet_submissions

    wanted = select(fleet_submissions.c.id).where(fleet_submissions.c.id == submission_id)
    with database.reading() as connection:
        if connection.execute(wanted).scalar() is None:
            raise NothingSelectedError(f"there is no submission {submission_id}; `perfguard fleet status` lists them")


def read_status(
    database: Database, *, project: str | None = None, submission_id: int | None = None, last: int = 20
) -> FleetStatus:
    """The newest submissions and their shards, of all projects or of one; or a single submission."""
    from sqlalchemy import select

    from perfguard.history.tables import fleet_submissions as submissions

    wanted = select(submissions).order_by(submissions.c.id.desc()).limit(last)
    if submission_id is not None:
        wanted = wanted.where(submissions.c.id == submission_id)
    elif project is not None:
        wanted = wanted.where(submissions.c.project == project)
    with database.reading() as connection:
        found = tuple(_submission(dict(row)) for row in connection.execute(wanted).mappings())
        shards = _shards_of(connection, [each.id for each in found])
    return FleetStatus(submissions=found, shards=shards)


def _submission(row: Mapping[str, Any]) -> Submission:
    return Submission(
        id=row["id"],
        work=from_builtins(json.loads(row["work"]), GateWork, source=f"submission {row['id']}"),
        engine=Engine(row["engine"]),
        author=row["author"],
        submitted_at=row["submitted_at"],
    )


def _shards_of(connection: Connection, submission_ids: Sequence[int]) -> tuple[Shard, ...]:
    from sqlalchemy import select

    from perfguard.history.tables import fleet_shards as shards
    from perfguard.history.tables import runs

    question = (
        select(shards, runs.c.run_id, runs.c.outcome)
        .outerjoin(runs, runs.c.id == shards.c.run_row)
        .where(shards.c.submission_id.in_(submission_ids))
        .order_by(shards.c.id)
    )
    return tuple(_shard(dict(row)) for row in connection.execute(question).mappings())


def _shard(row: Mapping[str, Any]) -> Shard:
    return Shard(
        id=row["id"],
        submission_id=row["submission_id"],
        machine_class=row["machine_class"],
        patterns=tuple(json.loads(row["patterns"])),
        state=ShardState(row["state"]),
        attempt=row["attempt"],
        host=row["host"],
        lease_until=row["lease_until"],
        changed_at=row["changed_at"],
        exit_code=row["exit_code"],
        run_id=row["run_id"],
        outcome=row["outcome"],
        problem=_fact(row["problem"], row["id"]),
    )


def _fact(text: str | None, shard_id: int) -> Fact | None:
    return from_builtins(json.loads(text), Fact, source=f"shard {shard_id}") if text else None


class Waiting(Struct, frozen=True):
    """A shard that nobody measures."""

    id: int
    machine_class: str
    attempts: int  # That came to nothing
    submission_id: int


def waiting(database: Database, engine: Engine, *, shard_id: int | None = None) -> tuple[Waiting, ...]:
    """All shards of an engine that wait, or one if it does."""
    from sqlalchemy import select

    from perfguard.history.tables import fleet_shards as shards
    from perfguard.history.tables import fleet_submissions as submissions

    question = (
        select(shards.c.id, shards.c.machine_class, shards.c.attempt, shards.c.submission_id)
        .join(submissions, submissions.c.id == shards.c.submission_id)
        .where(shards.c.state == ShardState.WAITING.value, submissions.c.engine == engine.value)
        .order_by(shards.c.id)
    )
    if shard_id is not None:
        question = question.where(shards.c.id == shard_id)
    with database.reading() as connection:
        return tuple(Waiting(*row) for row in connection.execute(question))


def read_open(database: Database, engine: Engine) -> tuple[Submission, ...]:
    """Submissions of an engine of which something is still to come."""
    from sqlalchemy import select

    from perfguard.history.tables import fleet_shards as shards
    from perfguard.history.tables import fleet_submissions as submissions

    is_open = shards.c.state.in_([ShardState.WAITING.value, ShardState.RUNNING.value])
    wanted = select(submissions).where(
        submissions.c.engine == engine.value, submissions.c.id.in_(select(shards.c.submission_id).where(is_open))
    )
    with database.reading() as connection:
        return tuple(_submission(dict(row)) for row in connection.execute(wanted).mappings())


def measured_of(database: Database, shard_ids: Sequence[int]) -> set[int]:
    """Which of some shards are being measured."""
    from sqlalchemy import select

    from perfguard.history.tables import fleet_shards as shards

    wanted = select(shards.c.id).where(shards.c.id.in_(shard_ids), shards.c.state == ShardState.RUNNING.value)
    with database.reading() as connection:
        return set(connection.execute(wanted).scalars())
