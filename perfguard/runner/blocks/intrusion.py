"""What disturbs a block: CPU time that one arm's processes use while the other is timed, and stolen CPU time.

The arms take turns on the same CPUs, and the one that waits should sleep. Threads that go on spinning, loaders that
fetch ahead and processes that were left running would slow the other arm as much as their own, and hide a slowdown.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from perfguard.records.run import Arm
from perfguard.runner.process.arm_worker import ArmWorker
from perfguard.runner.process.cpu_clocks import read_cpu_clocks, used_s


class IntrusionWatch:
    """Adds up, over the samples of one case in one block, what each arm used while the other was timed."""

    def __init__(self, workers: Sequence[ArmWorker], *, cpus: int, turns: int) -> None:
        self._workers = workers
        self._cpus = cpus
        self._turn = 0
        # Looking for processes takes milliseconds. The second look finds what began meanwhile; nobody can foresee it.
        self._looks = (0, 1 + secrets.randbelow(max(1, turns - 1)))
        self._processes: dict[Arm, tuple[int, ...]] = {}
        self._used_s: defaultdict[Arm, float] = defaultdict(float)
        self._timed_s: defaultdict[Arm, float] = defaultdict(float)

    @contextmanager
    def turn(self, timed: Arm) -> Iterator[None]:
        """One arm has its turn; the others are watched meanwhile. A turn that fails is not counted."""
        if self._turn in self._looks:
            self._processes = {worker.arm: worker.processes() for worker in self._workers}
        self._turn += 1
        waiting = [worker.arm for worker in self._workers if worker.arm is not timed]
        before = {arm: read_cpu_clocks(self._processes[arm]) for arm in waiting}
        started = time.monotonic()
        yield
        elapsed_s = time.monotonic() - started
        for arm in waiting:
            if after := read_cpu_clocks(self._processes[arm]):
                self._used_s[arm] += used_s(before[arm], after)
                self._timed_s[arm] += elapsed_s

    def ratio_of(self, arm: Arm) -> float | None:
        """CPU seconds that an arm used in the other's turns, over what the measured CPUs had to give: in [0, 1].

        None where there was no other arm, or the kernel does not say.
        """
        timed_s = self._timed_s[arm]
        return min(1.0, self._used_s[arm] / (timed_s * self._cpus)) if timed_s > 0 else None


def read_steal(root: Path = Path("/")) -> dict[int, float]:
    """Stolen seconds since boot by CPU; empty where the kernel does not say."""
    with suppress(OSError, ValueError):
        text = (root / "proc" / "stat").read_text(encoding="ascii", errors="replace")
        tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        lines = [line.split() for line in text.splitlines() if re.match(r"cpu\d", line)]
        # Index of `steal` among the words of a line. Source: proc_stat(5).
        return {int(words[0][3:]): int(words[8]) * tick_s for words in lines if len(words) > 8}
    return {}


def steal_ratio(
    before: Mapping[int, float], after: Mapping[int, float], cpus: tuple[int, ...], elapsed_s: float
) -> float | None:
    """Stolen over wall time of the worst measured CPU; None where unknown."""
    known = [cpu for cpu in cpus if cpu in before and cpu in after and elapsed_s > 0]
    shares = [(after[cpu] - before[cpu]) / elapsed_s for cpu in known]
    return max(shares, default=None)
