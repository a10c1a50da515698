"""Forks workers from a process that has imported torch, so that a block need not wait for the import again.

The server imports what its environment names, then forks one worker for each request of the parent. Benchmarks are
imported by the workers alone; of an arm's code the server runs only what Python itself starts with it, such as a
`sitecustomize`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, NoReturn

from perfguard.records.protocol import MAX_LINE_BYTES, PRELOAD_VARIABLE, SERVER_VARIABLE
from perfguard.worker.arm_path import join_arm
from perfguard.worker.pipes import Control
from perfguard.worker.serve import WorkerState
from perfguard.worker.timing.signals import Meters

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_DESCRIPTORS = 4


class _Descriptors(NamedTuple):
    """What a request brings along, in this order."""

    log: int  # Takes the worker's stdout and stderr
    commands: int  # Read by the worker
    replies: int  # Written by the worker
    status: int  # Written by the server: the worker's process id, a line, and how it ended, another one


def main() -> None:
    """Import, then fork a worker for each request until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what to do about Ctrl-C
    requests = socket.socket(fileno=int(os.environ.pop(SERVER_VARIABLE)))
    requests.set_inheritable(False)
    join_arm()
    started = time.monotonic()
    problem = _import_all(filter(None, os.environ.pop(PRELOAD_VARIABLE, "").split(",")))
    _Server(requests, _Imported(time.monotonic() - started, problem)).serve()


class _Imported(NamedTuple):
    seconds: float
    problem: Exception | None  # Why the imports ended early


def _import_all(names: Iterable[str]) -> Exception | None:
    """Import without garbage collections, and freeze what came: no collection of a worker looks through it again.

    Collections while torch is imported take a tenth of the time; one in a worker writes to each of its 165,000 objects,
    and so copies their pages.
    """
    gc.disable()
    try:
        for name in names:
            importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - the worker says what is wrong
        return error
    finally:
        gc.freeze()
        gc.enable()
    return None


class _Server:
    def __init__(self, requests: socket.socket, imported: _Imported) -> None:
        self._requests = requests
        self._imported = imported
        self._libc = ctypes.CDLL(None)
        self._own = _children()  # What an import has started
        self._living: dict[int, int] = {}  # Status descriptors by process id
        self._ended: set[int] = set()  # Process ids that stay in use until the parent asks for more
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        self._wake = wake

    def serve(self) -> None:
        """Fork on request, and say of each worker how it ended."""
        while True:
            ready, _, _ = select.select([self._requests.fileno(), self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
            self._report_ended()
            if self._requests.fileno() in ready:
                request, descriptors, _, _ = socket.recv_fds(self._requests, MAX_LINE_BYTES, _DESCRIPTORS)
                if not request:
                    return
                self._end_orphans()
                self._fork(json.loads(request)["arguments"], _Descriptors(*descriptors))

    def _fork(self, arguments: list[str], given: _Descriptors) -> None:
        server = os.getpid()
        sys.stdout.flush()  # what is buffered would be written by both
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._requests.close()
            for descriptor in (self._woken, self._wake, *self._living.values()):
                os.close(descriptor)
            _become_worker(self._libc, server, arguments, given, self._imported)
        for descriptor in given[:-1]:
            os.close(descriptor)
        self._living[pid] = given.status
        _write_line(given.status, pid)

    def _report_ended(self) -> None:
        for pid, status in list(self._living.items()):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is not None:
                _write_line(status, ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)
                os.close(status)
                del self._living[pid]
                self._ended.add(pid)

    def _end_orphans(self) -> None:
        """Kill what workers that have ended have left behind, and collect it and them."""
        for pid in self._ended:
            os.waitpid(pid, 0)
        self._ended.clear()
        while orphans := _children() - self._own - self._living.keys():
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def _write_line(descriptor: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, b"%d\n" % number)


def _become_worker(
    libc: ctypes.CDLL, server: int, arguments: list[str], given: _Descriptors, imported: _Imported
) -> NoReturn:
    """Serve the parent, and end without taking the interpreter apart, which takes half a second with torch."""
    code = 1
    try:
        os.setsid()
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if os.getppid() != server:
            os._exit(code)
        for descriptor in (1, 2):
            os.dup2(given.log, descriptor)
        os.close(given.log)
        os.close(given.status)
        sys.argv[1:] = arguments
        if "numpy.random" in sys.modules:  # Python's own generator is seeded anew at a fork, NumPy's is not
            sys.modules["numpy.random"].seed()
        control = Control(given.commands, given.replies)
        WorkerState(control, Meters(), import_s=imported.seconds, import_problem=imported.problem).serve()
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is belongs into the log
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - what `os._exit` leaves out
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()  # noqa: SLF001 - what `os._exit` leaves out
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        libc.fflush(None)  # what native code has printed
        os._exit(code)


def _children() -> frozenset[int]:
    """Process ids of this process's children, also of those that came to it when their own parent died."""
    with contextlib.suppress(OSError):
        return frozenset(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
    return frozenset()
