"""The shard protocol, in the database: an attempt is claimed for a time, and only the newest one may deliver.

An attempt is a shard, a number and a random token. Whoever claims a shard gets a new token, which makes the one
before worthless: a host that was stopped and goes on later, or a copy of a batch job, delivers in vain. Nothing
depends on what an engine calls its jobs. All times are those of the database's clock.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfguard.codec import from_builtins
from perfguard.fleet.overview import require_submission
from perfguard.history.database import Database
from perfguard.history.recording import add_run_in, row_of
from perfguard.history.run_records import stored_json
from perfguard.records.facts import Severity, fact
from perfguard.records.fleet import Acceptance, Attempt, Delivery, Engine, GateWork, ShardState

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Update

MOST_ATTEMPTS = 3
_PIECE = 5_000  # Rows of an insertion


def now_in(database: Database) -> ColumnElement[float]:
    """Seconds since the epoch by the database's clock: hosts' own clocks differ."""
    from sqlalchemy import Double, cast, extract, func

    if database.is_sqlite:
        return (func.julianday("now") - 2_440_587.5) * 86_400.0
    return cast(extract("epoch", func.clock_timestamp()), Double)


def default_lease_s(budget_s: float) -> float:
    """How long an attempt may take: making environments, measuring twice, profiling; then the host counts as lost."""
    return 600.0 + 3.0 * budget_s


def submit(
    database: Database,
    work: GateWork,
    shards: Sequence[tuple[str, Sequence[str]]],
    *,
    engine: Engine,
    author: str,
    lease_s: float | None = None,
) -> int:
    """Add work as shards, each a machine class and its cases; the submission's id. All of them are added, or none."""
    with database.writing() as connection:
        return submit_in(database, connection, work, shards, engine=engine, author=author, lease_s=lease_s)


def submit_in(
    database: Database,
    connection: Connection,
    work: GateWork,
    shards: Sequence[tuple[str, Sequence[str]]],
    *,
    engine: Engine,
    author: str,
    lease_s: float | None = None,
) -> int:
    """The same within a transaction."""
    from perfguard.history.tables import fleet_shards, fleet_submissions

    row = {"project": work.project, "engine": engine.value, "work": stored_json(work), "author": author}
    inserted = connection.execute(
        fleet_submissions.insert()
        .values(**row, submitted_at=now_in(database))
        .returning(fleet_submissions.c.id, fleet_submissions.c.submitted_at)
    )
    submission_id, submitted_at = inserted.one()
    rows = [
        {
            "submission_id": submission_id,
            "machine_class": machine_class,
            "patterns": json.dumps(list(patterns)),
            "lease_s": default_lease_s(work.budget_s) if lease_s is None else lease_s,
            "state": ShardState.WAITING.value,
            "attempt": 0,
            "changed_at": submitted_at,
        }
        for machine_class, patterns in shards
    ]
    for start in range(0, len(rows), _PIECE):
        connection.execute(fleet_shards.insert(), rows[start : start + _PIECE])
    return int(submission_id)


def claim(database: Database, shard_id: int, host: str | None, *, first_lease_s: float | None = None) -> Attempt | None:
    """The right to measure a shard; None where it does not wait.

    With `first_lease_s` it lasts so long and is to be renewed.
    """
    from sqlalchemy import select

    from perfguard.history.tables import fleet_shards as shards
    from perfguard.history.tables import fleet_submissions as submissions

    token, now = secrets.token_hex(16), now_in(database)
    claimed = (
        _update()
        .where(shards.c.id == shard_id, shards.c.state == ShardState.WAITING.value)
        .values(
            state=ShardState.RUNNING.value,
            attempt=shards.c.attempt + 1,
            token=token,
            lease_until=now + (shards.c.lease_s if first_lease_s is None else first_lease_s),
            host=host,
            changed_at=now,
            problem=None,
        )
        .returning(
            shards.c.attempt, shards.c.lease_s, shards.c.machine_class, shards.c.patterns, shards.c.submission_id
        )
    )
    with database.writing() as connection:
        row = connection.execute(claimed).one_or_none()
        if row is None:
            return None
        work = connection.execute(select(submissions.c.work).where(submissions.c.id == row.submission_id)).scalar_one()
    return Attempt(
        shard_id=shard_id,
        number=row.attempt,
        token=token,
        lease_s=row.lease_s,
        machine_class=row.machine_class,
        work=from_builtins(json.loads(work), GateWork, source=f"submission {row.submission_id}"),
        patterns=tuple(json.loads(row.patterns)),
    )


def deliver(database: Database, delivery: Delivery) -> Acceptance:
    """Take what an attempt gave, if it is the newest one; the run goes into the history in the same transaction."""
    from sqlalchemy import select

    from perfguard.history.tables import fleet_shards as shards

    is_current = (
        shards.c.id == delivery.shard_id,
        shards.c.attempt == delivery.attempt,
        shards.c.token == delivery.token,
        shards.c.state == ShardState.RUNNING.value,
    )
    change = _update().where(*is_current)
    with database.writing() as connection:
        changed = connection.execute(_ended(database, change, delivery)).rowcount
        if not changed:
            found = connection.execute(
                select(shards.c.state, shards.c.token).where(shards.c.id == delivery.shard_id)
            ).one_or_none()
            known = found is not None and (found.state, found.token) == (ShardState.DONE.value, delivery.token)
            return Acceptance.KNOWN if known else Acceptance.REFUSED
        if delivery.measured is not None:
            row = add_run_in(database, connection, delivery.measured)
            row = row_of(connection, delivery.measured.record) if row is None else row
            connection.execute(_update().where(shards.c.id == delivery.shard_id).values(run_row=row))
    return Acceptance.ACCEPTED


def _ended(database: Database, change: Update, delivery: Delivery) -> Update:
    now = now_in(database)
    if delivery.measured is not None:
        return change.values(
            state=ShardState.DONE.value,
            exit_code=delivery.exit_code,
            host=delivery.host,
            lease_until=None,
            changed_at=now,
            problem=None,
        )
    after = ShardState.FAILED.value if delivery.is_final else _after_failure()
    return change.values(
        state=after,
        exit_code=delivery.exit_code,
        host=delivery.host,
        token=None,
        lease_until=None,
        changed_at=now,
        problem=stored_json(delivery.problem) if delivery.problem else None,
    )


def _after_failure() -> ColumnElement[str]:
    """Waiting again, or failed where it was tried often enough."""
    from sqlalchemy import case

    from perfguard.history.tables import fleet_shards as shards

    return case((shards.c.attempt >= MOST_ATTEMPTS, ShardState.FAILED.value), else_=ShardState.WAITING.value)


def give_back(database: Database, attempt: Attempt) -> bool:
    """Let another host have a shard of which nothing was measured; the attempt does not count. Whether it was ours."""
    from perfguard.history.tables import fleet_shards as shards

    change = _update().where(shards.c.id == attempt.shard_id, shards.c.token == attempt.token)
    with database.writing() as connection:
        done = connection.execute(
            change.where(shards.c.state == ShardState.RUNNING.value).values(
                state=ShardState.WAITING.value,
                attempt=shards.c.attempt - 1,
                token=None,
                lease_until=None,
                host=None,
                changed_at=now_in(database),
            )
        )
    return bool(done.rowcount)


def renew(database: Database, tokens: Sequence[str], *, seconds: float) -> None:
    """Put off the end of leases whose attempts are known to go on."""
    from perfguard.history.tables import fleet_shards as shards

    change = _update().where(shards.c.token.in_(tokens), shards.c.state == ShardState.RUNNING.value)
    with database.writing() as connection:
        connection.execute(change.values(lease_until=now_in(database) + seconds))


def expire(database: Database, engine: Engine) -> int:
    """Take an engine's shards away from hosts whose time is over; how many."""
    from sqlalchemy import select

    from perfguard.history.tables import fleet_shards as shards
    from perfguard.history.tables import fleet_submissions as submissions

    now, lost = now_in(database), fact("fleet.lease_expired", severity=Severity.NOTABLE)
    of_engine = select(submissions.c.id).where(submissions.c.engine == engine.value)
    change = _update().where(
        shards.c.state == ShardState.RUNNING.value, shards.c.lease_until < now, shards.c.submission_id.in_(of_engine)
    )
    with database.writing() as connection:
        return connection.execute(
            change.values(
                state=_after_failure(), token=None, lease_until=None, changed_at=now, problem=stored_json(lost)
            )
        ).rowcount


def cancel(database: Database, submission_id: int) -> int:
    """Want nothing more of a submission: what waits is not handed out, what is measured is refused. How many shards.

    Raises:
        NothingSelectedError: There is no such submission.
    """
    from perfguard.history.tables import fleet_shards as shards

    require_submission(database, submission_id)
    is_open = shards.c.state.in_([ShardState.WAITING.value, ShardState.RUNNING.value])
    change = _update().where(shards.c.submission_id == submission_id, is_open)
    with database.writing() as connection:
        return connection.execute(
            change.values(state=ShardState.CANCELLED.value, token=None, lease_until=None, changed_at=now_in(database))
        ).rowcount


def _update() -> Update:
    from perfguard.history.tables import fleet_shards

    return fleet_shards.update()
