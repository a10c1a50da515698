"""The control workload: a fixed piece of work that imports nothing of the arms, timed between the cases.

Its only use is to tell what the host was doing: same process, same work, so a slower control workload is a slower host.
It runs in perfguard's own interpreter, pinned to the measured CPUs, and needs only the standard library.
"""

from __future__ import annotations

import hashlib
import os
import time

from perfguard.worker.pipes import control_of_parent

_HASH_BYTES = 2 * 1024 * 1024  # SHA-256 of 2 MiB: 1 to 10 ms of pure computation in cache-sized pieces
_COPY_BYTES = 16 * 1024 * 1024
"""One copy of 16 MiB: a few ms of memory traffic, beyond most second-level caches."""


class _Work:
    def __init__(self) -> None:
        self._hashed = bytes(_HASH_BYTES)
        self._source = bytearray(_COPY_BYTES)
        self._target = bytearray(_COPY_BYTES)
        self.time_once()

    def time_once(self) -> float:
        started = time.perf_counter()
        hashlib.sha256(self._hashed).digest()
        self._target[:] = self._source
        return time.perf_counter() - started


def main() -> None:
    """Answer each `go` with one timed sample."""
    control = control_of_parent("perfguard control workload")
    work = _Work()
    control.send("ready", pid=os.getpid())
    while (command := control.receive()) is not None and command["do"] == "go":
        control.send("sample", value_s=work.time_once())


if __name__ == "__main__":
    main()
