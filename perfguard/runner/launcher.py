"""Started between the parent and a worker: pins the process, then becomes the worker.

`python -I launcher.py PARENT CPUS NODE -- COMMAND…` sets affinity and memory policy before exec, so that no library
of the worker ever sees another mask, and ties the worker's life to the parent's.
Standard library only; runs as a script, never imported by perfguard.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_MPOL_BIND = 2
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Pin, bind memory where a node is given, and exec the command."""
    parent, cpus, node, separator, *command = arguments
    if separator != "--" or not command:
        sys.exit("launcher: usage: PARENT CPUS NODE|- -- COMMAND…")
    die_with(int(parent))
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    if node != "-":
        bind_memory(int(node))
    os.execv(command[0], command)  # noqa: S606 - the interpreter under test, an absolute path from the plan


def die_with(parent: int) -> None:
    """Have the kernel kill this process, also after exec, when its parent dies: no worker outlives a run."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("launcher: the parent is gone")


def bind_memory(node: int) -> None:
    """Bind this process's memory to one NUMA node; survives exec.

    Raises:
        OSError: The kernel refuses, for instance because the node has no memory.
    """
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        sys.exit(f"launcher: memory cannot be bound on {platform.machine()}; use --numa none")
    words = node // 64 + 1
    mask = (ctypes.c_uint64 * words)()
    mask[node // 64] = 1 << (node % 64)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, _MPOL_BIND, ctypes.byref(mask), ctypes.c_ulong(words * 64 + 1)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"memory cannot be bound to node {node}: {os.strerror(code)}")


if __name__ == "__main__":
    main(sys.argv[1:])
