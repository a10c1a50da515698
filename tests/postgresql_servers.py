"""PostgreSQL servers of a test's own, which can be killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

_USER = "postgres"
_LIMIT_S = 60.0


def programs() -> Path | None:
    """The folder of `initdb` and `postgres`; None where PostgreSQL is not installed."""
    debian = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
    found = shutil.which("initdb")
    return debian or (Path(found).resolve().parent if found else None)


@dataclass
class Server:
    """A server on a port of its own; its data are in memory where the machine allows."""

    folder: Path
    port: int
    address: str = "127.0.0.1"  # `*` for all
    process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = _USER, *, seen_from: str = "127.0.0.1") -> str:
        """The URL by the address that a host reaches it at."""
        return f"postgresql://{_USER}@{seen_from}:{self.port}/{database}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = ("-c", f"listen_addresses={self.address}", "-c", f"unix_socket_directories={self.folder}")
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                _as_user([str(_bin() / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port), *options]),
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _LIMIT_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """End it and all of its processes as a power cut would."""
        assert self.process is not None
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):  # its server is gone, so it ended
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def _pids(self) -> list[int]:
        assert self.process is not None
        found = subprocess.run(
            ["ps", "-o", "pid=", "-g", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        main = self.main_pid()
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(main)], capture_output=True, text=True, check=False
        )
        return list({main, *map(int, children.stdout.split()), *map(int, found.stdout.split())})

    def main_pid(self) -> int:
        """The process that all others of the server come from."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def new_database(self, name: str, *, copy_of: str = "template1") -> str:
        """The URL of a new database; an empty one unless another is copied."""
        command = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(copy_of))
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(command)
        return self.url(name)

    def stop(self) -> None:
        """End it, and remove its data."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def started(place: Path | None = None, *, network: str | None = None) -> Server:
    """A new server, running; its data are in memory unless a place is named, and other hosts of a network may ask."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=place or (memory if memory.is_dir() else None)))
    folder.chmod(0o777)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(_bin() / "initdb"), "-D", str(folder / "data"), "-U", _USER, "-A", "trust", "--no-sync"]
    subprocess.run(_as_user(command), check=True, stdout=subprocess.DEVNULL)
    server = Server(folder, port, "*" if network else "127.0.0.1")
    if network:
        with (folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {network} trust\n")
    server.start()
    return server


def _bin() -> Path:
    found = programs()
    assert found is not None
    return found


def _as_user(command: list[str]) -> list[str]:
    """PostgreSQL refuses to be run by root."""
    return (
        ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", *command]
        if os.geteuid() == 0
        else command
    )
