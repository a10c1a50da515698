"""How foreign code is started: pinned where it is measured, confined where it is not trusted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from perfguard.runner.process.launcher import confinement_version


def launched(
    arguments: Sequence[str],
    *,
    cpus: Sequence[int] = (),
    memory_node: int | None = None,
    writable: Iterable[str] | None = None,
) -> list[str]:
    """The command that prepares a process of ours and then becomes another one.

    Args:
        arguments: The other one, which begins with an absolute path.
        cpus: Affinity mask; empty leaves it alone.
        memory_node: NUMA node that memory is bound to; None leaves the policy alone.
        writable: The only folders that it may change; None leaves it every right.
    """
    if not cpus and memory_node is None and writable is None:
        return list(arguments)
    launcher = str(Path(__file__).with_name("launcher.py"))
    mask = ",".join(map(str, cpus)) or "-"
    node = "-" if memory_node is None else str(memory_node)
    folders = "-" if writable is None else os.pathsep.join(writable)
    return [sys.executable, "-I", launcher, str(os.getpid()), mask, node, folders, "--", *arguments]


def can_confine() -> bool:
    """Whether this kernel can take rights from a process that are not the process's own to give up (Landlock)."""
    return confinement_version() > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A command that has ended."""

    returncode: int
    """As `subprocess` has it."""
    stdout: str
    """What it printed; what is no UTF-8 is replaced."""
    stderr: str
    """The same of its errors."""


def run_captured(
    arguments: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    ends_what_it_started: bool = False,
) -> Captured:
    """Run a command and keep what it prints, in files: a pipe is at its end only when everything that holds it is.

    Args:
        arguments: The command.
        directory: Where it runs.
        environment: The whole environment.
        timeout_s: How long it may take.
        ends_what_it_started: Whether what it leaves running in its process group is killed.

    Raises:
        OSError: It cannot be started.
        subprocess.TimeoutExpired: It took too long, and was killed.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            arguments,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            start_new_session=ends_what_it_started,
        )
        try:
            returncode = process.wait(timeout_s)
        finally:
            if ends_what_it_started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()  # does nothing to one that has ended
            process.wait()
        return Captured(returncode=returncode, stdout=_text(out), stderr=_text(errors))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
