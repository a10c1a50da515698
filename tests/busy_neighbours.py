"""Processes that share the CPUs with what is measured."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

_BURN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"


@contextlib.contextmanager
def busy_neighbours() -> Iterator[None]:
    """One process on each CPU that this process may use, burning it until the end.

    Each has a session of its own. The kernel shares a CPU between sessions first (autogroup), so a neighbour in this
    session would share its part with all that runs beside this process, and take less of it.
    """
    with contextlib.ExitStack() as stack:
        for cpu in os.sched_getaffinity(0):
            command = [sys.executable, "-c", _BURN, str(cpu)]
            neighbour = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
            stack.callback(neighbour.kill)
            assert neighbour.stdout is not None
            assert neighbour.stdout.readline() == b"\n"
        yield
