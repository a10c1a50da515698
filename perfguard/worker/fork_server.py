"""Forks workers from a process that has imported torch, so that a block need not wait for the import again.

The server imports what its environment names, then forks one worker for each request of the parent. It runs no code
under test: benchmarks are imported by the workers alone.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple, NoReturn

from perfguard.records.protocol import MAX_LINE_BYTES, PRELOAD_VARIABLE, SERVER_VARIABLE
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
    """Import, then fork a worker for each request until the parent is gone. One worker lives at a time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what to do about Ctrl-C
    requests = socket.socket(fileno=int(os.environ.pop(SERVER_VARIABLE)))
    requests.set_inheritable(False)
    started = time.monotonic()
    for name in filter(None, os.environ.pop(PRELOAD_VARIABLE, "").split(",")):
        with contextlib.suppress(Exception):  # the worker imports it again and says what is wrong
            importlib.import_module(name)
    import_s = time.monotonic() - started
    libc, own = ctypes.CDLL(None), _children()
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, MAX_LINE_BYTES, _DESCRIPTORS)
        _end_orphans(own)  # the last worker, too, whose process id was in use until now
        if not request:
            return
        given = _Descriptors(*descriptors)
        server = os.getpid()
        sys.stdout.flush()  # what is buffered would be written by both
        pid = os.fork()
        if pid == 0:
            requests.close()
            _become_worker(libc, server, json.loads(request)["arguments"], given, import_s)
        for descriptor in given[:-1]:
            os.close(descriptor)
        with contextlib.suppress(BrokenPipeError):
            os.write(given.status, b"%d\n" % pid)
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            code = 0 if ended is None else ended.si_status
            os.write(given.status, b"%d\n" % (code if ended is None or ended.si_code == os.CLD_EXITED else -code))
        os.close(given.status)


def _become_worker(
    libc: ctypes.CDLL, server: int, arguments: list[str], given: _Descriptors, import_s: float
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
        WorkerState(Control(given.commands, given.replies), Meters(), import_s=import_s).serve()
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is belongs into the log
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()  # noqa: SLF001 - what `os._exit` leaves out
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _children() -> frozenset[int]:
    """Process ids of this process's children, also of those that came to it when their own parent died."""
    with contextlib.suppress(OSError):
        return frozenset(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
    return frozenset()


def _end_orphans(own: frozenset[int]) -> None:
    """Kill what the last worker has left behind, and collect it."""
    while orphans := _children() - own:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
    with contextlib.suppress(ChildProcessError):  # where the kernel does not list children
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
