"""A reader that keeps out of the way: off the CPUs that are measured on, behind everything else that wants to run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from perfguard.records.facts import Fact, Severity, fact
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


def keep_off(cpus: Collection[int], *, root: Path = CPU_FOLDER, spared: Collection[int] = ()) -> Fact:
    """Move this process away from the measured CPUs and give it the lowest priority; say what was done, or why not.

    This holds for all threads but the spared ones, which must do nothing but start processes; threads that they start
    inherit both. `root` is where the kernel describes CPUs.
    """
    try:
        threads = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    except OSError:
        threads = [0]  # the calling one
    threads = [thread for thread in threads if thread not in spared]
    moved = _moved(frozenset(cpus), root, threads)
    return replace(moved, values={**moved.values, "niceness": _lowered(threads)})


def housekeeping_cpus(allowed: Collection[int], measured: Collection[int], root: Path = CPU_FOLDER) -> frozenset[int]:
    """CPUs for a reader: away from the measured cores, else beside them as SMT siblings; empty where there is none."""
    beside = frozenset(allowed) - frozenset(measured)
    away = beside - frozenset(sibling for cpu in measured for sibling in _siblings(cpu, root))
    return away or beside


def _moved(measured: frozenset[int], root: Path, threads: Sequence[int]) -> Fact:
    allowed = os.sched_getaffinity(0)
    if not measured & allowed:
        return fact("reader.placed", cpus=format_cpu_list(allowed), is_beside=False)
    chosen = housekeeping_cpus(allowed, measured, root)
    if not chosen:
        return fact("reader.on_measured_cpus", severity=Severity.NOTABLE, cpus=format_cpu_list(allowed))
    try:
        for thread in threads:
            os.sched_setaffinity(thread, chosen)
    except OSError as error:
        problem = error.strerror
        return fact("reader.not_moved", severity=Severity.NOTABLE, cpus=format_cpu_list(allowed), problem=problem)
    is_beside = any(chosen & _siblings(cpu, root) for cpu in measured)
    return fact("reader.placed", cpus=format_cpu_list(chosen), is_beside=is_beside)


def _siblings(cpu: int, root: Path) -> frozenset[int]:
    """Threads of a CPU's core, itself among them; only itself where the kernel does not tell."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        with suppress(OSError, UnicodeDecodeError):
            found = parse_cpu_list((root / f"cpu{cpu}" / "topology" / name).read_text(encoding="ascii"))
            if found:
                return found
    return frozenset({cpu})


def _lowered(threads: Sequence[int]) -> int | None:
    """Give up priority for CPU and disk; the niceness that is left, None where the process only runs on idle CPUs."""
    import psutil

    with suppress(psutil.Error, OSError, ValueError):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    try:
        for thread in threads:
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _LEAST_NICE)
        return os.getpriority(os.PRIO_PROCESS, 0)
    return None
