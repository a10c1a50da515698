"""Waiting until this process leaves the CPUs to others, before the other arm gets its turn.

OpenMP's threads go on spinning for milliseconds after their last parallel region, in the hope of another one. Within a
sample that is wanted; behind it, it would take the CPUs from the other arm, whose sample begins at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_LOOK_S = 0.001
_BUSY_RATIO = 0.1
"""Of one CPU, while the calling thread sleeps: a thread that spins takes all of one."""
_MOST_S = 0.1
"""Whatever is still busy then does not stop by itself; the parent sees it, too."""
_CLOCK, _CLOCK_OF, _SLEEP = time.perf_counter, time.clock_gettime, time.sleep
"""Bound before any code under test is imported, which may replace those in `time`."""
_CPUCLOCK_OF_THREAD = 6
"""Clock of one thread, in what the kernel calls its identity. That of the process would do if it did not know of
threads that are running what they had used at their last tick, 4 ms or more ago. Source: pthread_getcpuclockid(3)."""


def threads_used_s() -> float:
    """CPU seconds of all threads that this process has now."""
    used_s = 0.0
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - after every sample, so no paths are made
        try:
            used_s += _CLOCK_OF((~int(thread) << 3) | _CPUCLOCK_OF_THREAD)
        except OSError:  # it has ended
            continue
    return used_s


def settle(
    *,
    clock: Callable[[], float] = _CLOCK,
    cpu_clock: Callable[[], float] = threads_used_s,
    sleep: Callable[[float], None] = _SLEEP,
) -> None:
    """Sleep until the other threads of this process do, too, or a tenth of a second has passed.

    On a single CPU nothing can spin beside the thread that works, and no time is spent.
    """
    if len(os.sched_getaffinity(0)) == 1:
        return
    until = clock() + _MOST_S
    while True:
        began_s, used_s = clock(), cpu_clock()
        sleep(_LOOK_S)
        now_s = clock()
        if cpu_clock() - used_s < _BUSY_RATIO * (now_s - began_s) or now_s >= until:
            return
