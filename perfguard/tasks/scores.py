"""Scores from time stamps, by LoadGen's own rules: percentile, early stopping, throughput."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from perfguard.errors import MeasurementError

Array = npt.NDArray[np.float32]
LEAST_EQUAL_DB = 60.0  # Between two processes that compute the same: they differ by rounding at most

PERCENTILE = 0.9
"""Of latencies, in single-stream and server."""
_CONFIDENCE = 0.99


def percentile(latencies_ns: Sequence[int], share: float = PERCENTILE) -> int:
    """The latency at index `floor(n · share)` of the sorted ones.

    Raises:
        MeasurementError: There is none.

    Source: LoadGen, results.cc.
    """
    if not latencies_ns:
        raise MeasurementError("no query was answered, so there is no latency")
    ordered = sorted(latencies_ns)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def early_stopping(latencies_ns: Sequence[int], share: float = PERCENTILE) -> int | None:
    """LoadGen's score in single-stream: an upper limit of the percentile, with 99 % confidence; None: too few queries.

    It is the latency that the most queries exceed for which so few exceeding ones, at the true percentile, would come
    with a probability of at most 1 %.

    Source: LoadGen, early_stopping.cc and results.cc.
    """
    left_out = _left_out(len(latencies_ns), share)
    return None if left_out is None else sorted(latencies_ns)[len(latencies_ns) - left_out]


@lru_cache(maxsize=256)
def _left_out(count: int, share: float) -> int | None:
    """The most `t` with P(X ≤ t) ≤ 1 %, X binomial of `count` and `1 - share`; None where there is none from 1 on."""
    from scipy import stats

    found = int(stats.binom.ppf(1 - _CONFIDENCE, count, 1 - share))
    while found >= 1 and stats.binom.cdf(found, count, 1 - share) > 1 - _CONFIDENCE:
        found -= 1
    return found if found >= 1 else None


def snr_db(answers: Sequence[Array], reference: Sequence[Array]) -> float | None:
    """Signal over noise, decibels, over all arrays together; None where there is no difference at all.

    Infinite or undefined numbers, and arrays of another shape, are noise without a signal: minus infinity.
    """
    if [each.shape for each in answers] != [each.shape for each in reference]:
        return -math.inf
    signal = sum(float(np.square(each, dtype=np.float64).sum()) for each in reference)
    noise = sum(
        float(np.square(np.subtract(a, b, dtype=np.float64)).sum()) for a, b in zip(answers, reference, strict=True)
    )
    if noise == 0:
        return None
    if not math.isfinite(noise) or not 0 < signal < math.inf:
        return -math.inf
    return 10 * math.log10(signal / noise)
