"""One worker process and its pipes; the measuring seam. Tests put a scripted fake in its place."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil
from msgspec import Struct

from perfguard.errors import MeasurementError
from perfguard.records.facts import Fact, fact
from perfguard.records.plan import BlockPlan, MeasureSettings
from perfguard.records.protocol import MAX_LINE_BYTES, Message, decode, encode
from perfguard.records.run import Arm

_STDERR_TAIL_BYTES = 4000
_EXIT_GRACE_S = 5.0
LONGEST_REASON = 2_000  # Characters
_WRITE_S = 10.0  # Longest time in which a worker takes a command
_LONGEST_FILE_BYTES = 1024**3  # Of what a worker writes: a trace


class WorkerFailure(Exception):  # noqa: N818 - it is the worker's failure, turned into a verdict, not an error of ours
    """A worker failed: `reason` for messages of errors, the same as data in `found`, and its last words in `detail`."""

    def __init__(self, reason: str, detail: str = "", *, found: Fact | None = None) -> None:
        super().__init__(reason[:LONGEST_REASON])
        self.reason = reason[:LONGEST_REASON]
        self.detail = detail
        self.found = found or fact("case.worker_failed", error=self.reason)


class Worker(Protocol):
    """A started worker."""

    @property
    def pid(self) -> int:
        """Process id; 0 where it has none."""

    def send(self, do: str, **fields: object) -> None:
        """Give one command."""

    def receive(self, timeout_s: float) -> Message:
        """Wait for one reply.

        Raises:
            WorkerFailure: The worker died, hung or wrote rubbish.
        """

    def processes(self) -> tuple[int, ...]:
        """Process ids of the worker and of everything it has started; empty where it has none."""

    def now_s(self) -> float:
        """Seconds of the parent's clock."""

    def place_of(self, file: Path) -> Path:
        """Where the worker writes what becomes a file of the run: a folder that its arm may change, and no other."""

    def take(self, file: Path) -> None:
        """Make a file of the run of what the worker wrote at that place.

        Raises:
            WorkerFailure: There is none, or none that ends: a link, a pipe, a device, or more than a gigabyte.
        """

    def close(self) -> None:
        """End the worker, whatever state it is in."""


class Channels(NamedTuple):
    """Descriptors of a worker, open while it is being started."""

    commands: int  # It reads
    replies: int  # It writes
    log: int  # Its stdout and stderr


class Process(Protocol):
    """What a worker runs in."""

    @property
    def pid(self) -> int:
        """Process id; the process leads a session of its own."""

    def wait(self, timeout_s: float) -> int:
        """How it ended: its exit code, or a signal's number below zero.

        Raises:
            subprocess.TimeoutExpired: It lives on.
        """

    def kill(self) -> None:
        """End it and its process group, and wait for that."""


class WorkerProcess:
    """A real worker: a process, two pipes, and a log file that takes its stdout and stderr.

    `begin` starts the process within so many seconds; it is called when the first reply is waited for, and may raise
    WorkerFailure. A file in the `outbox` with the name of `kept` is moved there when the worker is closed.
    """

    def __init__(
        self, begin: Callable[[Channels, float], Process], *, log: Path, outbox: Path, kept: Path | None = None
    ) -> None:
        self._begin = begin
        self._log_path = log
        self._outbox = outbox
        self._kept = kept
        self._buffer = b""
        self._owes_answer = False
        self._process: Process | None = None
        self._unsent = b""  # What was said before it started: nobody empties the pipe until then
        self._died: tuple[int, ...] = ()  # A descriptor that becomes readable when the process ends, if there is one
        self._command_read, self._command_write = os.pipe()
        self._reply_read, self._reply_write = os.pipe()

    def _started(self, timeout_s: float) -> Process:
        if self._process is None:
            try:
                with self._log_path.open("ab") as output:
                    channels = Channels(self._command_read, self._reply_write, output.fileno())
                    self._process = self._begin(channels, timeout_s)
            except OSError as error:
                raise MeasurementError(f"a worker cannot be started: {error}") from error
            os.close(self._command_read)
            os.close(self._reply_write)
            with contextlib.suppress(AttributeError, OSError):
                self._died = (os.pidfd_open(self._process.pid),)
            os.set_blocking(self._command_write, False)
            self._write(self._process, self._unsent)
        return self._process

    @property
    def pid(self) -> int:
        """Process id; 0 until it has started."""
        return 0 if self._process is None else self._process.pid

    def processes(self) -> tuple[int, ...]:
        """Process ids of the worker and of everything it has started."""
        return () if self._process is None else (self.pid, *(process.pid for process in _descendants(self.pid)))

    def send(self, do: str, **fields: object) -> None:
        """Give one command; a worker that is gone shows at the next receive."""
        self._owes_answer = True
        message = encode({"do": do, **fields})
        if self._process is None:
            self._unsent += message
        else:
            self._write(self._process, message)

    def receive(self, timeout_s: float) -> Message:
        """Wait for one reply."""
        deadline = time.monotonic() + timeout_s
        process = self._started(timeout_s)
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            ready = select.select([self._reply_read, *self._died], [], [], left)[0] if left > 0 else []
            if not ready:
                self._kill(process)
                raise WorkerFailure(
                    f"the worker gave no answer in {timeout_s:.0f} s and was killed",
                    self._tail(),
                    found=fact("case.timed_out", timeout_s=timeout_s),
                )
            # A worker that died may have left children that hold the pipe open, so its end alone says too little.
            chunk = os.read(self._reply_read, 65536) if self._reply_read in ready else b""
            if not chunk:
                raise self._ended(process)
            self._buffer += chunk
            if len(self._buffer) > MAX_LINE_BYTES:
                self._kill(process)
                raise WorkerFailure("the worker wrote rubbish into its control pipe and was killed", self._tail())
        self._owes_answer = False
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return decode(line)
        except ValueError as error:
            self._kill(process)
            raise WorkerFailure(f"the worker wrote rubbish into its control pipe ({error})", self._tail()) from None

    def close(self) -> None:
        """Ask the worker to end, and kill it and everything it started where it does not; at once where it is busy."""
        process, started = self._process, _descendants(self.pid)
        if process is not None:
            self._write(process, encode({"do": "exit"}))
        with contextlib.suppress(OSError):
            os.close(self._command_write)  # a worker whose sample still waits takes the first message as its end
        try:
            if process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0 if self._owes_answer else _EXIT_GRACE_S)
        finally:
            if process is not None:
                self._kill(process, started)
            if self._kept is not None and process is not None:
                with contextlib.suppress(WorkerFailure):
                    self.take(self._kept)
            own = (self._command_read, self._reply_write) if process is None else ()
            for descriptor in (*own, self._reply_read, *self._died):
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def now_s(self) -> float:
        """Seconds of the parent's clock."""
        return time.monotonic()

    def place_of(self, file: Path) -> Path:
        """Where the worker writes what becomes a file of the run."""
        return self._outbox / file.name

    def take(self, file: Path) -> None:
        """Make a file of the run of what the worker wrote at that place."""
        _take(self.place_of(file), file)

    def _write(self, process: Process, message: bytes) -> None:
        """Write a command; a worker that does not take it in time is killed, which shows at the next receive."""
        until = time.monotonic() + _WRITE_S
        with contextlib.suppress(BrokenPipeError):
            while message:
                left_s = until - time.monotonic()
                if left_s <= 0 or not select.select([], [self._command_write], [], left_s)[1]:
                    self._kill(process)
                    return
                with contextlib.suppress(BlockingIOError):
                    message = message[os.write(self._command_write, message) :]

    def _kill(self, process: Process, started: Sequence[psutil.Process] = ()) -> None:
        # Those that took a session of their own are in no group of the worker's any more.
        left = (*started, *_descendants(process.pid))
        process.kill()
        for descendant in left:
            with contextlib.suppress(psutil.Error):
                descendant.kill()

    def _ended(self, process: Process) -> WorkerFailure:
        try:
            code = process.wait(_EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            self._kill(process)
            return WorkerFailure("the worker closed its control pipe and was killed", self._tail())
        return failure_of_end(code, self._tail())

    def _tail(self) -> str:
        return last_words(self._log_path)


def _take(source: Path, destination: Path) -> None:
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            written = os.fstat(descriptor)
            if not stat.S_ISREG(written.st_mode) or written.st_size > _LONGEST_FILE_BYTES:
                raise WorkerFailure(f"the worker left {source.name}, which is no file of a size that it has")
            source.replace(destination)
            if not os.path.samestat(written, destination.lstat()):
                raise WorkerFailure(f"the worker replaced {source.name} while it was taken")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise WorkerFailure(f"the worker left no {source.name} ({error.strerror})") from error


def failure_of_end(code: int, detail: str) -> WorkerFailure:
    """What is wrong where a process ended that should not have: `code` is its exit code or a signal's below zero."""
    if code == -signal.SIGKILL:
        said = "the worker was killed (signal 9); out of memory is the usual reason, see `dmesg`"
        return WorkerFailure(said, detail, found=fact("case.killed"))
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return WorkerFailure(f"the worker crashed with {name}", detail, found=fact("case.crashed", signal=name))
    said = f"the worker ended by itself with exit code {code}"
    return WorkerFailure(said, detail, found=fact("case.exited", exit_code=code))


def last_words(log: Path) -> str:
    """The end of what a process printed; empty where nothing can be read."""
    with contextlib.suppress(OSError), log.open("rb") as printed:
        printed.seek(max(0, log.stat().st_size - _STDERR_TAIL_BYTES))
        return printed.read().decode(errors="replace").strip()
    return ""


def _descendants(pid: int) -> list[psutil.Process]:
    """What a process and its children have started and not yet orphaned; nothing where it is gone, or 0."""
    if pid == 0:
        return []
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(pid).children(recursive=True))
    return []


class ChildProcess:
    """A process that is a child of this one."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self.pid = child.pid

    def wait(self, timeout_s: float) -> int:
        """How it ended."""
        return self._child.wait(timeout_s)

    def kill(self) -> None:
        """End it and its process group, and wait for that."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._child.wait()


class Starter(Protocol):
    """Starts workers; the seam between measuring and processes."""

    def start(self, arm: Arm, block: BlockPlan, settings: MeasureSettings | None) -> Worker:
        """A fresh worker of an arm that measures by the settings; with None it calibrates or profiles."""

    def start_control(self) -> Worker:
        """The control workload, which lives as long as the run."""


class WorkerContext(Struct, frozen=True, kw_only=True):
    """What everything that works with workers gets from outside."""

    starter: Starter
    settings: MeasureSettings  # Samples, budget, timeouts, seed
    cpus: tuple[int, ...]  # Affinity mask of the workers
    should_stop: Callable[[], bool] = lambda: False  # True once the user wants the run to end
