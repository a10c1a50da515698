"""A reader that keeps out of the way: off the CPUs that are measured on, behind everything else that wants to run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from perfguard.records.machine.cpuset import format_cpu_list, parse_cpu_list

T = TypeVar("T")

CPU_FOLDER = Path("/sys/devices/system/cpu")
_LEAST_NICE = 19


class StartingThread:
    """A thread that keeps the CPUs and the priority which the process had when it was made.

    Whatever is started from it inherits these and not the reader's, which nobody but root could take back.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starting")
        self.id = self._pool.submit(threading.get_native_id).result()
        """The kernel's number of it."""

    def run(self, call: Callable[[], T]) -> T:
        """What a call gives, or raises, in this thread."""
        return self._pool.submit(call).result()


def keep_off(cpus: Collection[int], *, root: Path = CPU_FOLDER, spared: Collection[int] = ()) -> str:
    """Move this process away from the measured CPUs and give it the lowest priority; say what was done, or why not.

    All of its threads; those that they start inherit both.

    Args:
        cpus: CPUs that are measured on; none where nothing is measured on this machine.
        root: Where the kernel describes CPUs.
        spared: Threads that are left as they are; they must do nothing but start processes.
    """
    threads = [thread for thread in _threads() if thread not in spared]
    return f"this reader runs {_moved(frozenset(cpus), root, threads)}, {_lowered(threads)}"


def housekeeping_cpus(allowed: Collection[int], measured: Collection[int], root: Path = CPU_FOLDER) -> frozenset[int]:
    """CPUs for a reader: away from the measured cores, else beside them as SMT siblings; empty where there is none."""
    beside = frozenset(allowed) - frozenset(measured)
    away = beside - frozenset(sibling for cpu in measured for sibling in _siblings(cpu, root))
    return away or beside


def _moved(measured: frozenset[int], root: Path, threads: Sequence[int]) -> str:
    allowed = os.sched_getaffinity(0)
    if not measured & allowed:
        return f"on CPU {format_cpu_list(allowed)}"
    chosen = housekeeping_cpus(allowed, measured, root)
    if not chosen:
        return f"on the measured CPU {format_cpu_list(allowed)}, because there is no other: it will disturb the run"
    try:
        for thread in threads:
            os.sched_setaffinity(thread, chosen)
    except OSError as error:
        return f"on CPU {format_cpu_list(allowed)}, also measured ones, because it cannot be moved ({error.strerror})"
    is_beside = any(chosen & _siblings(cpu, root) for cpu in measured)
    sharing = ", which shares a core with a measured one" if is_beside else ""
    return f"on CPU {format_cpu_list(chosen)}{sharing}"


def _siblings(cpu: int, root: Path) -> frozenset[int]:
    """Threads of a CPU's core, itself among them; only itself where the kernel does not tell."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        with suppress(OSError, UnicodeDecodeError):
            found = parse_cpu_list((root / f"cpu{cpu}" / "topology" / name).read_text(encoding="ascii"))
            if found:
                return found
    return frozenset({cpu})


def _lowered(threads: Sequence[int]) -> str:
    """Priority for CPU and disk; what the kernel refuses is left as it is."""
    _lower_disk_priority()
    try:
        for thread in threads:
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _LEAST_NICE)
        return f"with niceness {os.getpriority(os.PRIO_PROCESS, 0)}"
    return "only when nothing else wants to (SCHED_IDLE)"


def _threads() -> list[int]:
    """Ids of this process's threads; 0, which is the calling one, where the kernel does not list them."""
    try:
        return [int(task.name) for task in Path("/proc/self/task").iterdir()]
    except OSError:
        return [0]


def _lower_disk_priority() -> None:
    import psutil

    with suppress(psutil.Error, OSError, ValueError):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
