"""CPU seconds of other processes, as the kernel counts them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress

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


def used_s(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """CPU seconds between two readings of the same processes."""
    return sum(max(0.0, seconds - before[process]) for process, seconds in after.items() if process in before)
