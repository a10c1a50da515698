"""Runs command lines of perfguard in forks of a process that has imported it.

Importing perfguard takes longer than most commands of a test. A fork differs from a fresh process only in what is
already imported; commands that need another interpreter, path or language are started afresh.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple, NoReturn, TextIO

import perfguard.__main__
import perfguard.cli

_IMPORTED = ("perfguard.cli.", "perfguard.gate.", "perfguard.report.terminal.", "perfguard.runner.")
"""Beginnings of what is imported, with what it imports."""
_LIBRARIES = ("scipy.special", "perfguard.history.recording", "perfguard.history.reading")  # Functions import these
_FIXED = ("PYTHON", "LC_", "LANG", "TZ", "COVERAGE_")
"""Beginnings of variables that Python reads as it starts."""
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # a fork has no other
_LONGEST_REQUEST = 100_000  # bytes


class _Command(NamedTuple):
    arguments: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    cpus: list[int]


class CommandServer:
    """A process that forks commands whose environment has the same variables that Python reads as it starts."""

    def __init__(self, environment: dict[str, str]) -> None:
        environment = {name: value for name, value in environment.items() if not name.startswith("COVERAGE_")}
        self._fixed = _fixed(environment)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked_commands", str(theirs.fileno())],
                env={**environment, **_ONE_THREAD},
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        atexit.register(self.close)

    def run(
        self, arguments: tuple[str, ...], *, folder: Path, environment: dict[str, str], limit_s: float
    ) -> subprocess.CompletedProcess[str] | None:
        """What a command printed and how it ended, as `subprocess.run` says it; None where it must be started afresh.

        Raises:
            subprocess.TimeoutExpired: It took longer and was killed.
        """
        command = _Command(arguments, str(folder), environment, sorted(os.sched_getaffinity(0)))
        request = json.dumps(command).encode()
        if _fixed(environment) != self._fixed or len(request) > _LONGEST_REQUEST:
            return None
        said, says = os.pipe()
        with os.fdopen(said) as status, _in_memory() as printed, _in_memory() as complained:
            socket.send_fds(self._requests, [request], [printed.fileno(), complained.fileno(), says])
            os.close(says)
            pid = int(status.readline())
            if not select.select([status], [], [], limit_s)[0]:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, limit_s)
            code = int(status.readline())
            return subprocess.CompletedProcess(arguments, code, _text(printed), _text(complained))

    def close(self) -> None:
        """End the server."""
        self._requests.close()
        self._process.wait()


def _fixed(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_FIXED)}


def _in_memory() -> TextIO:
    return os.fdopen(os.memfd_create("output"), "r+", encoding="utf-8")


def _text(file: TextIO) -> str:
    file.seek(0)
    return file.read()


def _requested(requests: socket.socket) -> _Command | None:
    """Fork for each request; the command in each fork, None in the server when no more will come."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for who waits for a command
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, 3)
        if not request:
            return None
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            out, err, status = descriptors
            pid = os.fork()
            if pid == 0:
                os.close(status)
                os.dup2(out, 1)
                os.dup2(err, 2)
                os.close(out)
                os.close(err)
                return _Command(*json.loads(request))
            os.write(status, b"%d\n" % pid)
            os.write(status, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def _end(code: int) -> NoReturn:
    """End as Python does, without taking apart what was imported, which would copy its memory."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def _become(command: _Command) -> None:
    os.chdir(command.folder)
    os.environ.clear()
    os.environ.update(command.environment)
    os.sched_setaffinity(0, command.cpus)
    sys.argv = [perfguard.__main__.__file__, *command.arguments]


if __name__ == "__main__":
    own = (module.name for module in pkgutil.walk_packages(perfguard.__path__, "perfguard."))
    for name in (*_LIBRARIES, *(name for name in own if name.startswith(_IMPORTED))):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        wanted = _requested(requests)
    if wanted is not None:
        _become(wanted)
        try:
            perfguard.cli.main()
        except SystemExit as stop:
            _end(stop.code)
