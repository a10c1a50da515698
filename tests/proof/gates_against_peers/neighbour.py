"""A noisy neighbour: one process that is busy on and off, from a seed, and ends by itself.

`python -m tests.proof.gates_against_peers.neighbour CPU SECONDS SEED DUTY`; the pauses are exponential.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MEAN_BUSY_S = 0.4
_WORK_BYTES = 8 * 1024 * 1024


def main(cpu: int, seconds: float, seed: int, duty: float) -> None:
    """Alternate between copying memory and sleeping until the time is up or the parent is gone."""
    os.sched_setaffinity(0, {cpu})
    parent = os.getppid()
    draw = random.Random(seed)
    source, target = bytearray(_WORK_BYTES), bytearray(_WORK_BYTES)
    end = time.monotonic() + seconds
    while time.monotonic() < end and os.getppid() == parent:
        until = min(end, time.monotonic() + draw.expovariate(1 / MEAN_BUSY_S))
        while time.monotonic() < until:
            target[:] = source
        pause_s = draw.expovariate(1 / (MEAN_BUSY_S * (1 - duty) / duty))
        time.sleep(max(0.0, min(pause_s, end - time.monotonic())))


@contextlib.contextmanager
def noisy(cpu: int | None, *, seconds: float, seed: int, duty: float, cwd: Path) -> Iterator[None]:
    """Have a neighbour on `cpu` while the block runs; None has none."""
    if cpu is None:
        yield
        return
    arguments = (str(cpu), str(seconds), str(seed), str(duty))
    process = subprocess.Popen([sys.executable, "-m", __spec__.name if __spec__ else __name__, *arguments], cwd=cwd)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
