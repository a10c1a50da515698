"""What was acknowledged is there: after writers and servers were killed, disks filled up and connections were cut."""

from __future__ import annotations

import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from perfguard.errors import ConfigError, DatabaseError
from perfguard.history import database as databases
from perfguard.history.database import opened
from perfguard.history.queries import read_log
from perfguard.history.recording import add_run
from perfguard.history.upkeep import status_of, verify
from tests import postgresql_servers
from tests.conftest import SOURCE
from tests.recorded_histories import CASES, PROJECT, a_run

_KILLS = 4
_APART = 10_000  # Between the first numbers of two writers


def writer(url, first):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.history_writer", url, str(first)],
        cwd=SOURCE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def acknowledged(process, least):
    """Numbers that it has printed once it has so many; then it goes on for a moment of chance."""
    found = [int(process.stdout.readline()) for _ in range(least)]
    time.sleep(random.Random(least).uniform(0, 0.02))
    return found


def recorded(database):
    return {int(logged.run.run_id[9:15]) for logged in read_log(database, PROJECT, last=10**6)}


def killed_writers(url, kills=_KILLS):
    """What writers had acknowledged before each was killed."""
    found = set()
    for number in range(kills):
        process = writer(url, number * _APART)
        found.update(acknowledged(process, least=3 + number))
        process.kill()
        rest, _ = process.communicate()
        found.update(int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n"))
    return found


def test_a_killed_writer_loses_nothing_that_was_acknowledged(url, tmp_path):
    with opened(url, tmp_path, upgrades=True):
        pass
    found = killed_writers(url)
    with opened(url, tmp_path) as database:
        assert found <= recorded(database)
        assert verify(database).damages == ()
        assert add_run(database, a_run(999_999)) is True


def test_a_killed_server_loses_nothing_that_was_acknowledged(tmp_path):
    if postgresql_servers.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    server = postgresql_servers.started()
    try:
        with opened(server.url(), tmp_path, upgrades=True):
            pass
        process = writer(server.url(), 0)
        found = set(acknowledged(process, least=20))
        server.kill()
        rest, said = process.communicate()
        found.update(int(line) for line in rest.splitlines())
        assert process.returncode == 1
        assert "DatabaseError" in said
        server.start()
        with opened(server.url(), tmp_path) as database:
            assert found <= recorded(database)
            assert verify(database).damages == ()
    finally:
        server.stop()


def test_a_cut_connection_is_one_error_and_the_run_can_be_recorded_again(postgresql_url, tmp_path):
    with opened(postgresql_url, tmp_path, upgrades=True) as database, opened(postgresql_url, tmp_path) as other:
        add_run(database, a_run(1))
        with pytest.raises(DatabaseError):
            _write_while_cut(database, other)
        assert add_run(database, a_run(2)) is True
        assert status_of(database).runs == 2


def _write_while_cut(database, other):
    with database.writing() as connection:
        process = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        with other.writing() as ending:
            ending.execute(text("SELECT pg_terminate_backend(:process)"), {"process": process})
        connection.execute(text("SELECT 1"))


def test_a_full_disk_is_one_error_and_what_was_recorded_stays(sqlite_url, tmp_path):
    with opened(sqlite_url, tmp_path) as database:
        add_run(database, a_run(1))
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, limit[1]))
        try:
            with pytest.raises(DatabaseError):
                [add_run(database, a_run(number)) for number in range(2, 200)]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            signal.signal(signal.SIGXFSZ, ignored)
        kept = recorded(database)
        assert kept == set(range(1, len(kept) + 1))
        assert verify(database).damages == ()
        assert add_run(database, a_run(len(kept) + 1)) is True


def test_writers_at_once_wait_for_each_other(url, tmp_path):
    with opened(url, tmp_path, upgrades=True):
        pass

    def write(first):
        with opened(url, tmp_path) as database:
            return [add_run(database, a_run(number)) for number in (*range(first, first + 10), 5000)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(write, (0, 100, 200, 300)))
    assert all(all(each[:-1]) for each in found)
    assert sum(each[-1] for each in found) == 1
    with opened(url, tmp_path) as database:
        assert (status_of(database).runs, status_of(database).values) == (41, 41 * len(CASES))


def test_processes_that_find_no_tables_make_them_once(url, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        opening = [pool.submit(_open_and_add, url, tmp_path, number) for number in range(4)]
    assert [each.result() for each in opening] == [True] * 4


def _open_and_add(url, folder, number):
    with opened(url, folder, upgrades=True) as database:
        return add_run(database, a_run(number))


def test_a_damaged_file_is_one_error(sqlite_url, tmp_path):
    with opened(sqlite_url, tmp_path) as database:
        for number in range(50):
            add_run(database, a_run(number))
    file = tmp_path / "history.sqlite"
    file.write_bytes(file.read_bytes()[:4096] + b"\xff" * 8192 + file.read_bytes()[12288:])
    with pytest.raises(DatabaseError, match="history.sqlite"):
        _require_whole(sqlite_url, tmp_path)


def _require_whole(url, folder):
    with opened(url, folder) as database:
        if verify(database).damages:
            raise DatabaseError(f"{database.name} is damaged")


@pytest.mark.parametrize("content", [b"", b"not a database at all, but long enough to be one" * 100])
def test_another_file_is_no_database(sqlite_url, tmp_path, content):
    file = tmp_path / "history.sqlite"
    file.write_bytes(content)
    if content:
        with pytest.raises(DatabaseError, match="not a database"), opened(sqlite_url, tmp_path):
            pass
        assert file.read_bytes() == content
    else:  # SQLite's own way to begin
        with opened(sqlite_url, tmp_path) as database:
            assert status_of(database).runs == 0


def test_a_file_on_a_network_file_system_is_refused(sqlite_url, tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "file_system_of", lambda _: "nfs4")
    with pytest.raises(ConfigError, match="nfs4.*PostgreSQL"), opened(sqlite_url, tmp_path):
        pass
    assert not (tmp_path / "history.sqlite").exists()


def test_the_file_system_of_a_place_is_that_of_its_nearest_mount(tmp_path):
    assert databases.file_system_of(tmp_path / "absent" / "file") not in ("", "nfs4")
    assert databases.file_system_of(tmp_path.__class__("/proc/self")) == "proc"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("mysql://host/name", "mysql is not supported"),
        ("postgresql://user:secret@127.0.0.1:1/absent", "127.0.0.1:1/absent"),
        ("postgresql://127.0.0.1:1/absent?user=me&password=secret", "127.0.0.1:1/absent"),
        ("postgresql://me:of@secret@127.0.0.1:1/absent", "%40"),
        ("postgresql:/me:secret@127.0.0.1/absent", "neither a URL nor the path"),
        ("127.0.0.1:5432/secret", "neither a URL nor the path"),
        ("://", "no URL"),
    ],
)
def test_a_database_that_cannot_be_had_is_said_without_its_password(setting, said, tmp_path):
    with pytest.raises((ConfigError, DatabaseError)) as raised, opened(setting, tmp_path):
        pass
    assert said in str(raised.value)
    assert "secret" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_memory_keeps_nothing(tmp_path):
    with opened("off", tmp_path) as database:
        add_run(database, a_run(1))
        assert status_of(database).runs == 1
    with opened("off", tmp_path) as database:
        assert status_of(database).runs == 0
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_to_disk_at_each_commit(sqlite_url, tmp_path):
    with opened(sqlite_url, tmp_path) as database, database.reading() as connection:
        full = connection.execute(text("PRAGMA synchronous")).scalar_one()
        mode = connection.execute(text("PRAGMA journal_mode")).scalar_one()
    assert (full, mode) == (2, "wal")
    with sqlite3.connect(tmp_path / "history.sqlite") as raw:
        (sql,) = raw.execute("SELECT sql FROM sqlite_master WHERE name = 'case_values'").fetchone()
    assert "WITHOUT ROWID" in sql
