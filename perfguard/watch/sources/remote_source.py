"""A run on another machine, watched through `ssh`: `tail -F` there, and the same reader here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePosixPath

from msgspec.structs import replace

from perfguard.errors import StoreError, UsageError
from perfguard.records.facts import Fact, Severity, fact
from perfguard.units import printable
from perfguard.watch.sources.event_sources import EVENTS_FILE, MAX_FILE_BYTES, EventSource
from perfguard.watch.sources.event_tail import MAX_POLL_BYTES, LineReader, TailUpdate

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")
"""Asks nothing: a reader has no terminal to type a password into, so keys or an agent must do."""
RETRY_S = 5.0  # Between the end of a connection and the next try
_FILE_TIMEOUT_S = 20.0
_HOST = re.compile(r"[A-Za-z0-9_.@:\[\]%][A-Za-z0-9_.@:\[\]%-]*")
_ANEW = ("truncated", "has been replaced", "following new file", "following end of new file")
"""What `tail` says when the file is another one; what it then sends begins with that file."""


class RemoteSource(EventSource):
    """A run's folder on another machine."""

    def __init__(
        self,
        host: str,
        folder: str,
        *,
        ssh: tuple[str, ...] = SSH,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Connect at the first poll.

        The host is as ssh understands it: HOST, USER@HOST, or a name of its configuration. `ssh` are program and
        options; `clock` gives monotonic seconds, `wall` seconds since the epoch.

        Raises:
            UsageError: The host is none.
        """
        self.name = f"{_checked(host)}:{folder}"
        self._host, self._path, self._ssh = host, PurePosixPath(folder), ssh
        self._clock, self._wall = clock, wall
        self._reader = LineReader()
        self._process: subprocess.Popen[bytes] | None = None
        self._consumed_bytes = 0
        self._retry_at = -1e18
        self._behind_s: float | None = None
        self._is_gone = False
        self._is_anew = False
        self._said = ""

    def poll(self) -> TailUpdate:
        """What has arrived; a lost connection is a problem, and tried again."""
        if self._process is None:
            if self._clock() < self._retry_at:
                return self._nothing_new()
            self._connect()
        process = self._process
        if process is None or process.stdout is None or process.stderr is None:
            return self._lost(fact("remote.no_ssh", severity=Severity.NOTABLE, retry_s=RETRY_S))
        # Asked before reading: what it said before it ended is then read for sure.
        has_ended = process.poll() is not None
        piece = _available(process.stdout.fileno(), MAX_POLL_BYTES)
        complaints = _available(process.stderr.fileno(), MAX_POLL_BYTES).decode(errors="replace")
        self._said = next((line for line in reversed(complaints.splitlines()) if line.strip()), self._said)
        if self._consumed_bytes and any(sign in complaints for sign in _ANEW):
            return self._begin_anew()
        if not piece and not complaints and has_ended:
            said, code = printable(self._said)[:160], process.returncode
            return self._lost(
                fact(
                    "remote.no_connection",
                    severity=Severity.NOTABLE,
                    host=self._host,
                    problem=said,
                    exit_code=None if said else code,
                    retry_s=RETRY_S,
                )
            )
        update = self._take(piece) if piece else self._nothing_new()
        if "No such file" in complaints and self._consumed_bytes and not self._is_gone:
            self._is_gone = True
            vanished = fact("recording.vanished", severity=Severity.NOTABLE, path=self.name)
            return replace(update, problems=(*update.problems, vanished), is_gone=True)
        return update

    def wall_s(self, now_s: float) -> float:
        """The other machine's clock, as far as its events tell: never earlier than it really is by their way here."""
        return now_s - (self._behind_s or 0.0)

    def read_file(self, name: str) -> bytes | None:
        """Another file of the folder; takes as long as a connection does."""
        if PurePosixPath(name).name != name:
            return None
        command = f"head -c {MAX_FILE_BYTES} -- {shlex.quote(str(self._path / name))}"
        try:
            return _asked(self._host, command, self._ssh)
        except StoreError:
            return None

    def close(self) -> None:
        """End the connection."""
        process, self._process = self._process, None
        if process is None:
            return
        with process:  # closes the pipes and waits
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(2.0)
            process.kill()

    def _connect(self) -> None:
        path = shlex.quote(str(self._path / EVENTS_FILE))
        command = f"LC_ALL=C exec tail -c +{self._consumed_bytes + 1} -F -- {path}"
        try:
            self._process = subprocess.Popen(
                [*self._ssh, self._host, command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in the reader's terminal is not for the connection
            )
        except OSError:
            return
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)

    def _take(self, piece: bytes) -> TailUpdate:
        self._consumed_bytes += len(piece)
        self._is_gone = False
        found = self._reader.feed(piece)
        now_s = self._wall()
        for seen in found.events:
            behind_s = now_s - seen.t_wall
            self._behind_s = behind_s if self._behind_s is None else min(self._behind_s, behind_s)
        restarted, self._is_anew = found.restarted or self._is_anew, False
        return replace(found, restarted=restarted, has_more=len(piece) == MAX_POLL_BYTES)

    def _begin_anew(self) -> TailUpdate:
        self.close()
        self._reader, self._consumed_bytes, self._is_anew = LineReader(), 0, True
        return TailUpdate(problems=(fact("recording.rewritten", severity=Severity.NOTABLE, path=self.name),))

    def _lost(self, lost: Fact) -> TailUpdate:
        self.close()
        self._retry_at = self._clock() + RETRY_S
        return replace(self._nothing_new(), problems=(lost,))

    def _nothing_new(self) -> TailUpdate:
        return TailUpdate(is_gone=self._is_gone, is_cut=self._reader.is_inside_a_line)


def latest_remote_run(host: str, project: str, *, ssh: tuple[str, ...] = SSH) -> str:
    """Folder of the latest run of a project on another machine.

    Raises:
        UsageError: The host is none.
        StoreError: It cannot be reached, or has no run.
    """
    runs = PurePosixPath(project) / ".perfguard" / "runs"
    command = f"cd -- {shlex.quote(str(runs))} && ls -1d -- */{EVENTS_FILE}"
    names = _asked(_checked(host), command, ssh).decode(errors="replace").splitlines()
    if not names:
        raise StoreError(f"no run is recorded in {host}:{runs}; start one there, or name another --remote-project")
    return str(runs / PurePosixPath(max(names)).parent)


def _checked(host: str) -> str:
    """The host, where ssh cannot take it for an option."""
    if not _HOST.fullmatch(host):
        raise UsageError(f"--host {host!r}: {host!r} is no host; write ssh:HOST or ssh:USER@HOST")
    return host


def _asked(host: str, command: str, ssh: tuple[str, ...]) -> bytes:
    """What a command prints there. Raises StoreError: it cannot be run, or fails."""
    try:
        done = subprocess.run(
            [*ssh, host, command], stdin=subprocess.DEVNULL, capture_output=True, timeout=_FILE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"{host} cannot be asked by ssh: {error}") from error
    if done.returncode:
        said = printable(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])[:200]
        raise StoreError(f"{host} does not answer as expected: {said or f'exit code {done.returncode}'}")
    return done.stdout


def _available(descriptor: int, most_bytes: int) -> bytes:
    """What can be read without waiting."""
    found = bytearray()
    with suppress(BlockingIOError):
        while len(found) < most_bytes and (piece := os.read(descriptor, most_bytes - len(found))):
            found += piece
    return bytes(found)
