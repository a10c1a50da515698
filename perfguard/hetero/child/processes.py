"""Workers as processes of this host, and those of other hosts beside them: the coordinator's transport.

Each process has a pipe for orders, and all of them share one for reports. Pipes are in packet mode: what one write puts
in, up to 4,096 bytes, one read takes out, so that reports of several workers never mix. A process that ends is seen by
its sentinel, whatever it said before.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import torch.multiprocessing as mp

from perfguard.hetero.messages import FromWorker, Stop, ToWorker, WorkerLost, decode, encode
from perfguard.records.training import WorkerPlace

if TYPE_CHECKING:
    from perfguard.hetero.child.remote import Remotes

_PR_SET_PDEATHSIG = 1
_PACKET = select.PIPE_BUF  # Most bytes of a message
_STOP_S = 5.0  # Longest end of workers that were asked to stop

Main = Callable[[WorkerPlace, "PipeChannel", Any], None]
"""What a worker's process runs: its place, its channel, and what it is given."""


class PipeChannel:
    """A worker's end."""

    def __init__(self, orders: Connection, reports: Connection) -> None:
        self._orders, self._reports = orders, reports

    def receive(self) -> ToWorker:
        """The next order; `Stop` where the coordinator is gone."""
        try:
            content = os.read(self._orders.fileno(), _PACKET)
        except OSError:
            return Stop()
        return decode(content) if content else Stop()  # type: ignore[return-value]

    def send(self, message: FromWorker) -> None:
        """Say something to the coordinator; nothing happens where it is gone."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._reports.fileno(), encode(message))


class Processes:
    """The coordinator's end; starts the workers when it is made, and ends them when it is closed."""

    def __init__(self, places: Sequence[WorkerPlace], main: Main, given: Any, remotes: Remotes | None = None) -> None:
        context = mp.get_context("spawn")
        self._reports, theirs = _packet_pipe()
        os.set_blocking(self._reports.fileno(), False)
        self._poll = select.poll()
        self._poll.register(self._reports.fileno(), select.POLLIN)
        self._orders: dict[str, Connection] = {}
        self._processes: dict[str, Any] = {}
        self._watched: dict[int, str] = {}
        self._parent = os.getpid()
        self.killed: list[str] = []
        """Workers that did not stop when they were asked to, once the transport is closed."""
        for place in places:
            reader, writer = _packet_pipe()
            process = context.Process(
                target=_begin, args=(self._parent, main, place, PipeChannel(reader, theirs), given), daemon=False
            )
            process.start()
            reader.close()
            self._orders[place.name], self._processes[place.name] = writer, process
            self._watched[process.sentinel] = place.name
            self._poll.register(process.sentinel, select.POLLIN)
        theirs.close()
        self._is_reporting = True
        self._remotes = remotes
        if remotes is not None:
            self._poll.register(remotes.fileno(), select.POLLIN)

    def receive(self, timeout_s: float) -> list[FromWorker]:
        """What workers have said, first; then which of them have ended."""
        ready = [fd for fd, _ in self._poll.poll(max(0.0, timeout_s) * 1000)]
        found = self._drain()
        if self._remotes is not None and self._remotes.fileno() in ready:
            found += self._remotes.drain()
        ended = [fd for fd in ready if fd in self._watched]
        return [*found, *(WorkerLost(worker=self._watched.pop(fd), reason=self._end_of(fd)) for fd in ended)]

    def _drain(self) -> list[FromWorker]:
        found: list[FromWorker] = []
        with contextlib.suppress(BlockingIOError):
            while content := os.read(self._reports.fileno(), _PACKET):
                found.append(decode(content))  # type: ignore[arg-type]
            if self._is_reporting:  # all workers are gone
                self._poll.unregister(self._reports.fileno())
                self._is_reporting = False
        return found

    def _end_of(self, sentinel: int) -> str:
        self._poll.unregister(sentinel)
        (process,) = [each for each in self._processes.values() if each.sentinel == sentinel]
        process.join()
        code = process.exitcode
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"

    def send(self, worker: str, order: ToWorker) -> None:
        """Hand an order to a worker."""
        if self._remotes is not None and self._remotes.owns(worker):
            self._remotes.send(worker, order)
            return
        with contextlib.suppress(OSError):
            os.write(self._orders[worker].fileno(), encode(order))

    def pid_of(self, worker: str) -> int:
        """The process of a worker."""
        pid: int = self._processes[worker].pid
        return pid

    def close(self) -> None:
        """End the workers, those that do not listen by force."""
        for worker, orders in self._orders.items():
            self.send(worker, Stop())
            orders.close()
        deadline_s = time.monotonic() + _STOP_S
        for worker, process in self._processes.items():
            process.join(max(0.0, deadline_s - time.monotonic()))
            if process.is_alive():
                self.killed.append(worker)
                process.kill()
                process.join()
        self._reports.close()


def _packet_pipe() -> tuple[Connection, Connection]:
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_DIRECT)
    return Connection(reader, writable=False), Connection(writer, readable=False)


def _begin(parent: int, main: Main, place: WorkerPlace, channel: PipeChannel, given: Any) -> None:
    """First in a worker's process: die with the parent, leave Ctrl-C to it, take the CPUs."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setaffinity(0, place.cpus)
    main(place, channel, given)
