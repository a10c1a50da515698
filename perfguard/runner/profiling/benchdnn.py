"""oneDNN's own benchmark, where it is installed: one problem in one process, pinned like the workers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfguard.runner.process.launching import launched

PROGRAM = "benchdnn"
_LAST_CHARACTERS = 200


class BenchdnnFailure(Exception):  # noqa: N818 - it is the program's failure, which becomes a reason in a table
    """benchdnn did not end by itself; the message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchdnn:
    """Where and how benchdnn is run."""

    path: str
    """The program, absolute."""
    environment: Mapping[str, str]
    """The whole environment, that of the workers."""
    cpus: tuple[int, ...]
    """Affinity mask."""
    memory_node: int | None = None
    """NUMA node that memory is bound to; None leaves the policy alone."""
    timeout_s: float = 60.0
    """Longest wait for one problem."""

    def run(self, options: Sequence[str]) -> str:
        """What it prints; a problem that it cannot run is in there, too.

        Args:
            options: Its command line.

        Raises:
            BenchdnnFailure: It cannot be started, hangs, or crashes.
        """
        try:
            done = subprocess.run(
                launched([self.path, *options], cpus=self.cpus, memory_node=self.memory_node),
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=self.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BenchdnnFailure(f"benchdnn gave no answer in {self.timeout_s:.0f} s and was killed") from None
        except OSError as error:
            raise BenchdnnFailure(f"{self.path} cannot be started: {error.strerror or error}") from error
        # It exits with 1 where a problem cannot be run, and says in its output which and why.
        if done.returncode not in {0, 1}:
            last = done.stdout.strip()[-_LAST_CHARACTERS:]
            raise BenchdnnFailure(f"benchdnn ended with exit code {done.returncode}: {last or 'it printed nothing'}")
        return done.stdout


def find_benchdnn(environment: Mapping[str, str]) -> str | None:
    """The program's absolute path; None where it is not on the path of this environment."""
    found = shutil.which(PROGRAM, path=environment.get("PATH", os.defpath))
    return str(Path(found).absolute()) if found is not None else None
