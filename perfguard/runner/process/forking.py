"""Processes of an arm that have torch imported and fork its workers: the parent's side of `worker.fork_server`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfguard.errors import MeasurementError
from perfguard.records.facts import fact
from perfguard.records.protocol import PRELOAD_VARIABLE, SERVER_VARIABLE
from perfguard.runner.process.worker_process import Channels, WorkerFailure, failure_of_end, last_words

_EXIT_GRACE_S = 5.0


class ForkServer:
    """A process that forks workers.

    `command` starts it; `preloads` are the modules that it imports first.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: str,
        preloads: Sequence[str],
        log: Path,
    ) -> None:
        self._log_path = log
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, log.open("ab") as output:
            variables = {SERVER_VARIABLE: str(theirs.fileno()), PRELOAD_VARIABLE: ",".join(preloads)}
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
        process = ForkedProcess(status_read)
        if process.begin(timeout_s):
            return process
        process.close()
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_EXIT_GRACE_S if process.has_ended else 0)
        self.close()
        said = last_words(self._log_path)
        if code is None:
            found = fact("case.timed_out", timeout_s=timeout_s)
            raise WorkerFailure(f"the worker gave no answer in {timeout_s:.0f} s and was killed", said, found=found)
        raise failure_of_end(code, said)

    def close(self) -> None:
        """End the server, whatever state it is in."""
        self._requests.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def is_alive(self) -> bool:
        """Whether it can fork further workers."""
        return self._process.poll() is None


class ForkedProcess:
    """A worker that a server forked, as `worker_process.Process` has it; it knows what the server says of it."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._said = b""
        self._code: int | None = None
        self.pid = 0  # Until it has begun
        self.has_ended = False  # Whether the server will say no more

    def begin(self, timeout_s: float) -> bool:
        """Wait for the fork; False where it did not happen."""
        line = self._next_line(timeout_s)
        self.pid = int(line or 0)
        return line is not None

    def wait(self, timeout: float | None = None) -> int:
        """How it ended: its exit code, or a signal's number below zero; SIGKILL's where the server died with it."""
        if self._code is None:
            line = self._next_line(timeout)
            if line is None and not self.has_ended:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            self._code = -signal.SIGKILL if line is None else int(line)
            self.close()
        return self._code

    def close(self) -> None:
        """Close what it has open."""
        if self._status >= 0:
            os.close(self._status)
            self._status = -1

    def _next_line(self, timeout_s: float | None) -> bytes | None:
        """None where there is none in time, or will never be."""
        while b"\n" not in self._said:
            if not select.select([self._status], [], [], timeout_s)[0]:
                return None
            chunk = os.read(self._status, 100)
            if not chunk:
                self.has_ended = True
                return None
            self._said += chunk
        line, _, self._said = self._said.partition(b"\n")
        return line
