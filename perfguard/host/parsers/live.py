"""What only the running machine can tell: the AMX permission, and what psutil and py-cpuinfo know.

Nothing here is called for a recorded machine.
"""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress
from dataclasses import replace

from perfguard.records.machine.fingerprint import AmxPermission, Fingerprint

_SYS_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18


def amx_permission() -> AmxPermission:
    """Ask the kernel to let this process use AMX tiles. Source: Linux Documentation/arch/x86/xstate.rst."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        return AmxPermission.NOT_APPLICABLE
    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return AmxPermission.NOT_ASKED
    arguments = (ctypes.c_long(number) for number in (_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA))
    return AmxPermission.GRANTED if syscall(*arguments) == 0 else AmxPermission.DENIED


def fill_from_host(found: Fingerprint) -> Fingerprint:
    """Fill what the files left unknown, and only that."""
    cpu, topology, state = found.cpu, found.topology, found.state
    if cpu.brand is None:
        cpu = replace(cpu, brand=_brand())
    if topology.threads_online is None or topology.cores is None:
        topology = replace(
            topology,
            threads_online=topology.threads_online or _count(logical=True),
            cores=topology.cores or _count(logical=False),
        )
    if state.memory_bytes is None:
        state = replace(state, memory_bytes=_memory())
    if state.kernel is None:
        state = replace(state, kernel=os.uname().release)
    return replace(found, cpu=cpu, topology=topology, state=state)


def _brand() -> str | None:
    """py-cpuinfo's brand; it starts processes and takes a second, so it is asked last."""
    with suppress(Exception):  # it raises whatever its many sources raise
        import cpuinfo

        brand = cpuinfo.get_cpu_info().get("brand_raw")
        return " ".join(str(brand).split())[:256] if brand else None
    return None


def _count(*, logical: bool) -> int | None:
    with suppress(Exception):
        import psutil

        count = psutil.cpu_count(logical=logical)
        return int(count) if count else None
    return None


def _memory() -> int | None:
    with suppress(Exception):
        import psutil

        return int(psutil.virtual_memory().total)
    return None
