"""Started between the parent and foreign code: pins and confines the process, then becomes the command.

`python -I launcher.py PARENT CPUS NODE WRITABLE GROUPS -- COMMAND…` sets affinity and memory policy before exec, so
that no library of the worker ever sees another mask, ties the worker's life to the parent's, and what it starts to the
worker. Where WRITABLE is given the command has only these paths to write to. Where GROUPS are given, folders of
control groups or nothing, it joins them, has no more memory of its own than the machine, and is the first to go where
that runs out. `-` leaves CPUS, NODE, WRITABLE or GROUPS as they are.
Standard library only; runs as a script, never imported by perfguard.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import sys

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_MPOL_BIND = 2
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1
_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Landlock's system calls, the same on every architecture. Source: linux/Documentation/userspace-api/landlock."""
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGES = {1: _WRITE_FILE | sum(1 << bit for bit in range(4, 13)), 2: 1 << 13, 3: _TRUNCATE}
"""By the version that brought it: writing, removing, making things of any kind, moving between folders, truncating."""
_NO_FOREIGN_SIGNALS = {6: 1 << 1}
_DROPPED_CAPABILITIES = (16, 17, 19, 21, 22, 38, 39)
"""Of root alone: modules, raw I/O, ptrace, administration, reboot, perfmon, BPF. Each leads round Landlock; perfmon
lets its holder read any process's environment."""
_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/proc/self/clear_refs")
"""Devices, and the file by which the worker resets its own peak of memory."""
_LARGEST_FILE = 16 << 30  # Bytes
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - PyTorch's data loaders need it


def main(arguments: list[str]) -> None:
    """Pin, bind memory where a node is given, limit and confine where that is asked for, and exec the command."""
    parent, cpus, node, writable, groups, separator, *command = arguments
    if separator != "--" or not command:
        sys.exit("launcher: usage: PARENT CPUS|- NODE|- WRITABLE|- GROUPS|- -- COMMAND…")
    die_with(int(parent))
    keep_descendants()
    if cpus != "-":
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    if node != "-":
        bind_memory(int(node))
    if groups != "-":
        leave_keyring()
        leave_terminal()
        limit([group for group in groups.split(os.pathsep) if group])
    if writable != "-":
        confine([path for path in writable.split(os.pathsep) if path])
    os.execv(command[0], command)  # noqa: S606 - the interpreter under test, an absolute path from the plan


def die_with(parent: int) -> None:
    """Have the kernel kill this process, also after exec, when its parent dies: no worker outlives a run."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("launcher: the parent is gone")


def keep_descendants() -> None:
    """Stay, also after exec, the ancestor of all that is started from here, so that the parent finds it and ends it.

    A process whose own parent has gone comes to the nearest ancestor that asked for this, otherwise to init.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def leave_keyring() -> None:
    """Begin a session keyring of its own: the user's holds keys of file systems and services."""
    number = _KEYCTL.get(platform.machine())
    if number is not None:
        ctypes.CDLL(None).syscall(number, _JOIN_SESSION_KEYRING, None)


def leave_terminal() -> None:
    """Begin a session of its own: a terminal would let the command read what the user types, and type itself."""
    if os.getpgrp() != os.getpid():  # whoever leads a group has had a session made by its parent
        os.setsid()


def limit(groups: list[str]) -> None:
    """Join control groups, and be what the kernel ends first when memory runs out; what is started inherits all of it.

    Each process may have as much private memory as there is in the machine. Where a limit cannot be set, it is not.
    """
    for group in groups:
        _write(os.path.join(group, "cgroup.procs"), str(os.getpid()))  # noqa: PTH118 - as for os.path.exists below
    _write("/proc/self/oom_score_adj", "1000")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if hard == resource.RLIM_INFINITY or hard > memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hard == resource.RLIM_INFINITY or hard > _LARGEST_FILE:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(text)
    except OSError:
        pass


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


def confinement_version() -> int:
    """Version of the kernel's Landlock; 0 where it has none, or none that is switched on."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG)))
    return max(0, version)


def confine(writable: list[str]) -> None:
    """Take away from this process and all that it starts every right to change files, but below `writable`.

    It may read files as before. Processes outside can be neither traced nor read, nor, from version 6 on, be sent
    signals.

    Raises:
        OSError: The kernel refuses, or a path does not exist.
    """
    version = confinement_version()
    if version == 0:
        sys.exit("launcher: this kernel cannot confine a process (no Landlock)")
    changes = sum(bits for since, bits in _CHANGES.items() if version >= since)
    scoped = sum(bits for since, bits in _NO_FOREIGN_SIGNALS.items() if version >= since)
    attributes = struct.pack("QQQ", changes, 0, scoped)[: 24 if scoped else 8]
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    for path in (*writable, _SHARED_MEMORY):
        _allow(ruleset, path, changes)
    for path in _FILES:
        if os.path.exists(path):  # noqa: PTH110 - pathlib costs as much to import as all of this takes
            _allow(ruleset, path, changes & (_WRITE_FILE | _TRUNCATE))
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in _DROPPED_CAPABILITIES:
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # whoever may not drop it does not have it
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the process cannot give up new privileges")
    _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights, place)
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(place)


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    answer = int(libc.syscall(ctypes.c_long(number), *arguments))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"the process cannot be confined: {os.strerror(code)}")
    return answer


if __name__ == "__main__":
    main(sys.argv[1:])
