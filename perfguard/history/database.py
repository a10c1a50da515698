"""Opening the history's database: a SQLite file, PostgreSQL, or memory alone where nothing is to be recorded."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from msgspec import Struct

from perfguard.errors import ConfigError, DatabaseError, DatabaseVersionError, RefusedDataError

if TYPE_CHECKING:
    from sqlalchemy import Column, Connection, Engine, Insert, Table
    from sqlalchemy.engine import URL

OFF = "off"
"""Setting that keeps runs out of any database."""
_MEMORY = "sqlite://"
_WAITS_S = 60.0  # For another writer; a transaction takes milliseconds
_REMOTE = re.compile(
    "9p|afs|beegfs|ceph|cifs|davfs|gfs2|glusterfs|gpfs|lustre|ncpfs|nfs4?|ocfs2|orangefs|panfs|smb3|smbfs|"
    r"fuse\.(glusterfs|rclone|s3fs|sshfs)"
)
"""File systems that other machines write, too; a SQLite file in WAL mode would be corrupted there."""
_NO_PATH = re.compile(r"[A-Za-z][\w+]+:|\d+(\.\d+){3}\b|localhost\b")  # A URL that was mistyped
_SCRIPTS = Path(__file__).parent / "migrations"
_LOCK = 0x70657266  # Of PostgreSQL: one migration at a time


class Database(Struct, frozen=True):
    """An open database whose tables are of this version."""

    engine: Engine
    name: str  # What it is called in messages: the file, or the URL without its password

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file, or memory."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees one state of the database. Raises DatabaseError: it fails."""
        with _explained(self.name), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction, kept whole or not at all. Raises DatabaseError: it fails, and nothing was written."""
        engine = self.engine.execution_options(is_writing=True)
        with _explained(self.name), engine.begin() as connection:
            yield connection

    def insertion(self, table: Table, *key: Column[Any]) -> Insert:
        """An insertion that leaves out rows whose key, that of a unique constraint, is there."""
        from sqlalchemy.dialects import postgresql, sqlite

        insert = sqlite.insert if self.is_sqlite else postgresql.insert
        return insert(table).on_conflict_do_nothing(index_elements=key)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def default_path(environment: Mapping[str, str]) -> Path:
    """The file in the user's data folder."""
    return data_folder(environment) / "history.sqlite"


def data_folder(environment: Mapping[str, str]) -> Path:
    """Where the user keeps what perfguard keeps."""
    home = environment.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())
    return Path(home) / "perfguard"


def is_off(setting: str | None) -> bool:
    """Whether runs are kept out of any database."""
    return setting == OFF


def is_missing(setting: str | None, project: Path) -> bool:
    """Whether there is nothing to read: runs are not recorded, or none ever was in the SQLite file."""
    if is_off(setting):
        return True
    return "://" not in (setting or "") and not _file(setting, project).exists()


def _file(setting: str | None, project: Path) -> Path:
    return default_path(os.environ) if setting is None else project / Path(setting).expanduser()


@contextmanager
def opened(setting: str | None, project: Path, *, upgrades: bool | None = None) -> Iterator[Database]:
    """The database that a setting names, closed afterwards.

    The setting is a URL, the path of a SQLite file relative to the project, `off` for memory, or None for the user's
    file.
    Tables are created where there are none; a SQLite file of an older version is upgraded, PostgreSQL only with
    `upgrades`.

    Raises:
        ConfigError: The setting names no database, or a file on a network file system.
        DatabaseVersionError: The tables are of another version.
        DatabaseError: It cannot be reached.
    """
    url = _url(setting, project)
    is_file = url.get_backend_name() == "sqlite"
    name = url.database or "memory" if is_file else url.set(query={}).render_as_string(hide_password=True)
    database = Database(_engine(url, name), name)
    try:
        _prepare(database, upgrades=database.is_sqlite if upgrades is None else upgrades)
        yield database
    finally:
        database.close()


def _url(setting: str | None, project: Path) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    if setting == OFF:
        return make_url(_MEMORY)
    if setting is None or "://" not in setting:
        if setting is not None and _NO_PATH.match(setting):
            raise ConfigError(
                "database is neither a URL nor the path of a file; write postgresql://USER@HOST/NAME, or ./PATH"
            )
        return make_url(_MEMORY).set(database=str(_file(setting, project)))
    if setting.partition("://")[2].partition("?")[0].rpartition("/")[0].count("@") > 1:
        raise ConfigError("database: write @ in a password as %40, and other special characters likewise")
    try:
        url = make_url(setting)
    except (ArgumentError, ValueError):
        raise ConfigError(
            "database is no URL; write postgresql://USER@HOST/NAME, the path of a SQLite file, or off"
        ) from None
    if url.get_backend_name() == "sqlite":
        return url.set(drivername="sqlite")
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise ConfigError(f"database: {url.get_backend_name()} is not supported; use PostgreSQL or a SQLite file")
    return url.set(drivername="postgresql+psycopg")


def _engine(url: URL, name: str) -> Engine:
    from sqlalchemy import create_engine, event, pool

    if url.get_backend_name() == "sqlite":
        if url.database:
            _make_place(Path(url.database))
        engine = create_engine(
            url,
            connect_args={"timeout": _WAITS_S, "check_same_thread": False},
            poolclass=pool.QueuePool if url.database else pool.StaticPool,
        )
        event.listen(engine, "connect", partial(_configure, is_file=bool(url.database)))
        event.listen(engine, "begin", _begin)
        return engine
    try:
        return create_engine(url, pool_size=2, pool_pre_ping=True, connect_args={"connect_timeout": 10})
    except ModuleNotFoundError:
        raise ConfigError(
            f"{name} needs psycopg, which is not installed: pip install 'perfguard[postgresql]'"
        ) from None


def _make_place(path: Path) -> None:
    kind = file_system_of(path)
    if _REMOTE.fullmatch(kind):
        raise ConfigError(
            f"{path} is on a network file system ({kind}), where SQLite would be corrupted; set `database` to a local "
            "file or to a PostgreSQL URL"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(f"{path} cannot be created: {error.strerror or error}") from error


def file_system_of(path: Path) -> str:
    """Kind of the file system that a path is on, or would be: `ext4`, `nfs4`."""
    place = Path(os.path.realpath(path))
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((mounts[above] for above in (place, *place.parents) if above in mounts), "")


def _configure(connection: Any, _: object, *, is_file: bool) -> None:
    """Leave transactions to SQLAlchemy, and lose nothing that was acknowledged."""
    connection.isolation_level = None
    cursor = connection.cursor()
    if is_file:
        _keep_a_log(cursor)
        cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _keep_a_log(cursor: sqlite3.Cursor) -> None:
    """Switch a file to WAL mode, where readers and a writer go on at once; the switch itself waits for nobody."""
    deadline = time.monotonic() + _WAITS_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _begin(connection: Connection) -> None:
    """A writer locks at once: a reader that becomes one would fail where another came first."""
    is_writing = connection.get_execution_options().get("is_writing")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Errors of SQLAlchemy and of a database's driver, in one sentence."""
    from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError

    try:
        yield
    except (DataError, IntegrityError) as error:
        raise RefusedDataError(f"the database {name} refuses a value: {str(error.orig).splitlines()[0]}") from error
    except OverflowError as error:  # of sqlite3: an integer of more than 64 bits
        raise RefusedDataError(f"the database {name} refuses a value: {error}") from error
    except DBAPIError as error:
        said = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        raise DatabaseError(f"the database {name} fails: {said[0]}") from error
    except SQLAlchemyError as error:
        raise DatabaseError(f"the database {name} fails: {error}") from error


def _prepare(database: Database, *, upgrades: bool) -> None:
    """Create the tables where there are none, or bring them to this version.

    Raises:
        DatabaseVersionError: They are of another version, and may not or cannot be changed.
    """
    from perfguard.history.tables import REVISION

    found = revision_of(database)
    if found == REVISION:
        return
    if found is not None and found not in known_revisions():
        raise DatabaseVersionError(
            f"the database {database.name} has version {found}, this perfguard knows {REVISION}; upgrade perfguard"
        )
    if not upgrades:
        is_new = "has no tables yet" if found is None else f"has version {found}, this perfguard needs {REVISION}"
        raise DatabaseVersionError(f"the database {database.name} {is_new}; `perfguard db upgrade` makes them")
    migrate(database)


def revision_of(database: Database) -> str | None:
    """Version of the tables; None where there are none."""
    from sqlalchemy import inspect, text

    with database.reading() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return found


def migrate(database: Database, revision: str | None = None) -> None:
    """Bring the tables to a version, the newest by default; one process does, and others wait for it.

    New tables are created at once, which spares most commands Alembic.
    """
    from sqlalchemy import inspect, text

    from perfguard.history.tables import REVISION, metadata

    with database.writing() as connection:
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        if revision is None and not inspect(connection).has_table("alembic_version"):
            metadata.create_all(connection)
            connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
            connection.execute(text("INSERT INTO alembic_version VALUES (:version)"), {"version": REVISION})
        else:
            _run_alembic(connection, revision or REVISION)


def _run_alembic(connection: Connection, revision: str) -> None:
    """Upgrade, or downgrade where the version is an older one."""
    from alembic import command
    from alembic.migration import MigrationContext

    config = _alembic()
    config.attributes["connection"] = connection
    now = MigrationContext.configure(connection).get_current_revision() or ""
    move: Callable[..., None] = command.downgrade if revision < now or revision == "base" else command.upgrade
    move(config, revision)


def known_revisions() -> tuple[str, ...]:
    """All versions of the tables, newest first."""
    from alembic.script import ScriptDirectory

    return tuple(script.revision for script in ScriptDirectory.from_config(_alembic()).walk_revisions())


def _alembic() -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    return config
