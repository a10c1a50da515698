"""The tables of the history and of the fleet.

Runs are only added: a run that is read again is a new row that corrects the old one. What the fleet does now is changed
in place.

`values` is the large one. Its key (series, run) gives a series in one range of the index: SQLite keeps the rows in that
order (WITHOUT ROWID), and PostgreSQL's index covers all columns. A BRIN index finds the newest runs of all series.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    and_,
)

REVISION = "0005"
"""Newest migration; `perfguard.history.migrations` has them all."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("content_hash", Text, nullable=False, unique=True),
    Column("corrects", Integer, ForeignKey("runs.id")),  # An earlier row of the same run, which no longer counts
    Column("recorded_at", Double, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("mode", Text, nullable=False),
    Column("suite", Text, nullable=False),
    Column("machine_id", Text),
    Column("outcome", Text),
    Column("exit_code", Integer),
    Column("source_id", Text),
    Column("stack_id", Text),
    Column("commit", Text),
    Column("is_paired", Integer, nullable=False),
    Column("baseline_source_id", Text),
    Column("baseline_stack_id", Text),
    Column("baseline_commit", Text),
    Column("events_bytes", BigInteger, nullable=False),
    Column("cases", Integer, nullable=False),  # How many it measured
    Column("problem", Text),  # A fact as JSON
    Index(None, "project", "run_id"),
    Index(None, "project", "started_at"),
    Index(None, "corrects"),
)

series = Table(
    "series",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project", Text, nullable=False),
    Column("case_id", Text, nullable=False),
    Column("machine_id", Text, nullable=False),  # Empty where it is not known
    UniqueConstraint("project", "case_id", "machine_id"),
)


def _key(*included: str) -> PrimaryKeyConstraint:
    return PrimaryKeyConstraint("series_id", "run_row", postgresql_include=list(included))


def _of_case() -> tuple[Column[int], Column[int]]:
    return (
        Column("series_id", Integer, ForeignKey("series.id"), nullable=False),
        Column("run_row", Integer, ForeignKey("runs.id"), nullable=False),
    )


values = Table(
    "case_values",
    metadata,
    *_of_case(),
    Column("median_s", Double, nullable=False),
    Column("spread_ppm", Integer),  # Millionths: half the size of a number with a point
    Column("blocks", SmallInteger, nullable=False),
    _key("median_s", "spread_ppm", "blocks"),
    Index(None, "run_row", postgresql_using="brin").ddl_if(dialect="postgresql"),
    sqlite_with_rowid=False,
)

effects = Table(
    "effects",
    metadata,
    *_of_case(),
    Column("outcome", Text, nullable=False),
    Column("log_ratio", Double),
    Column("lower", Double),
    Column("upper", Double),
    _key(),
    sqlite_with_rowid=False,
)

effect_of_value = and_(effects.c.series_id == values.c.series_id, effects.c.run_row == values.c.run_row)
"""What joins a value with its effect, where it has one."""

samples = Table(
    "samples",
    metadata,
    *_of_case(),
    Column("content", LargeBinary, nullable=False),  # Deflated JSON of RecordedSamples
    _key(),
    Index(None, "run_row"),
    sqlite_with_rowid=False,
)

fingerprints = Table(
    "fingerprints",
    metadata,
    Column("project", Text, nullable=False),  # Empty for a host of the fleet
    Column("machine_id", Text, nullable=False),
    Column("stack_id", Text, nullable=False),  # Empty where no software was asked
    Column("content", Text, nullable=False),  # A fingerprint as JSON
    PrimaryKeyConstraint("project", "machine_id", "stack_id"),
)

change_states = Table(
    "change_states",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("series_id", Integer, ForeignKey("series.id"), nullable=False),
    Column("run_id", Text, nullable=False),  # First run at the new level
    Column("state", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("stated_at", Double, nullable=False),
    Index(None, "series_id"),
)

fleet_submissions = Table(
    "fleet_submissions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project", Text, nullable=False),
    Column("engine", Text, nullable=False),
    Column("work", Text, nullable=False),  # Work as JSON
    Column("author", Text, nullable=False),
    Column("submitted_at", Double, nullable=False),
    Index(None, "project"),
)

fleet_shards = Table(
    "fleet_shards",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("submission_id", Integer, ForeignKey("fleet_submissions.id"), nullable=False),
    Column("machine_class", Text, nullable=False),
    Column("patterns", Text, nullable=False),  # A JSON list
    Column("lease_s", Double, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("token", Text),  # Of the attempt whose result is taken
    Column("lease_until", Double),
    Column("host", Text),
    Column("changed_at", Double, nullable=False),
    Column("exit_code", Integer),
    Column("run_row", Integer, ForeignKey("runs.id")),
    Column("problem", Text),  # A fact as JSON
    Index(None, "submission_id"),
    Index(None, "state", "lease_until"),
)

fleet_hosts = Table(
    "fleet_hosts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("machine_id", Text, nullable=False),
    Column("classes", Text, nullable=False),  # A JSON list
    Column("version", Text, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("fitness", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("fit_since", Double, nullable=False),  # Canaries before it are of another state of the machine
)

fleet_canaries = Table(
    "fleet_canaries",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("host", Text, ForeignKey("fleet_hosts.name"), nullable=False),
    Column("measured_at", Double, nullable=False),
    Column("median_s", Double, nullable=False),
    Index(None, "host", "measured_at"),
)

fleet_schedules = Table(
    "fleet_schedules",
    metadata,
    Column("project", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("content", Text, nullable=False),  # A schedule as JSON
    Column("due_at", Double, nullable=False),
    PrimaryKeyConstraint("project", "name"),
)

access_tokens = Table(
    "access_tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("project", Text),  # All of them where there is none
    Column("digest", Text, nullable=False, unique=True),
    Column("created_at", Double, nullable=False),
    Column("revoked_at", Double),
)
