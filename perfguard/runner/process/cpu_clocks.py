"""CPU seconds of other processes and their waits for a CPU, as the kernel counts them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

_Clock = TypeVar("_Clock")
_CPUCLOCK_SCHED = 2
"""Clock of all threads of a process, in what the kernel calls its identity. Source: clock_getcpuclockid(3), glibc."""


def read_cpu_clocks(processes: Collection[int]) -> dict[int, float]:
    """CPU seconds of each process since it began, all of its threads; those that are gone are left out.

    A thread that is running is known up to its last tick, some milliseconds ago. That is as often in favour of a turn
    as against it, so sums over many turns do not suffer.
    """
    found = {}
    for process in processes:
        with suppress(OSError):
            found[process] = time.clock_gettime((~process << 3) | _CPUCLOCK_SCHED)
    return found


def read_waits(processes: Iterable[int]) -> dict[int | str, float]:
    """Seconds that the first thread of each process, and this thread, have been ready without a CPU.

    What the kernel does not show is left out. Source: the second number of schedstat,
    Documentation/scheduler/sched-stats.rst.
    """
    found: dict[int | str, float] = {}
    clocks: tuple[int | str, ...] = (*processes, "thread-self")
    for clock in clocks:
        with suppress(OSError, ValueError, IndexError):
            found[clock] = int(Path(f"/proc/{clock}/schedstat").read_bytes().split()[1]) / 1e9
    return found


def used_s(before: Mapping[_Clock, float], after: Mapping[_Clock, float]) -> float:
    """Seconds between two readings of the same clocks."""
    return sum(max(0.0, seconds - before[clock]) for clock, seconds in after.items() if clock in before)
