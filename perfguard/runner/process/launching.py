"""How foreign code is started: pinned where it is measured, confined where it is not trusted."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

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
