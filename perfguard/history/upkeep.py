"""Looking after the history's database: what it holds, whether it is whole, copies of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perfguard.codec import from_builtins
from perfguard.errors import DatabaseError, StoreError, UsageError
from perfguard.history.database import Database, opened, revision_of
from perfguard.history.queries import is_current, run_in, unpacked
from perfguard.history.recording import add_run
from perfguard.history.run_records import MILLION, content_hash
from perfguard.records.history import DatabaseStatus
from perfguard.records.machine.fingerprint import Fingerprint

if TYPE_CHECKING:
    from sqlalchemy import Connection

_MOST_DAMAGES = 20


class Verified(Struct, frozen=True, kw_only=True):
    """Whether a database is whole."""

    runs: int  # That were looked at
    damages: tuple[str, ...]  # The first ones, one line each


class Copied(Struct, frozen=True, kw_only=True):
    """What was copied into another database."""

    source: str
    target: str
    added: int  # Runs
    known: int  # Runs that were there already
    states: int  # States of changes


def status_of(database: Database) -> DatabaseStatus:
    """Count what is there. Raises DatabaseError: the database cannot be read."""
    from sqlalchemy import func, select

    from perfguard.history.tables import runs, samples, series, values

    with database.reading() as connection:

        def count(counted: Any) -> int:
            return int(connection.execute(select(counted)).scalar_one())

        return DatabaseStatus(
            name=database.name,
            revision=revision_of(database),
            size_bytes=_size_bytes(database, connection),
            projects=count(func.count(runs.c.project.distinct())),
            runs=count(func.count(runs.c.id)),
            corrected_runs=count(func.count(runs.c.corrects)),
            series=count(func.count(series.c.id)),
            values=count(func.count(values.c.run_row)),
            samples=count(func.count(samples.c.run_row)),
        )


def _size_bytes(database: Database, connection: Connection) -> int:
    from sqlalchemy import text

    question = (
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        if database.is_sqlite
        else "SELECT pg_database_size(current_database())"
    )
    return int(connection.execute(text(question)).scalar_one())


def verify(database: Database) -> Verified:
    """Compare each run with the hash of what was recorded, and unpack all samples and fingerprints.

    Raises:
        DatabaseError: The database cannot be read.
    """
    from sqlalchemy import select, text

    from perfguard.history.tables import fingerprints, runs, samples

    damages: list[str] = []
    with database.reading() as connection:
        if database.is_sqlite:
            said = connection.execute(text("PRAGMA integrity_check")).scalars().all()
            damages.extend(f"SQLite: {line}" for line in said if line != "ok")
        hashes = connection.execute(select(runs.c.id, runs.c.run_id, runs.c.content_hash)).all()
        for row, run_id, wanted in hashes:
            try:
                if content_hash(run_in(connection, row)) != wanted:
                    damages.append(f"run {run_id} (row {row}) is not what was recorded")
            except (StoreError, ValueError, TypeError) as error:
                damages.append(f"run {run_id} (row {row}) cannot be read: {error}")
        for series_id, row, content in connection.execute(select(samples)):
            try:
                unpacked(content, f"samples of series {series_id} in row {row}")
            except StoreError as error:
                damages.append(str(error))
        for _, machine_id, _, content in connection.execute(select(fingerprints)):
            try:
                from_builtins(json.loads(content), Fingerprint, source=f"fingerprint {machine_id}")
            except (StoreError, ValueError) as error:
                damages.append(f"fingerprint {machine_id} is damaged: {error}")
    more = len(damages) - _MOST_DAMAGES
    rest = (f"and {more} more",) if more > 0 else ()
    return Verified(runs=len(hashes), damages=(*damages[:_MOST_DAMAGES], *rest))


def copy_all(source: Database, target: Database) -> Copied:
    """Add each run of one database to another, with its samples, fingerprints and states of changes.

    Rows that a later one corrects stay behind. Runs that are there already are passed over: a copy that was broken off
    goes on, and the histories of several machines come together.

    Raises:
        DatabaseError: One of them fails; what was copied stays.
        StoreError: A run is damaged.
    """
    from sqlalchemy import select

    from perfguard.history.tables import runs

    with source.reading() as connection:
        counting = select(runs.c.id).where(is_current()).order_by(runs.c.id)
        rows = connection.execute(counting).scalars().all()
        added = sum(_copy_run(connection, row, target) for row in rows)
        _copy_fingerprints(connection, target)
        states = _copy_states(connection, target)
    return Copied(source=source.name, target=target.name, added=added, known=len(rows) - added, states=states)


def _copy_run(connection: Connection, row: int, target: Database) -> bool:
    from sqlalchemy import select

    from perfguard.history.tables import samples, series

    found = select(series.c.case_id, samples.c.content).join(series, series.c.id == samples.c.series_id)
    kept = {
        case_id: unpacked(content, f"samples of {case_id} in row {row}")
        for case_id, content in connection.execute(found.where(samples.c.run_row == row))
    }
    return add_run(target, run_in(connection, row), samples=kept)


def _copy_fingerprints(connection: Connection, target: Database) -> None:
    from sqlalchemy import select

    from perfguard.history.tables import fingerprints

    found = [dict(row) for row in connection.execute(select(fingerprints)).mappings()]
    if found:
        with target.writing() as writing:
            writing.execute(target.insertion(fingerprints, *fingerprints.primary_key), found)


def _copy_states(connection: Connection, target: Database) -> int:
    """States that the target lacks."""
    from sqlalchemy import select

    from perfguard.history.tables import change_states, series

    names = (series.c.project, series.c.case_id, series.c.machine_id)
    said = [column for column in change_states.c if column.name not in ("id", "series_id")]
    question = select(*names, *said).join(series, series.c.id == change_states.c.series_id).order_by(change_states.c.id)
    with target.writing() as writing:
        known = set(writing.execute(question).all())
        ids = {(row.project, row.case_id, row.machine_id): row.id for row in writing.execute(select(series)).all()}
        new = [row for row in connection.execute(question).mappings() if tuple(row.values()) not in known]
        for row in new:
            of = ids[row["project"], row["case_id"], row["machine_id"]]
            more = {column.name: row[column.name] for column in said}
            writing.execute(change_states.insert().values(series_id=of, **more))
    return len(new)


def back_up(database: Database, path: Path) -> Copied:
    """Copy everything into a new SQLite file, which `move --from` reads.

    Raises:
        UsageError: The file is there already.
        DatabaseError: One of them fails.
    """
    if path.exists():
        raise UsageError(f"{path} exists already; name a file that does not")
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with opened(str(partial.absolute()), path.parent) as target:
            done = copy_all(database, target)
            _fold_journal(target)
        partial.replace(path)
    except OSError as error:
        raise DatabaseError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        for end in ("", "-wal", "-shm"):
            partial.with_name(partial.name + end).unlink(missing_ok=True)
    return Copied(source=done.source, target=str(path), added=done.added, known=done.known, states=done.states)


def _fold_journal(database: Database) -> None:
    """Make one file of it, which can be copied."""
    with database.engine.connect() as connection:
        connection.rollback()
        raw: Any = connection.connection.dbapi_connection
        raw.execute("PRAGMA journal_mode = DELETE")


def export_values(database: Database, path: Path, *, project: str | None = None) -> int:
    """Write a row for each case of each run as Parquet; how many there are.

    Raises:
        UsageError: pyarrow is not installed.
        DatabaseError: The file cannot be written, or the database not be read.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise UsageError("Parquet needs pyarrow, which is not installed: pip install 'perfguard[parquet]'") from None
    temporary = path.with_name(f".{path.name}.partial")
    rows, writer = 0, None
    try:
        for batch in _batches(database, project):
            table = pa.Table.from_pylist(batch, schema=_schema(pa))
            writer = writer or pq.ParquetWriter(temporary, table.schema, compression="zstd")
            writer.write_table(table)
            rows += len(batch)
        if writer is None:
            pq.write_table(_schema(pa).empty_table(), temporary)
        else:
            writer.close()
        temporary.replace(path)
    except OSError as error:
        raise DatabaseError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def _schema(pa: Any) -> Any:
    text = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("project", text),
            ("case_id", text),
            ("machine_id", text),
            ("stack_id", text),
            ("run_id", text),
            ("started_at", pa.timestamp("us", tz="UTC")),
            ("commit", text),
            ("source_id", text),
            ("median_s", pa.float64()),
            ("spread_ratio", pa.float64()),
            ("blocks", pa.int16()),
            ("outcome", text),
            ("log_ratio", pa.float64()),
            ("lower", pa.float64()),
            ("upper", pa.float64()),
        ]
    )


def _batches(database: Database, project: str | None, *, rows: int = 50_000) -> Iterator[list[dict[str, Any]]]:
    from datetime import datetime, timezone

    from sqlalchemy import select

    from perfguard.history.tables import effect_of_value, effects, runs, series, values

    question = (
        select(
            series.c.project,
            series.c.case_id,
            series.c.machine_id,
            runs.c.stack_id,
            runs.c.run_id,
            runs.c.started_at,
            runs.c.commit,
            runs.c.source_id,
            values.c.median_s,
            (values.c.spread_ppm / MILLION).label("spread_ratio"),
            values.c.blocks,
            effects.c.outcome,
            effects.c.log_ratio,
            effects.c.lower,
            effects.c.upper,
        )
        .select_from(values)
        .join(series, series.c.id == values.c.series_id)
        .join(runs, runs.c.id == values.c.run_row)
        .outerjoin(effects, effect_of_value)
        .where(is_current(), *([] if project is None else [runs.c.project == project]))
        .order_by(values.c.series_id, values.c.run_row)
    )
    with database.reading() as connection:
        for part in connection.execution_options(yield_per=rows).execute(question).mappings().partitions():
            yield [{**row, "started_at": datetime.fromtimestamp(row["started_at"], tz=timezone.utc)} for row in part]
