"""The canary: fixed work that a host does before each shard, which tells whether the host is what it was.

It is the control workload's work, a hash for the cores and a copy for the memory, over half a second.
"""

from __future__ import annotations

import hashlib
import math
import statistics
import time
from collections.abc import Sequence

_HASH_BYTES, _COPY_BYTES = 2 << 20, 16 << 20
_LASTS_S = 0.5
_REFERENCE = 10  # Canaries that say what the host is
_RECENT = 3  # That must all be elsewhere
_LEAST_RATIO = 0.02  # Smaller drifts widen no interval by much
_SIGMAS = 5.0
_TO_SD = 1.4826  # From the median absolute deviation of normal values


def measure_canary() -> float:
    """Median seconds of the work."""
    hashed, source, target = bytes(_HASH_BYTES), bytearray(_COPY_BYTES), bytearray(_COPY_BYTES)
    seen_s: list[float] = []
    end = time.perf_counter() + _LASTS_S
    while (started := time.perf_counter()) < end or not seen_s:
        hashlib.sha256(hashed).digest()
        target[:] = source
        seen_s.append(time.perf_counter() - started)
    return statistics.median(seen_s)


def drifted(canaries_s: Sequence[float]) -> float | None:
    """By how much a host's canary moved, on the log scale; None where it stayed.

    The first ten are what the host is. It drifted where the last three all lie on one side, beyond 2 % and beyond five
    standard deviations of the first ten (from their median absolute deviation). One slow canary is none.
    """
    if len(canaries_s) < _REFERENCE + _RECENT:
        return None
    logs = [math.log(value_s) for value_s in canaries_s]
    reference = logs[:_REFERENCE]
    centre = statistics.median(reference)
    sd = _TO_SD * statistics.median(abs(value - centre) for value in reference)
    limit = max(math.log1p(_LEAST_RATIO), _SIGMAS * sd)
    moves = [value - centre for value in logs[-_RECENT:]]
    if all(move > limit for move in moves) or all(move < -limit for move in moves):
        return statistics.median(moves)
    return None
