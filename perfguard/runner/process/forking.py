"""Processes of an arm that have torch imported and fork its workers: the parent's side of `worker.fork_server`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from perfguard.errors import MeasurementError
from perfguard.records.facts import fact
from perfguard.records.protocol import PRELOAD_VARIABLE, SERVER_VARIABLE
from perfguard.runner.process.worker_process import Channels, WorkerFailure, failure_of_end, last_words

_EXIT_GRACE_S = 5.0
_SIGNALLED = 128
_LONGEST_LINE = 64  # Bytes of a number


class ForkServer:
    """A process that forks workers.

    `command` starts it, in PID namespaces of its own if it is sandboxed; `preloads` are the modules that it imports
    first.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: str,
        preloads: Sequence[str],
        log: Path,
        is_sandboxed: bool = False,
    ) -> None:
        self._log_path = log
        self._is_sandboxed = is_sandboxed
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, log.open("ab") as output:
            # As long in each arm: the environment shifts the stack.
            variables = {SERVER_VARIABLE: f"{theirs.fileno():06d}", PRELOAD_VARIABLE: ",".join(preloads)}
            try:
                self._process = subprocess.Popen(
                    command,
                    env={**environment, **variables},
                    cwd=directory,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # a Ctrl-C at the terminal is the parent's to handle
                )
            except OSError as error:
                self._requests.close()
                raise MeasurementError(f"{command[0]} cannot be started: {error}") from error

    def fork(self, arguments: Sequence[str], channels: Channels, *, timeout_s: float) -> ForkedProcess:
        """A new worker with these arguments of a pyperf worker.

        Raises:
            WorkerFailure: The server died, or gave no answer in time and was killed.
        """
        status_read, status_write = os.pipe()
        try:
            request = json.dumps({"arguments": arguments}).encode()
            descriptors = [channels.log, channels.commands, channels.replies, status_write]
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a server that is gone shows below
                socket.send_fds(self._requests, [request], descriptors)
        finally:
            os.close(status_write)
        process = ForkedProcess(status_read, self)
        if process.begin(timeout_s):
            return process
        process.close()
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_EXIT_GRACE_S if process.has_ended else 0)
            if code > _SIGNALLED:  # as a shell and bubblewrap say it
                code = _SIGNALLED - code
        self.close()
        said = last_words(self._log_path)
        if code is None:
            found = fact("case.timed_out", timeout_s=timeout_s)
            raise WorkerFailure(f"the worker gave no answer in {timeout_s:.0f} s and was killed", said, found=found)
        raise failure_of_end(code, said)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def worker_at(self, pid: int) -> int | None:
        """Process id of the worker that the server calls `pid`, which in a sandbox is another; None if it has none."""
        own = 2 if self._is_sandboxed else 1  # The worker's PID namespaces, from this process's on
        with contextlib.suppress(psutil.Error, OSError):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                status = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii", errors="replace")
                numbers = re.search(r"^NSpid:(.*)$", status, re.MULTILINE)
                ids = [int(number) for number in numbers[1].split()] if numbers else []
                if len(ids) == own and ids[-1] == pid:
                    return int(child.pid)
        return None

    def close(self) -> None:
        """End the server and all that it and its workers have started, whatever state it is in."""
        self._requests.close()
        if self._process.poll() is None:
            started = []
            with contextlib.suppress(psutil.Error):
                started = psutil.Process(self._process.pid).children(recursive=True)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for process in started:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        self._process.wait()

    def is_alive(self) -> bool:
        """Whether it can fork further workers."""
        return self._process.poll() is None


class ForkedProcess:
    """A worker that a server forked, as `worker_process.Process` has it; it knows what the server says of it.

    Code of an arm runs in workers, and at start-up in servers, so what a server says is checked: a worker is a child
    of its server.
    """

    def __init__(self, status: int, server: ForkServer) -> None:
        self._status = status
        self._server = server
        self._said = b""
        self._code: int | None = None
        self.pid = 0  # Until it has begun
        self.has_ended = False  # Whether the server will say no more

    def begin(self, timeout_s: float) -> bool:
        """Wait for the fork; False where it did not happen."""
        pid = self._next_number(timeout_s)
        if pid is None or pid <= 1:
            return False
        found = self._server.worker_at(pid)
        if found is None:
            return False
        self.pid = found
        return True

    def wait(self, timeout_s: float) -> int:
        """How it ended: its exit code, or a signal's number below zero; SIGKILL's where the server died with it."""
        if self._code is None:
            code = self._next_number(timeout_s)
            if code is None and not self.has_ended:
                raise subprocess.TimeoutExpired("worker", timeout_s)
            self._code = -signal.SIGKILL if code is None else code
            self.close()
        return self._code

    def kill(self) -> None:
        """End it and its process group; where the server does not say that it ended, the server, too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        try:
            self.wait(_EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            self._server.close()

    def close(self) -> None:
        """Close what it has open."""
        if self._status >= 0:
            os.close(self._status)
            self._status = -1

    def _next_number(self, timeout_s: float) -> int | None:
        """The number in the next line; None where there is none in time, or will never be."""
        until = time.monotonic() + timeout_s
        while b"\n" not in self._said:
            left_s = max(0.0, until - time.monotonic())
            if not select.select([self._status], [], [], left_s)[0]:
                return None
            chunk = os.read(self._status, _LONGEST_LINE)
            if not chunk or len(self._said) > _LONGEST_LINE:
                self.has_ended = True
                return None
            self._said += chunk
        line, _, self._said = self._said.partition(b"\n")
        try:
            return int(line)
        except ValueError:
            self.has_ended = True
            return None
